"""Mixtures of Gaussians as predicted distributions: what ensembles and mixture networks predict.

With weights w_c, means m_c and scales s_c a row has the CDF F(y) = sum_c w_c Phi((y - m_c) / s_c). Its
q-quantile lies between the least and the greatest of the components' own q-quantiles, so it is found
by Newton's steps on F, kept within that bracket by bisection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from card.distribution import Distribution, Variance, check_n_draws, columns

STEPS = 100
BLOCK = 2_000_000  # numbers worked on at a time, so that memory stays bounded
LOG_ROOT = 0.5 * np.log(2 * np.pi)


@dataclass
class GaussianMixture(Distribution):
    """A mixture of C Gaussians for each row; weights, means and scales are (N, C).

    `members` says that components are members of an ensemble, whose disagreement is epistemic; else
    they are parts of one law, and all of the variance is aleatoric.
    """

    weights: np.ndarray
    means: np.ndarray
    scales: np.ndarray
    members: bool = True

    def __post_init__(self) -> None:
        self.means = np.asarray(self.means, dtype=np.float64)
        self.scales = np.broadcast_to(np.asarray(self.scales, dtype=np.float64), self.means.shape)
        weights = np.broadcast_to(np.asarray(self.weights, dtype=np.float64), self.means.shape)
        self.weights = weights / weights.sum(1, keepdims=True)

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows) -> GaussianMixture:
        return GaussianMixture(self.weights[rows], self.means[rows], self.scales[rows], self.members)

    def mean(self):
        return (self.weights * self.means).sum(1)

    def decompose(self):
        within = (self.weights * self.scales**2).sum(1)
        between = (self.weights * (self.means - self.mean()[:, None]) ** 2).sum(1)
        return Variance(within, between) if self.members else Variance(within + between, 0.0 * between)

    def _blocks(self, width: int) -> list[slice]:
        size = max(1, BLOCK // max(1, width * self.means.shape[1]))
        return [slice(i, i + size) for i in range(0, max(len(self), 1), size)]

    def _standardised(self, y: np.ndarray) -> np.ndarray:
        """(N, m) -> (N, m, C)."""
        return (y[:, :, None] - self.means[:, None]) / self.scales[:, None]

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return (self.weights[:, None] * ndtr(self._standardised(y))).sum(-1)

    def _pdf(self, y: np.ndarray) -> np.ndarray:
        density = np.exp(-0.5 * self._standardised(y) ** 2 - LOG_ROOT)
        return ((self.weights / self.scales)[:, None] * density).sum(-1)

    def _logpdf(self, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            kernel = np.log(self.weights) - np.log(self.scales) - LOG_ROOT
        return logsumexp(kernel[:, None] - 0.5 * self._standardised(y) ** 2, axis=-1)

    def cdf(self, y):
        values, shape = columns(y, len(self))
        blocks = self._blocks(values.shape[1])
        return np.concatenate([self[b]._cdf(values[b]) for b in blocks]).reshape(shape)

    def logpdf(self, y):
        values, shape = columns(y, len(self))
        blocks = self._blocks(values.shape[1])
        return np.concatenate([self[b]._logpdf(values[b]) for b in blocks]).reshape(shape)

    def _quantiles(self, q):
        return np.concatenate([self[b]._inverse(q) for b in self._blocks(len(q))])

    def _inverse(self, q: np.ndarray) -> np.ndarray:
        """Quantiles (N, m) at levels (m,)."""
        own = self.means[:, None] + self.scales[:, None] * ndtri(q)[:, None]
        used = np.broadcast_to((self.weights > 0)[:, None], own.shape)
        low = own.min(-1, where=used, initial=np.inf)
        high = own.max(-1, where=used, initial=-np.inf)
        y = 0.5 * (low + high)
        for _ in range(STEPS):
            excess = self._cdf(y) - q
            low, high = np.where(excess <= 0, y, low), np.where(excess >= 0, y, high)
            step = y - excess / np.maximum(self._pdf(y), 1e-300)
            new = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            moved = np.abs(new - y) / self.scales.min(1, keepdims=True)
            y = new
            if (moved < 1e-10).all():
                break
        return y

    def sample(self, n_draws, random_state=None):
        rng = np.random.default_rng(random_state)
        shape = (check_n_draws(n_draws), len(self))
        edges = np.cumsum(self.weights, axis=1)[:, :-1]
        picks = (rng.random(shape)[..., None] > edges).sum(-1)
        rows = np.arange(len(self))
        return self.means[rows, picks] + self.scales[rows, picks] * rng.standard_normal(shape)


__all__ = ["GaussianMixture"]
