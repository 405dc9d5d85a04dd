"""Responses that are positive, whole numbers, ordinal levels or bounded: distributions that honour it."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from card.codec import Codec
from card.distribution import Curves, Distribution, Draws, Variance, check_n_draws, columns

LARGEST_LOG = 709.0  # of a float64


def limits(bounds: tuple[float | None, float | None] | None) -> tuple[float, float]:
    """Bounds as numbers, infinite where there is none."""
    try:
        low, high = bounds if bounds is not None else (None, None)
        return (-np.inf if low is None else float(low)), (np.inf if high is None else float(high))
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be (low, high), numbers or None, got {bounds!r}.") from None


def honour(inner: Distribution, codec: Codec, low: float, high: float) -> Distribution:
    """`inner`, in the values of the response and within its bounds."""
    bounded = np.isfinite(low) or np.isfinite(high)
    if codec.response == "real" and not bounded:
        return inner
    if isinstance(inner, Draws):
        draws = inner.draws if codec.response == "real" else mapped(inner, codec)._values(inner.draws)
        return Draws(draws_within(draws, low, high), inner.squeeze, inner.n_members)
    if codec.response != "real":
        inner = mapped(inner, codec)
    return Within(inner, low, high) if bounded else inner


def mapped(inner: Distribution, codec: Codec) -> Mapped:
    """From the line that a response was learned on, not `real`, to its values."""
    return Positive(inner) if codec.response == "positive" else OnGrid(inner, codec.levels)


class Wrapped(Distribution):
    """A distribution made from an inner one; moments by its quantiles, parts as the inner one's."""

    inner: Distribution

    def __len__(self) -> int:
        return len(self.inner)

    def _grid(self) -> np.ndarray:
        return self._quantiles((np.arange(500) + 0.5) / 500)

    def mean(self):
        return self._grid().mean(1)

    def decompose(self):
        total = self._grid().var(1)
        inner = self.inner.decompose()
        share = inner.epistemic / np.maximum(inner.aleatoric + inner.epistemic, 1e-300)
        return Variance(total * (1 - share), total * share)


class Within(Wrapped):
    """Another distribution, given that the response lies within bounds [low, high]."""

    def __init__(self, inner: Distribution, low: float, high: float) -> None:
        self.inner, self.low, self.high = inner, low, high
        self.step, self.support = inner.step, (max(low, inner.support[0]), min(high, inner.support[1]))

    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Inner P(Y < low) and P(Y <= high); where next to nothing lies between, what is beyond is kept."""
        n = len(self)
        under = np.nextafter(self.low, -np.inf)  # a value of the grid that is the bound belongs to the inside
        below = self.inner.cdf(np.full(n, under)) if np.isfinite(self.low) else np.zeros(n)
        above = self.inner.cdf(np.full(n, self.high)) if np.isfinite(self.high) else np.ones(n)
        lost = above - below < 1e-6
        return np.where(lost, 0.0, below), np.where(lost, 1.0, above)

    def __getitem__(self, rows) -> Within:
        return Within(self.inner[rows], self.low, self.high)

    def _at(self, u: np.ndarray) -> np.ndarray:
        below, above = self._edges()
        levels = below[:, None] + (above - below)[:, None] * u
        return np.clip(_row_quantiles(self.inner, levels), self.low, self.high)

    def _quantiles(self, q):
        return self._at(np.broadcast_to(q, (len(self), len(q))))

    def sample(self, n_draws, random_state=None):
        u = np.random.default_rng(random_state).random((len(self), check_n_draws(n_draws)))
        return self._at(u).T.copy()

    def cdf(self, y):
        values, shape = columns(y, len(self))
        below, above = self._edges()
        inside = (self.inner.cdf(values) - below[:, None]) / (above - below)[:, None]
        out = np.where(values >= self.high, 1.0, np.where(values < self.low, 0.0, np.clip(inside, 0.0, 1.0)))
        return out.reshape(shape)

    def logpdf(self, y):
        values, shape = columns(y, len(self))
        below, above = self._edges()
        inside = self.inner.logpdf(values) - np.log(above - below)[:, None]
        out = np.where((values < self.low) | (values > self.high), -np.inf, inside)
        return out.reshape(shape)


class Mapped(Wrapped):
    """What a function that never falls makes of the values of another distribution."""

    @abstractmethod
    def _values(self, inner: np.ndarray) -> np.ndarray:
        """The function."""

    def _quantiles(self, q):
        return self._values(self.inner._quantiles(q))

    def quantiles_by_row(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles at levels of each row's own: (N, m) -> (N, m)."""
        return self._values(_row_quantiles(self.inner, levels))

    def sample(self, n_draws, random_state=None):
        return self._values(self.inner.sample(n_draws, random_state))


