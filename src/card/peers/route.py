"""From what a peer predicts to a distribution: one route for all of them.

A peer predicts one of three things.

- *A closed form* (a Gaussian's mean and scale, a flow's density) is taken as it is. All scores are exact.
- *Quantiles* at levels t_1 < ... < t_m become a `QuantileGrid`: a quantile function through all of them. The
  quantiles at those levels, so QICE and PICP, are the peer's own; between and beyond them the law is
  ours, so CRPS is an approximation, close where the grid is fine, and NLL one that rests on the slopes
  between neighbours.
- *Draws* become `card.distribution.Draws`: quantiles and CRPS are those of the draws, exact up to their
  number; NLL is that of a Gaussian kernel of Silverman's width on them, which blurs what is narrower.

`QuantileGrid` works in normal scores z = Phi^-1(t). Its quantile function is a straight line in z between
neighbours, and goes on as a straight line beyond the last: density phi(z) / (dy/dz), tails of a Gaussian. A
Gaussian's quantiles therefore give that very Gaussian back, whatever the grid. Three things keep it a law:

- quantiles that cross are sorted, which only brings them nearer to the truth (Chernozhukov et al. 2010);
- no slope dy/dz is below `least`: ties are drawn apart, outwards from the median, so that no density is
  infinite. `resolution` takes a thousandth of the response's standard deviation. Where the response is a
  whole number (Wine) such a density says more about this floor than about the peer: judge by CRPS;
- a tail's slope is that of its outermost pair, or of the line from the median to the outermost quantile if
  that is steeper: a pair that happens to lie close makes no thin tail.

Mean and variance are those of this law, in closed form.

One thing more is done to the density alone. A peer whose quantiles are all equal has said nothing about the
few percent beyond them, and a thin tail there would put a surprise at thousands of nats. So of the density
that NLL reads, a thousandth part is the bell of all training responses (`background`): it still integrates
to one, costs a peer 0.001 nats where it is right, and bounds what a miss can cost at about 7 above that bell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from card.distribution import Distribution, Seed, Variance, check_levels, check_n_draws, columns

LEVELS = (0.025, *(round(0.05 * i, 2) for i in range(1, 20)), 0.975)
"""Asked of every peer that predicts quantiles: those that QICE and PICP read, and the halves between."""
SHARE = 1e-3  # of the density that is the background
LOG_ROOT = 0.5 * np.log(2 * np.pi)


def resolution(y: np.ndarray) -> float:
    """The least slope dy/dz of a law learned from responses y: a thousandth of their deviation."""
    y = np.asarray(y, dtype=np.float64)
    return max(1e-3 * float(np.std(y)), 1e-9 * float(np.abs(y).max()), 1e-300)


def bell(y: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of responses y, the latter never zero: a background."""
    return float(np.mean(y)), 1e3 * resolution(y)


