"""Intervals whose coverage can be promised, whatever the model: conformal prediction.

The score of a row is how far out its response lies in its own predicted distribution, s = |z(y)| where
z = Phi^-1(F(y|x)); the interval at score s is all y with |z(y)| <= s.

`split`: n rows that no fitting step saw give scores s_1..s_n. A new row's score is as likely to have any
rank among them, so the interval at the ceil((n + 1)(1 - alpha))-th smallest covers with probability
>= 1 - alpha.

`cv+`: each training row is scored by the fold member that did not see it. For a new row, member k turns
the scores of fold k into intervals; the alpha-quantile of all lower ends and the (1 - alpha)-quantile of
all upper ends cover with probability >= 1 - 2 alpha (Barber et al. 2021), in practice close to 1 - alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from card.distribution import Distribution, Variance, check_coverage

FAR = 5.0  # beyond this many standard deviations z(y) goes on in a straight line
MOST_SCORES = 400  # kept per fold for cv+, so that predicting does not grow with the training set


def scores(distribution: Distribution, y: np.ndarray) -> np.ndarray:
    """|z(y)| for each row (N,)."""
    z = ndtri(np.clip(distribution.cdf(y), 1e-300, 1.0))
    ends = distribution.quantile([ndtr(-FAR), ndtr(1 - FAR), ndtr(FAR - 1), ndtr(FAR)])
    below, above = ends[:, 0], ends[:, 3]
    unit_below = np.maximum(ends[:, 1] - below, 1e-300)
    unit_above = np.maximum(above - ends[:, 2], 1e-300)
    z = np.where(y < below, -FAR - (below - y) / unit_below, z)
    z = np.where(y > above, FAR + (y - above) / unit_above, z)
    return np.abs(z)


def ends_at(distribution: Distribution, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals at scores (m,): two arrays (N, m), infinite where a score is."""
    near = np.minimum(score, FAR)
    extra = score - near
    ends = distribution.quantile([ndtr(-FAR), ndtr(1 - FAR), ndtr(FAR - 1), ndtr(FAR)])
    values = distribution.quantile(np.concatenate([ndtr(-near), ndtr(near)]).clip(1e-15, 1 - 1e-15))
    lower, upper = np.split(values, 2, axis=1)
    far = extra > 0
    with np.errstate(invalid="ignore"):
        lower = np.where(far, ends[:, :1] - extra * (ends[:, 1:2] - ends[:, :1]), lower)
        upper = np.where(far, ends[:, 3:] + extra * (ends[:, 3:] - ends[:, 2:3]), upper)
    return lower, upper


class Calibrated(Distribution):
    """A distribution whose `interval` keeps a promise; all else is the model's own."""

    inner: Distribution

    def __len__(self) -> int:
        return len(self.inner)

    def mean(self) -> np.ndarray:
        return self.inner.mean()

    def decompose(self) -> Variance:
        return self.inner.decompose()

    def _quantiles(self, q):
        return self.inner._quantiles(q)

    def sample(self, n_draws, random_state=None):
        return self.inner.sample(n_draws, random_state)

    def cdf(self, y):
        return self.inner.cdf(y)

    def logpdf(self, y):
        return self.inner.logpdf(y)


@dataclass
class SplitCalibrated(Calibrated):
    """Intervals at the rank of sorted scores of held-out rows."""

    inner: Distribution
    scores: np.ndarray  # (n,), sorted

    def __getitem__(self, rows) -> SplitCalibrated:
        return SplitCalibrated(self.inner[rows], self.scores)

    def interval(self, coverage: float = 0.95) -> np.ndarray:
        rank = math.ceil((len(self.scores) + 1) * check_coverage(coverage) - 1e-9)
        score = self.scores[rank - 1] if rank <= len(self.scores) else np.inf
        return np.concatenate(ends_at(self.inner, np.array([score])), axis=1)


@dataclass
class CrossCalibrated(Calibrated):
    """CV+: members' intervals at the scores of their own folds."""

    inner: Distribution
    members: list[Distribution]
    scores: list[np.ndarray]  # (m, 2) a member: scores, and how many rows each stands for

    def __getitem__(self, rows) -> CrossCalibrated:
        return CrossCalibrated(self.inner[rows], [m[rows] for m in self.members], self.scores)

    def interval(self, coverage: float = 0.95) -> np.ndarray:
        alpha = 1.0 - check_coverage(coverage)
        ends = [ends_at(member, score[:, 0]) for member, score in zip(self.members, self.scores, strict=True)]
        lower, upper = (np.concatenate(part, axis=1) for part in zip(*ends, strict=True))
        weight = np.concatenate([score[:, 1] for score in self.scores])
        n = weight.sum()
        count = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)
        return np.column_stack([-_weighted_rank(-lower, weight, count), _weighted_rank(upper, weight, count)])


def _weighted_rank(values: np.ndarray, weight: np.ndarray, count: float) -> np.ndarray:
    """Per row, the smallest value at or below which values of total weight `count` lie; infinite if none."""
    order = values.argsort(axis=1)
    total = np.cumsum(weight[order], axis=1)
    place = (total < count - 1e-9).sum(axis=1)
    padded = np.column_stack([np.take_along_axis(values, order, axis=1), np.full(len(values), np.inf)])
    return padded[np.arange(len(values)), place]


def thinned(score: np.ndarray) -> np.ndarray:
    """(m, 2): at most MOST_SCORES of the scores, and how many each stands for; none is understated."""
    parts = np.array_split(np.sort(score), min(len(score), MOST_SCORES))
    return np.array([(part[-1], len(part)) for part in parts]).reshape(-1, 2)
