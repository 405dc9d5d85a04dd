"""What an average of models changes, and how it is told from the rows that trained them.

A training row's f is the mean of R models that did not see it; at predict all fold models are averaged, and
an average errs less. If one model varies by V around the average of many, and the residuals have mean square
E, the part of E that is not such variation is c^2 = 1 - (V / R) / E, and residuals are drawn c times
smaller. The variation of the average itself is in the members' centres.

Averaging helps most in the tails, and more than the one factor c says; the members' denoisers are averaged
too, and their centres lie apart. What all this does to the latents of new rows no held-out row can tell, for
some models have seen it. So a few rows of large tables are set aside from everything, f and denoisers. They
are read twice: as a held-out row is, by one denoiser around R models of f, and as at predict. How much
smaller their latents are at predict multiplies the quantiles of the many held-out rows, and the warp is
fitted to these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from card.crossfit import CrossFit
from card.model import Model, Predictor, padded
from card.noise import Schedule
from card.warp import Warp, quantiles

LARGE, MOST_WARPED = 2500, 10_000  # rows of a table that is warped, and those that calibrate it at most
SET_ASIDE, MOST_SET_ASIDE = 0.02, 250  # share and number of rows that no model of a warped table sees
SMALLEST_SHARE = 0.25  # of the residuals' variance that is kept, however unstable the folds are


@dataclass(frozen=True)
class Means:
    """A fitted mean model and what it says of the training rows."""

    predictor: Predictor
    by_repeat: np.ndarray  # (R, N, K), out of fold where cross-fitted
    fold: np.ndarray  # (N,), -1 for rows that no fold tests
    n_members: int
    spread: np.ndarray  # (K,) variance of one model around the average of many
    aside: np.ndarray  # (N,) whether a row is kept from all models, to see what averaging them does

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


def is_large(n: int) -> bool:
    """Whether a table of n rows is calibrated by those that are held out."""
    return n >= LARGE


def apart(means: Means, n: int) -> float:
    """What a denoiser keeps of its difference from the members' average.

    In small tables this is chance, and the doubt is told by the fold means, where there are any.
    """
    told = isinstance(means.predictor, CrossFit) and not is_large(n)
    return 0.0 if told else 1.0 / math.sqrt(max(1, means.n_members - 1))


def set_aside(n: int, groups: np.ndarray | None, seed: int) -> np.ndarray:
    """(n,) whether a row is kept from all models: a few at random, or all rows of a few groups."""
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = np.bincount(unit)
    order = np.random.default_rng(seed).permutation(len(count))
    few = np.cumsum(count[order]) <= min(MOST_SET_ASIDE, round(SET_ASIDE * n))
    return np.isin(unit, order[few])


def fit_warp(
    model: Model,
    x: np.ndarray,
    z: np.ndarray,
    means: Means,
    schedule: Schedule,
    n_nodes: int,
    seed: int,
) -> Warp | None:
    """From held-out rows of one target, a share of them where there are many; None where there are none."""
    rng = np.random.default_rng(seed)
    folds = [rng.permutation(np.flatnonzero(means.fold == m)) for m in range(means.n_members)]
    n = min(MOST_WARPED // means.n_members, *map(len, folds))
    if n == 0:
        return None
    own = np.stack([each[:n] for each in folds])
    q = quantiles(model.latents_alone(x[own], means.f[own], z[own], schedule, n_nodes))
    if means.aside.any():
        q *= _change(model, x[means.aside], z[means.aside], schedule, n_nodes)
    return Warp.through(q, own.size)


def _change(model: Model, x: np.ndarray, z: np.ndarray, schedule: Schedule, n_nodes: int) -> float:
    """How much larger the latents of rows set aside are at predict than as held-out rows are read."""
    by_fold = model.mean.predict(padded(x))[:, : len(x)]
    rows, means, responses = (
        np.repeat(a, model.n_members // len(a), axis=0) for a in (x[None], by_fold, z[None])
    )
    alone = model.latents_alone(rows, means, responses, schedule, n_nodes)
    together = model.latents_together(x, z, schedule, n_nodes)
    return _size(together) / max(_size(alone), 1e-12)


def _size(z: np.ndarray) -> float:
    """Root mean square, outliers cut."""
    return float(np.sqrt(np.mean(np.clip(z, -3.0, 3.0) ** 2)))
