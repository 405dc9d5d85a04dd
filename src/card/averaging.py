"""What an average of models changes, and how it is told from the rows that trained them.

A training row's f is the mean of R models that did not see it; at predict all fold models are averaged, and
an average errs less. If one model varies by V around the average of many, and the residuals have mean square
E, the part of E that is not such variation is c^2 = 1 - (V / R) / E, and residuals are drawn c times
smaller. The variation of the average itself is in the members' centres.

Where models vary most, in the tails of the residuals, averaging helps most, and more than the one factor c
says. So the warp of large tables is fitted to what the latents of held-out rows would be at predict:

- Held-out residuals are around the mean of R models of f, and predictions around that of N = R M. With q_R
  and q_1 a quantile around R models and around one, D = (q_1 - q_R) / (1 - 1/R) is what it loses on the way
  to infinitely many, and around N models it is q_R - D (1/R - 1/N).
- Members are centred apart, which widens their mixture. Held-out rows are read once more around M centres as
  far apart as these will be: by chance, with the variance by which the R models disagree on the row.
- A held-out row is unseen by one denoiser only, and all of them together err less. Some rows are set aside
  for none to see: how much smaller latents are by all than by one, as a ratio of root mean squares,
  multiplies the quantiles. (On rows that were learned from the ratio is nearer to 1.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from card.crossfit import CrossFit
from card.model import Model, Predictor
from card.noise import Schedule
from card.warp import Warp, quantiles

ENOUGH_TO_WARP, MOST_WARPED = 2500, 10_000  # held-out rows that calibrate the flow
SET_ASIDE = 250  # rows that no denoiser of a warped table sees
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


def set_aside(fold: np.ndarray, seed: int) -> np.ndarray:
    """Folds (N,) with -1 for some rows, which then belong to no denoiser; no fold is left without any."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(fold >= 0))[:SET_ASIDE]
    out = fold.copy()
    out[rows] = -1
    return np.where(np.isin(fold, out), out, fold)


def fit_warp(
    model: Model,
    x: Tensor,
    z: Tensor,
    means: Means,
    fold: np.ndarray,
    schedule: Schedule,
    n_nodes: int,
    seed: int,
) -> Warp | None:
    """From held-out rows of one target, a share of them where there are many; None where there are none.

    `fold` (N,) is that of the denoisers, from `set_aside`.
    """
    rng = np.random.default_rng(seed)
    folds = [rng.permutation(np.flatnonzero(fold == m)) for m in range(means.n_members)]
    n = min(MOST_WARPED // means.n_members, *map(len, folds))
    if n == 0:
        return None
    own = np.stack([each[:n] for each in folds])
    aside = np.tile(np.flatnonzero((means.fold >= 0) & (fold < 0)), (means.n_members, 1))
    scale, alone, together = float(model.scale[0]), model.latents_alone, model.latents_together

    def read(how: Callable[..., np.ndarray], rows: np.ndarray, mean: np.ndarray, moves: np.ndarray | float):
        """Latents of the rows around this mean (N, 1), their residuals moved."""
        index, f = torch.from_numpy(rows).to(x.device), torch.from_numpy(mean).to(x)
        r = (z[index] - f[index] + torch.as_tensor(moves).to(x)) / scale
        return how(x[index], f[index], r, schedule, n_nodes)

    moves = _centres_apart(means, own, rng)
    centred, *moved = np.moveaxis(read(alone, own, means.f, np.insert(moves, 0, 0.0, axis=-1)), -1, 0)
    wider = quantiles(ndtri(np.clip(ndtr(moved).mean(axis=0), 1e-12, 1.0 - 1e-12))) - quantiles(centred)
    sizes = [_size(each) for each in read(alone, aside, means.f, 0.0)]
    ratio = _size(read(together, aside[0], means.f, 0.0)) / np.mean(sizes)
    q = quantiles(centred)
    if means.n_repeats > 1:
        single = np.mean([quantiles(read(alone, own, each, 0.0)) for each in means.by_repeat], axis=0)
        q = around_many(q, single, means.n_repeats, means.n_repeats * means.n_members)
    return Warp.through(ratio * q + wider, own.size)


def around_many(q: np.ndarray, single: np.ndarray, n_repeats: int, n_models: int) -> np.ndarray:
    """Quantiles around the mean of n_models, from those around the mean of n_repeats and around one.

    >>> around_many(np.array([1.5]), np.array([2.0]), n_repeats=2, n_models=10)
    array([1.1])
    """
    lost = (single - q) / (1.0 - 1.0 / n_repeats)
    return q - lost * (1.0 / n_repeats - 1.0 / n_models)


def _centres_apart(means: Means, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(M, n, M): for each of the rows (M, n), by how much the members' centres might be off."""
    n_repeats, n_members = means.n_repeats, means.n_members
    if n_repeats == 1:
        return np.zeros((*rows.shape, n_members))
    chance = rng.standard_normal((*rows.shape, n_members))
    chance -= chance.mean(axis=-1, keepdims=True)
    variance = means.by_repeat.var(axis=0, ddof=1)[rows] / n_repeats
    return chance * np.sqrt(variance / max(1, n_members - 1))


def _size(z: np.ndarray) -> float:
    """Root mean square, outliers cut."""
    return float(np.sqrt(np.mean(np.clip(z, -3.0, 3.0) ** 2)))
