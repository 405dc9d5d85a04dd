"""Class probabilities from several candidates, pooled and mixed as held-out rows say.

First the base classifier f and what the denoiser's network says, g, are pooled,

    log p = a log f + b log g + const,     a = (1 - w) / T,     b = w / T,

with the share w and the temperature T under which the true classes of held-out rows are likeliest; w = 0 and
T = 1 give f itself, so on those rows p cannot lose to f. A mild prior keeps T near 1 where rows are few.

Then p is mixed with the uniform distribution, which keeps it from calling impossible what it has not seen,
and with what the draws say (vote shares, the temperature-weighted form) where that helps markedly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from card.class_learners import mixture_weights

PRIOR_STD = 0.3  # of log T
COSTLY = ("votes", "temperature")  # candidates that need draws
WORTH = 0.02  # share of the log-loss that draws must save


@dataclass(frozen=True)
class Mixture:
    """Weights of the candidates "f", "direct" (the pool), "votes", "temperature" and "uniform"."""

    weights: dict[str, float]

    def __call__(self, candidates: Mapping[str, np.ndarray]) -> np.ndarray:
        """(N, C) probabilities from those of the candidates, each (N, C)."""
        f = candidates["f"]
        parts = {"uniform": np.full(f.shape, 1.0 / f.shape[1]), **candidates}
        mixed = np.sum([w * parts[name] for name, w in sorted(self.weights.items())], axis=0)
        return mixed / mixed.sum(axis=1, keepdims=True)

    @property
    def draws(self) -> bool:
        """Whether it needs draws."""
        return any(name in COSTLY for name in self.weights)


def pooled(f: np.ndarray, g: np.ndarray, a: float, b: float) -> np.ndarray:
    """f^a g^b, made to sum to 1.

    >>> p = np.array([[0.2, 0.8]])
    >>> pooled(p, p, 0.5, 1.5).round(3)
    array([[0.059, 0.941]])
    """
    mixed = a * np.log(np.maximum(f, 1e-300)) + b * np.log(np.maximum(g, 1e-300))
    q = np.exp(mixed - mixed.max(axis=1, keepdims=True))
    return q / q.sum(axis=1, keepdims=True)


def fit_pool(f: np.ndarray, g: np.ndarray, y: np.ndarray, with_f: bool = True) -> tuple[float, float]:
    """The exponents (a, b) that are likeliest for true classes y (N,); without f, a is 0."""
    rows, n = np.arange(len(y)), len(y)

    def loss(at: np.ndarray) -> float:
        share, log_t = at
        scale = float(np.exp(-log_t))
        p = pooled(f, g, (1.0 - share) * scale, share * scale)[rows, y]
        return float(-np.log(np.maximum(p, 1e-300)).mean() + (log_t / PRIOR_STD) ** 2 / (2 * n))

    bounds = [(0.0 if with_f else 1.0, 1.0), (-0.7, 0.7)]
    starts = [np.array([share, 0.0]) for share in ((0.0, 0.5, 1.0) if with_f else (1.0,))]
    found = [minimize(loss, start, method="L-BFGS-B", bounds=bounds) for start in starts]
    at = min([*(each.x for each in found), starts[0]], key=loss)
    scale = float(np.exp(-at[1]))
    return (1.0 - float(at[0])) * scale, float(at[0]) * scale


def fit_mixture(candidates: Mapping[str, np.ndarray], y: np.ndarray) -> Mixture:
    """The likeliest mixture for true classes y (N,), numbers of columns."""
    n, n_classes = candidates["f"].shape
    rows = np.arange(n)
    true = {name: np.maximum(p[rows, y], 1e-12) for name, p in candidates.items()}
    true["uniform"] = np.full(n, 1.0 / n_classes)
    best = "direct" if "direct" in true else "f"
    cheap, cheap_loss = _weights({name: true[name] for name in (best, "uniform")})
    costly, costly_loss = _weights({name: true[name] for name in (best, "uniform", *COSTLY) if name in true})
    return Mixture(costly if costly_loss < (1.0 - WORTH) * cheap_loss else cheap)


def _weights(true: Mapping[str, np.ndarray]) -> tuple[dict[str, float], float]:
    """Weights of the likeliest mixture, and its log-loss."""
    p = np.stack(list(true.values()))
    w = mixture_weights(p)
    loss = float(-np.log(w @ p).mean())
    kept = {name: float(v) for name, v in zip(true, w, strict=True) if v > 1e-5}
    total = sum(kept.values())
    return {name: v / total for name, v in kept.items()}, loss
