"""The reverse chain as it runs: states on the way from noise to response, and their metrics.

A sampler shows the state r_k to the denoiser at every node k; listening there is all it takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from card import metrics
from card.bench.errors import BenchError
from card.bench.kinds import Data
from card.denoise import TableDenoiser
from card.model import Model
from card.noise import Schedule
from card.sample import ancestral
from card.train import seed_of

SHOWN = 6
"""States that the figure of samples shows: t = 1, T/5, 2T/5, .. T."""
SCORED = 51
"""States whose metrics are computed."""
MOST_POINTS = 2048
N_DRAWS = 250
"""Behind each of those metrics."""


def samples(estimator: Any, data: Data, seed: int) -> dict[str, np.ndarray]:
    """Samples of q, one for each test row, and of p, about two thousand, at six times, in units of y."""
    model, x = estimator.model_, estimator._encode(data.X_test)
    times = _times(model, SHOWN).clip(min=1)
    reverse = reverse_states(model, x, max(1, MOST_POINTS // len(x)), seed, set(times))
    forward = forward_states(model, x, data.y_test, times, seed)
    return {
        "x": np.asarray(data.X_test, dtype=np.float32)[:, 0],
        "y": data.y_test.astype(np.float32),
        "times": times,
        "p": np.stack([reverse[k] for k in times]),
        "q": np.stack([forward[k] for k in times]).astype(np.float32),
    }


def reverse(estimator: Any, data: Data, seed: int) -> dict[str, np.ndarray]:
    """RMSE, NLL, QICE and PICP of p along the chain."""
    model, x = estimator.model_, estimator._encode(data.X_test)
    times = _times(model, SCORED)
    states = reverse_states(model, x, N_DRAWS, seed, set(times))
    return {"metric_times": times, **_metrics(data.y_test, [states[k] for k in times])}


def _times(model: Model, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, schedule_of(model).n_steps, count).round().astype(int))


def schedule_of(model: Model) -> Schedule:
    """Of the paper's network; others have no chain."""
    if not isinstance(model.denoiser, TableDenoiser):
        raise BenchError("only the paper's recipe has a chain to look into: run it with --recipe paper")
    return model.denoiser.schedule


@torch.no_grad()
def reverse_states(
    model: Model, x: np.ndarray, n_draws: int, seed: int, wanted: set[int]
) -> dict[int, np.ndarray]:
    """y_k (n_draws, n_rows) at the wanted nodes k of the paper's chain, k = 0 included."""
    schedule = schedule_of(model)
    f, centres = model.centres(x)
    context = model.context(x, f)
    parts: dict[int, list[np.ndarray]] = {}
    for block in np.array_split(np.arange(n_draws), max(1, n_draws * len(x) // 4096)):
        rng = torch.Generator().manual_seed(seed_of(seed, int(block[0])))
        shape = (model.n_members, len(block) * len(x), model.n_targets)
        denoise = model.denoiser.at(context.repeat(1, len(block), 1), schedule)
        heard: dict[int, torch.Tensor] = {}

        def listen(r: torch.Tensor, k: int, denoise=denoise, heard=heard) -> torch.Tensor:
            if k in wanted:
                heard[k] = r
            return denoise(r, k)

        def normal(shape=shape, rng=rng) -> torch.Tensor:
            return torch.randn(shape, generator=rng)

        heard[0] = ancestral(schedule)(listen, normal(), normal)
        for k, r in heard.items():
            residual = r[0].reshape(len(block), len(x), -1).numpy()
            parts.setdefault(k, []).append(model.respond(centres[0], residual)[..., 0].astype(np.float32))
    return {k: np.concatenate(states) for k, states in parts.items()}


def forward_states(
    model: Model, x: np.ndarray, y: np.ndarray, wanted: np.ndarray, seed: int
) -> dict[int, np.ndarray]:
    """One draw of q(y_k | y_0, f(x)) (n_rows,) at each wanted node."""
    schedule = schedule_of(model)
    centre = model.centres(x)[1][0]
    r = (model.codec.encode(y[:, None]) - centre) / model.scale
    eps = np.random.default_rng(seed).standard_normal(r.shape)
    return {
        int(k): model.respond(centre, float(schedule.alpha[k]) * r + float(schedule.sigma[k]) * eps)[:, 0]
        for k in wanted
    }


def _metrics(y: np.ndarray, states: list[np.ndarray]) -> dict[str, np.ndarray]:
    found: dict[str, list[Any]] = {"rmse": [], "nll": [], "qice": [], "picp": []}
    for draws in states:
        lower, upper = np.quantile(draws, [0.025, 0.975], axis=0)
        deciles = np.quantile(draws, np.arange(1, 10) / 10, axis=0).T
        found["rmse"].append(metrics.rmse(y, draws.mean(axis=0)))
        found["nll"].append(metrics.nll_paper(y, draws))
        found["qice"].append(metrics.qice(y, deciles))
        found["picp"].append(metrics.picp(y, lower, upper))
    return {name: np.array(values, dtype=np.float32) for name, values in found.items()}