class Positive(Mapped):
    """The response whose logarithm has the inner distribution."""

    def __init__(self, inner: Distribution) -> None:
        self.inner, self.support = inner, (0.0, np.inf)

    def __getitem__(self, rows) -> Positive:
        return Positive(self.inner[rows])

    def _values(self, inner):
        return np.exp(np.minimum(inner, LARGEST_LOG))

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each member: (M, N) each."""
        if isinstance(self.inner, Curves):
            return self.inner.exponential_moments()
        grid = self._grid()
        return grid.mean(1)[None], grid.var(1)[None]

    def mean(self):
        return self._moments()[0].mean(0)

    def decompose(self):
        mean, variance = self._moments()
        return Variance(variance.mean(0), mean.var(0))

    def cdf(self, y):
        log, never = self._logarithms(y)
        return np.where(never, 0.0, self.inner.cdf(log))

    def logpdf(self, y):
        log, never = self._logarithms(y)
        return np.where(never, -np.inf, self.inner.logpdf(log) - log)

    def _logarithms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log y, and whether y is none of the values."""
        y = np.asarray(y, dtype=np.float64)
        return np.log(np.where(y <= 0, 1.0, y)), y <= 0


class OnGrid(Mapped):
    """Whole numbers (levels None) or ordinal levels: cell k holds the inner mass of (k - 1/2, k + 1/2)."""

    def __init__(self, inner: Distribution, levels: np.ndarray | None = None) -> None:
        self.inner, self.levels = inner, levels
        if levels is None:
            self.step, self.support = 1.0, (0.0, np.inf)
        else:
            self.step = float(np.diff(levels).min(initial=np.inf)) if len(levels) > 1 else 1.0
            self.support = float(levels[0]), float(levels[-1])

    def __getitem__(self, rows) -> OnGrid:
        return OnGrid(self.inner[rows], self.levels)

    def _value(self, k: np.ndarray) -> np.ndarray:
        if self.levels is None:
            return np.maximum(k, 0.0)
        return self.levels[np.clip(k, 0, len(self.levels) - 1).astype(int)]

    def _cell(self, y: np.ndarray) -> np.ndarray:
        """The number of the last grid value at or below y."""
        if self.levels is None:
            return np.floor(y)
        return np.searchsorted(self.levels, y, side="right") - 1.0

    def _values(self, inner):
        return self._value(np.ceil(inner - 0.5))

    def cdf(self, y):
        values, shape = columns(y, len(self))
        cell = self._cell(values)
        top = np.inf if self.levels is None else len(self.levels) - 1
        out = np.where(cell < 0, 0.0, np.where(cell >= top, 1.0, self.inner.cdf(cell + 0.5)))
        return out.reshape(shape)

    def logpdf(self, y):
        """Log-probability of the grid value y; minus infinity off the grid."""
        values, shape = columns(y, len(self))
        cell = self._cell(values)
        on_grid = (cell >= 0) & (self._value(cell) == values)
        top = np.inf if self.levels is None else len(self.levels) - 1
        upper = np.where(cell >= top, 1.0, self.inner.cdf(cell + 0.5))
        lower = np.where(cell <= 0, 0.0, self.inner.cdf(cell - 0.5))
        with np.errstate(divide="ignore"):
            log = np.log(np.maximum(upper - lower, 1e-300))
        return np.where(on_grid, log, -np.inf).reshape(shape)


def _row_quantiles(inner: Distribution, levels: np.ndarray) -> np.ndarray:
    """Quantiles at levels of each row's own (N, m)."""
    levels = np.clip(levels, 1e-12, 1 - 1e-12)
    if isinstance(inner, Curves | Mapped):
        return inner.quantiles_by_row(levels)
    return np.stack([inner[i : i + 1]._quantiles(levels[i])[0] for i in range(len(inner))])


def draws_within(draws: np.ndarray, low: float, high: float) -> np.ndarray:
    """Draws (S, N, K) given that all targets lie within bounds: others give way to those of the row that do.

    Where a row has none that do, its draws go to the nearest bound.
    """
    good = ((draws >= low) & (draws <= high)).all(axis=2)  # (S, N)
    order = np.argsort(~good, axis=0, kind="stable")  # the good ones first
    n_good = np.maximum(good.sum(axis=0), 1)
    turn = np.cumsum(~good, axis=0) - 1
    pick = np.where(good, np.arange(len(draws))[:, None], np.take_along_axis(order, turn % n_good, axis=0))
    return np.clip(np.take_along_axis(draws, pick[:, :, None], axis=0), low, high)
