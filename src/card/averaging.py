"""What an average of models changes, and how it is told from the rows that trained them.

A training row's f is the mean of R models that did not see it; at predict all fold models are averaged, and
an average errs less. If one model varies by V around the average of many, and the residuals have mean square
E, the part of E that is not such variation is c^2 = 1 - (V / R) / E, and residuals are drawn c times
smaller. The variation of the average itself is in the members' centres.

Where models vary most, in the tails of the residuals, averaging helps most, and more than the one factor c
says. So the warp of large tables is fitted to what the latents of held-out rows would be around an average of
infinitely many models: a quantile that is q_R around the mean of R repeats and q_1 around a single one tends
to (R q_R - q_1) / (R - 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from card.crossfit import CrossFit
from card.model import Model, Predictor
from card.noise import Schedule
from card.warp import Warp

ENOUGH_TO_WARP, MOST_WARPED = 2500, 10_000  # held-out rows that calibrate the flow
MOST_TOGETHER = 4000  # of them, on which one member is set beside all
SMALLEST_SHARE = 0.25  # of the residuals' variance that is kept, however unstable the folds are


@dataclass(frozen=True)
class Means:
    """A fitted mean model and what it says of the training rows."""

    predictor: Predictor
    by_repeat: np.ndarray  # (R, N, K), out of fold where cross-fitted
    fold: np.ndarray  # (N,), -1 for rows that no fold tests
    n_members: int
    spread: np.ndarray  # (K,) variance of one model around the average of many

    @property
    def f(self) -> np.ndarray:
        """(N, K), the mean over repeats."""
        return self.by_repeat.mean(axis=0)

    @property
    def n_repeats(self) -> int:
        return len(self.by_repeat)


def shrinkage(means: Means, scale: np.ndarray) -> np.ndarray:
    """c (K,): how much smaller residuals are around the average, where out of fold they have this scale."""
    return np.sqrt(np.maximum(1.0 - means.spread / means.n_repeats / scale**2, SMALLEST_SHARE))


def apart(means: Means, n: int) -> float:
    """What a denoiser keeps of its difference from the members' average.

    In small tables this is chance, and the doubt is told by the fold means, where there are any.
    """
    told = isinstance(means.predictor, CrossFit) and n < ENOUGH_TO_WARP
    return 0.0 if told else 1.0 / math.sqrt(max(1, means.n_members - 1))


def fit_warp(
    model: Model, x: Tensor, z: Tensor, means: Means, schedule: Schedule, n_nodes: int, seed: int
) -> Warp | None:
    """From held-out rows of one target, a share of them where there are many; None where there are none."""
    some = np.random.default_rng(seed)
    folds = [some.permutation(np.flatnonzero(means.fold == m)) for m in range(means.n_members)]
    n = min(MOST_WARPED // means.n_members, *map(len, folds))
    if n == 0:
        return None
    own = torch.from_numpy(np.stack([fold[:n] for fold in folds])).to(x.device)
    others = own[:, : MOST_TOGETHER // means.n_members].roll(1, 0)  # rows that a member has learned from
    scale = float(model.scale[0])

    def read(how: Callable[..., np.ndarray], rows: Tensor, mean: np.ndarray) -> np.ndarray:
        f = torch.from_numpy(mean).to(x)
        return how(x[rows], f[rows], (z[rows] - f[rows]) / scale, schedule, n_nodes)

    alone, f = model.latents_alone, means.f
    single = [read(alone, own, each) for each in means.by_repeat] if means.n_repeats > 1 else []
    return Warp.fit(
        read(alone, own, f),
        read(alone, others, f),
        read(model.latents_together, others.flatten(), f),
        single,
    )
