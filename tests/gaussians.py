"""A distribution with a known answer and the face of the library's own: a mixture of two Gaussians a row."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm


class Parts(NamedTuple):
    aleatoric: np.ndarray
    epistemic: np.ndarray


class Gaussians:
    """Row i is N(centre_i - gap_i, scale_i^2) or N(centre_i + gap_i, scale_i^2), half and half."""

    def __init__(self, centre, scale, gap=0.0):
        self.centre, self.scale, self.gap = np.broadcast_arrays(*map(np.atleast_1d, (centre, scale, gap)))

    def __len__(self):
        return len(self.centre)

    def __getitem__(self, rows):
        return Gaussians(self.centre[rows], self.scale[rows], self.gap[rows])

    def mean(self):
        return self.centre.astype(float)

    def std(self):
        return np.sqrt(self.scale**2 + self.gap**2)

    def quantile(self, q):
        if np.ndim(q) == 0:
            return self.quantile([q])[:, 0]
        if not self.gap.any():
            return norm.ppf(np.asarray(q), self.centre[:, None], self.scale[:, None])
        return np.array([[self._root(i, level) for level in q] for i in range(len(self))])

    def _root(self, i, level):
        c, s, g = self.centre[i], self.scale[i], self.gap[i]
        reach = g + 12 * s
        return brentq(lambda t: self[i : i + 1].cdf(np.array([t]))[0] - level, c - reach, c + reach)

    def interval(self, coverage):
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def _mix(self, f, y):
        shape = (-1,) + (1,) * (np.ndim(y) - 1)
        c, s, g = (v.reshape(shape) for v in (self.centre, self.scale, self.gap))
        return (f(y, c - g, s) + f(y, c + g, s)) / 2

    def cdf(self, y):
        return self._mix(norm.cdf, y)

    def pdf(self, y):
        return self._mix(norm.pdf, y)

    def logpdf(self, y):
        return np.log(self.pdf(y))

    def sample(self, n_draws, random_state=None):
        rng = np.random.default_rng(random_state)
        side = rng.choice([-1, 1], (n_draws, len(self)))
        return rng.normal(self.centre + side * self.gap, self.scale)

    def decompose(self):
        return Parts(self.scale.astype(float) ** 2, self.gap.astype(float) ** 2)
