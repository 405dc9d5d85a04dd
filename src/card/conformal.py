"""Intervals whose coverage can be promised, whatever the model: conformal prediction.

The score of a row is how far out its response lies in its own predicted distribution, s = |z(y)| where
z = Phi^-1(F(y|x)); the interval at score s is all y with |z(y)| <= s. On a grid, F jumps at y from F(y-) to
F(y), and the least s whose interval holds y takes the place of |z|.

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


SLACK = 1e-6  # by which intervals are wider than their score, so that rounding leaves no tied row outside


def scores(distribution: Distribution, y: np.ndarray) -> np.ndarray:
    """The least score at which the interval of a row holds y, for each row (N,): |z(y)| for a continuum.

    On a grid y is held from the side of its cell that is nearer to the median.
    """
    upper = ndtri(np.clip(distribution.cdf(np.nextafter(y, -np.inf)), 1e-300, 1.0))
    lower = -ndtri(np.clip(distribution.cdf(y), 1e-300, 1.0))
    near = np.maximum(np.maximum(upper, lower), 0.0)
    below, above, unit_below, unit_above = _tails(distribution)
    far = np.where(y < below, (below - y) / unit_below, (y - above) / unit_above)
    return np.where((y < below) | (y > above), FAR + far, np.minimum(near, FAR))


def ends_at(distribution: Distribution, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals at scores (m,): two arrays (N, m); at an infinite score those of the support."""
    near = np.minimum(score, FAR)
    values = distribution.quantile(np.concatenate([ndtr(-near), ndtr(near)]).clip(1e-15, 1 - 1e-15))
    lower, upper = np.split(values, 2, axis=1)
    below, above, unit_below, unit_above = (each[:, None] for each in _tails(distribution))
    lower = np.where(score > FAR, below - (score - FAR) * unit_below, lower)
    upper = np.where(score > FAR, above + (score - FAR) * unit_above, upper)
    return np.clip(lower, *distribution.support), np.clip(upper, *distribution.support)


def _tails(distribution: Distribution) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where the tails begin, below and above, and how far they go for one more in the score: (N,) each."""
    ends = distribution.quantile([ndtr(-FAR), ndtr(1 - FAR), ndtr(FAR - 1), ndtr(FAR)])
    below, above = ends[:, 0], ends[:, 3]
    least = np.maximum(1e-3 * (above - below), 1e-9 * np.abs(ends).max(axis=1))
    least = np.maximum(least, max(distribution.step, 1e-300))
    return below, above, np.maximum(ends[:, 1] - below, least), np.maximum(above - ends[:, 2], least)


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
        return np.concatenate(ends_at(self.inner, np.array([score]) * (1 + SLACK) + SLACK), axis=1)


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
        ends = [
            ends_at(member, score[:, 0] * (1 + SLACK) + SLACK)
            for member, score in zip(self.members, self.scores, strict=True)
        ]
        lower, upper = (np.concatenate(part, axis=1) for part in zip(*ends, strict=True))
        weight = np.concatenate([score[:, 1] for score in self.scores])
        n = weight.sum()
        count = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)
        low, high = -_weighted_rank(-lower, weight, count), _weighted_rank(upper, weight, count)
        crossed = low > high  # where next to no coverage is asked for
        middle = 0.5 * (np.where(crossed, low, 0.0) + np.where(crossed, high, 0.0))
        low, high = np.where(crossed, middle, low), np.where(crossed, middle, high)
        return np.clip(np.column_stack([low, high]), *self.inner.support)


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