class QuantileGrid(Distribution):
    """The law of each row through quantiles `values` (N, m) at increasing `levels` (m,).

    `least` is the smallest slope dy/dz, `background` the mean and deviation of the bell in the density.

    Examples
    --------
    >>> law = QuantileGrid([0.1, 0.5, 0.9], [[-1.2815516, 0.0, 1.2815516]], least=1e-3)
    >>> law.quantile(0.975).round(4), law.std().round(4)
    (array([1.96]), array([1.]))
    """

    def __init__(
        self,
        levels: Sequence[float] | np.ndarray,
        values: Sequence | np.ndarray,
        least: float,
        background: tuple[float, float] | None = None,
    ) -> None:
        self.levels, self.least, self.background = _checked(levels, least), least, background
        self.z = ndtri(self.levels)
        y = np.sort(np.asarray(values, dtype=np.float64), axis=1)
        if y.shape[1] != len(self.z):
            raise ValueError(f"values must have one column a level, {len(self.z)}; got {y.shape[1]}.")
        if not np.isfinite(y).all():
            raise ValueError("quantiles must be finite numbers; a row has one that is not.")
        middle = int(np.abs(self.levels - 0.5).argmin())
        self.y = _drawn_apart(self.z, y, least, middle)
        self.slopes = self._slopes(middle)

    def _slopes(self, middle: int) -> np.ndarray:
        """dy/dz of the lower tail, between neighbours, and of the upper tail: (N, m + 1)."""
        y, z = self.y, self.z
        inner = np.maximum(np.diff(y) / np.diff(z), self.least)  # dividing may round below it
        lower, upper = [
            (y[:, middle] - y[:, end]) / (z[middle] - z[end]) if end != middle else inner[:, edge]
            for end, edge in ((0, 0), (len(z) - 1, -1))
        ]
        lower, upper = np.maximum(lower, inner[:, 0]), np.maximum(upper, inner[:, -1])
        return np.column_stack([lower, inner, upper])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows) -> QuantileGrid:
        part = object.__new__(QuantileGrid)
        part.levels, part.least, part.z, part.background = self.levels, self.least, self.z, self.background
        part.y, part.slopes = self.y[rows], self.slopes[rows]
        return part

    def _at(self, z: np.ndarray) -> np.ndarray:
        """Responses at normal scores (N, k)."""
        piece = np.searchsorted(self.z, z, side="right")
        knot = np.maximum(piece - 1, 0)
        y, slope = (np.take_along_axis(a, i, axis=1) for a, i in ((self.y, knot), (self.slopes, piece)))
        return y + slope * (z - self.z[knot])

    def _scores(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normal scores of responses (N, k), and the slopes dy/dz there."""
        piece = sum((y >= knot[:, None]).astype(np.intp) for knot in self.y.T)
        knot = np.maximum(piece - 1, 0)
        start, slope = (np.take_along_axis(a, i, axis=1) for a, i in ((self.y, knot), (self.slopes, piece)))
        return self.z[knot] + (y - start) / slope, slope

    def _quantiles(self, q):
        return self._at(np.broadcast_to(ndtri(q), (len(self), len(q))))

    def cdf(self, y):
        values, shape = columns(y, len(self))
        return ndtr(self._scores(values)[0]).reshape(shape)

    def logpdf(self, y):
        values, shape = columns(y, len(self))
        z, slope = self._scores(values)
        log = _log_bell(z, slope)
        if self.background is not None:
            mean, scale = self.background
            behind = _log_bell((values - mean) / scale, scale)
            log = np.logaddexp(np.log1p(-SHARE) + log, np.log(SHARE) + behind)
        return log.reshape(shape)

    def _pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of each line y = a + b z: a (N, m + 1); then the integrals of 1, z, z^2 times phi over it."""
        edges = np.concatenate([[-np.inf], self.z, [np.inf]])
        phi = np.exp(-0.5 * edges**2 - LOG_ROOT)
        z_phi = np.concatenate([[0.0], self.z * phi[1:-1], [0.0]])
        knot = np.maximum(np.arange(len(self.z) + 1) - 1, 0)
        mass = np.diff(ndtr(edges))
        return self.y[:, knot] - self.slopes * self.z[knot], mass, -np.diff(phi), mass - np.diff(z_phi)

    def mean(self):
        a, mass, first, _ = self._pieces()
        return a @ mass + self.slopes @ first

    def decompose(self):
        a, mass, first, second = self._pieces()
        a = a - self.mean()[:, None]
        variance = a**2 @ mass + 2 * (a * self.slopes) @ first + self.slopes**2 @ second
        return Variance(variance, np.zeros_like(variance))

    def sample(self, n_draws, random_state: Seed = None):
        rng = np.random.default_rng(random_state)
        return self._at(rng.standard_normal((len(self), check_n_draws(n_draws)))).T.copy()


def _log_bell(z: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    return -0.5 * z**2 - LOG_ROOT - np.log(scale)


def _checked(levels: Sequence[float] | np.ndarray, least: float) -> np.ndarray:
    levels = check_levels(levels)
    if levels.ndim == 0 or len(levels) < 2 or (np.diff(levels) <= 0).any():
        raise ValueError(f"levels must be two or more, each above the one before; got {levels.tolist()}.")
    if not least > 0:
        raise ValueError(f"least must be above 0, got {least!r}: `resolution` gives one from responses.")
    return levels


def _drawn_apart(z: np.ndarray, y: np.ndarray, least: float, middle: int) -> np.ndarray:
    """Rows with slopes below `least` widened outwards from the middle; the others as they are."""
    steps, smallest = np.diff(y), least * np.diff(z)
    reach = np.cumsum(np.maximum(steps, smallest), axis=1)
    reach = np.column_stack([np.zeros(len(y)), reach])
    widened = y[:, [middle]] + reach - reach[:, [middle]]
    return np.where((steps < smallest).any(axis=1, keepdims=True), widened, y)


__all__ = ["LEVELS", "QuantileGrid", "bell", "resolution"]
