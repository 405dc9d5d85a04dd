"""Class probabilities from several candidates, pooled and mixed as held-out rows say.

First the base classifier f and the denoiser's p(c | x) at the largest noise level are pooled,

    q(c) ~ (f_c^(1 - w) p_c^w)^(1 / T),

with the share w and the temperature T under which the true classes of held-out rows are likeliest; w = 0 and
T = 1 give f itself, so on those rows q cannot lose to f. A mild prior keeps T near 1 where rows are few. Then
q is mixed with the uniform distribution, which keeps it from calling impossible what it has not seen, and
with what the draws say (vote shares, the temperature-weighted form) where that helps markedly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from card.class_learners import mixture_weights

PRIOR_STD = 0.3  # of log T
COSTLY = ("votes", "temperature")  # candidates that need draws
WORTH = 0.02  # share of the log-loss that draws must save


@dataclass(frozen=True)
class Mixture:
    """The share of p(c | x) in the pool, its temperature, and the weights of pool and other candidates."""

    share: float = 0.0
    temperature: float = 1.0
    weights: dict[str, float] = field(default_factory=lambda: {"pool": 1.0})

    @classmethod
    def of(cls, name: str) -> Mixture:
        """One candidate alone: "f", "direct", "votes" or "temperature"."""
        return cls(share=float(name == "direct"), weights={name if name in COSTLY else "pool": 1.0})

    def __call__(self, candidates: Mapping[str, np.ndarray]) -> np.ndarray:
        """(N, C) probabilities from those of the candidates, each (N, C)."""
        f = candidates["f"]
        parts = {"uniform": np.full(f.shape, 1.0 / f.shape[1]), **candidates}
        if "pool" in self.weights:
            parts["pool"] = pooled(candidates, self.share, self.temperature)
        mixed = np.sum([w * parts[name] for name, w in self.weights.items()], axis=0)
        return mixed / mixed.sum(axis=1, keepdims=True)

    @property
    def draws(self) -> bool:
        """Whether it needs draws."""
        return any(name in COSTLY for name in self.weights)


def pooled(candidates: Mapping[str, np.ndarray], share: float, temperature: float) -> np.ndarray:
    """(f^(1 - w) p^w)^(1 / T), made to sum to 1.

    >>> pooled({"f": np.array([[0.2, 0.8]])}, share=0.0, temperature=0.5).round(3)
    array([[0.059, 0.941]])
    """
    log = {
        name: np.log(np.maximum(candidates[name], 1e-300)) for name in ("f", "direct") if name in candidates
    }
    mixed = log["f"] if "direct" not in log else (1.0 - share) * log["f"] + share * log["direct"]
    q = np.exp((mixed - mixed.max(axis=1, keepdims=True)) / temperature)
    return q / q.sum(axis=1, keepdims=True)


def fit_mixture(candidates: Mapping[str, np.ndarray], y: np.ndarray) -> Mixture:
    """The likeliest mixture for true classes y (N,), numbers of columns."""
    share, temperature = _fit_pool(candidates, y)
    n, n_classes = candidates["f"].shape
    rows = np.arange(n)
    everything = {**candidates, "pool": pooled(candidates, share, temperature)}
    true = {name: np.maximum(p[rows, y], 1e-12) for name, p in everything.items()}
    true["uniform"] = np.full(n, 1.0 / n_classes)
    cheap, cheap_loss = _weights({name: true[name] for name in ("pool", "uniform")})
    costly, costly_loss = _weights(
        {name: true[name] for name in ("pool", "uniform", *COSTLY) if name in true}
    )
    worth_it = costly_loss < (1.0 - WORTH) * cheap_loss
    return Mixture(share, temperature, costly if worth_it else cheap)


def _fit_pool(candidates: Mapping[str, np.ndarray], y: np.ndarray) -> tuple[float, float]:
    rows, n = np.arange(len(y)), len(y)

    def loss(at: np.ndarray) -> float:
        share, log_t = at
        p = pooled(candidates, share, float(np.exp(log_t)))[rows, y]
        return float(-np.log(np.maximum(p, 1e-300)).mean() + (log_t / PRIOR_STD) ** 2 / (2 * n))

    bounds = [(0.0, 1.0 if "direct" in candidates else 0.0), (-0.7, 0.7)]
    starts = [np.array([0.0, 0.0]), np.array([0.5 * bounds[0][1], 0.0])]
    found = [minimize(loss, start, method="L-BFGS-B", bounds=bounds) for start in starts]
    best = min(found, key=lambda each: each.fun)
    if best.fun >= loss(starts[0]):
        return 0.0, 1.0
    return float(best.x[0]), float(np.exp(best.x[1]))


def _weights(true: Mapping[str, np.ndarray]) -> tuple[dict[str, float], float]:
    """Weights of the likeliest mixture, and its log-loss."""
    p = np.stack(list(true.values()))
    w = mixture_weights(p)
    loss = float(-np.log(w @ p).mean())
    kept = {name: float(v) for name, v in zip(true, w, strict=True) if v > 1e-5}
    total = sum(kept.values())
    return {name: v / total for name, v in kept.items()}, loss
