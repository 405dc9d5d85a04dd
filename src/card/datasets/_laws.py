"""Conditional laws p(y | x) with known answers: what a perfect model of a toy would predict.

Shapes are those of a predicted distribution: x is (n,) or (n, 1); y is a number, (n,) or (n, m), and so is
the answer; one level q gives (n,), a list of m levels (n, m). Normal, log-normal and mixture are closed
forms; `Tabulated` integrates a density on a grid, to about 1e-5.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.special import logsumexp, ndtr, ndtri, softmax

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]
LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)


def pair(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """x as a column or row that broadcasts against y."""
    x, y = np.asarray(x, float).ravel(), np.asarray(y, float)
    return (x[:, None] if y.ndim == 2 else x), y


def levels(x: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    """As `pair`, with a list of levels taken to be common to all rows."""
    q = np.asarray(q, float)
    return pair(x, q[None, :] if q.ndim == 1 else q)


class Law(ABC):
    """A conditional distribution of y given x."""

    @abstractmethod
    def mean(self, x: ArrayLike) -> Floats: ...

    @abstractmethod
    def cdf(self, x: ArrayLike, y: ArrayLike) -> Floats: ...

    @abstractmethod
    def logpdf(self, x: ArrayLike, y: ArrayLike) -> Floats: ...

    @abstractmethod
    def quantile(self, x: ArrayLike, q: ArrayLike) -> Floats: ...

    def median(self, x: ArrayLike) -> Floats:
        return self.quantile(x, 0.5)

    def noiseless(self, x: ArrayLike) -> Floats | None:
        """The generating function without its noise; None where y is no function of x."""
        return None


@dataclass(frozen=True)
class Normal(Law):
    """y = curve(x) + sd * noise."""

    curve: Curve
    sd: float

    def mean(self, x: ArrayLike) -> Floats:
        return self.curve(np.asarray(x, float).ravel())

    def noiseless(self, x: ArrayLike) -> Floats:
        return self.mean(x)

    def _z(self, x: ArrayLike, y: ArrayLike) -> Floats:
        x, y = pair(x, y)
        return (y - self.curve(x)) / self.sd

    def cdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        return ndtr(self._z(x, y))

    def logpdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        return -0.5 * self._z(x, y) ** 2 - LOG_SQRT_2PI - np.log(self.sd)

    def quantile(self, x: ArrayLike, q: ArrayLike) -> Floats:
        x, q = levels(x, q)
        return self.curve(x) + self.sd * ndtri(q)


@dataclass(frozen=True)
class LogNormal(Law):
    """log y = curve(x) + sd * noise; the noiseless function exp(curve) is the median, below the mean."""

    curve: Curve
    sd: float

    @property
    def _log(self) -> Normal:
        return Normal(self.curve, self.sd)

    def mean(self, x: ArrayLike) -> Floats:
        return np.exp(self._log.mean(x) + self.sd**2 / 2)

    def noiseless(self, x: ArrayLike) -> Floats:
        return np.exp(self._log.mean(x))

    def cdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        with np.errstate(divide="ignore"):
            return self._log.cdf(x, np.log(np.maximum(y, 0)))

    def logpdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        y = np.asarray(y, float)
        log_y = np.log(np.where(y > 0, y, 1.0))
        return np.where(y > 0, self._log.logpdf(x, log_y) - log_y, -np.inf)

    def quantile(self, x: ArrayLike, q: ArrayLike) -> Floats:
        return np.exp(self._log.quantile(x, q))


@dataclass(frozen=True)
class Modes(Law):
    """(x, y) is one of K points, equally likely, plus sd * noise in both coordinates.

    Given x, y is a mixture of N(y_k, sd^2) with weights proportional to the density of x under mode k.
    """

    points: Floats  # (K, 2)
    sd: float

    def _log_weights(self, x: Floats) -> Floats:
        return -0.5 * ((x[..., None] - self.points[:, 0]) / self.sd) ** 2

    def mean(self, x: ArrayLike) -> Floats:
        x = np.asarray(x, float).ravel()
        return softmax(self._log_weights(x), axis=-1) @ self.points[:, 1]

    def _z(self, y: Floats) -> Floats:
        return (y[..., None] - self.points[:, 1]) / self.sd

    def cdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        x, y = pair(x, y)
        return (softmax(self._log_weights(x), axis=-1) * ndtr(self._z(y))).sum(axis=-1)

    def logpdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        x, y = pair(x, y)
        log_weights = self._log_weights(x)
        joint = logsumexp(log_weights - 0.5 * self._z(y) ** 2, axis=-1)
        return joint - logsumexp(log_weights, axis=-1) - LOG_SQRT_2PI - np.log(self.sd)

    def quantile(self, x: ArrayLike, q: ArrayLike) -> Floats:
        """By bisection: the CDF has no closed inverse."""
        x, q = np.broadcast_arrays(*levels(x, q))
        reach = np.abs(self.points[:, 1]).max() + 9 * self.sd
        low, high = np.full(q.shape, -reach), np.full(q.shape, reach)
        flat_x = x if q.ndim == 1 else x[:, 0]
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(flat_x, middle) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


@dataclass(frozen=True)
class Tabulated(Law):
    """p(y | x) proportional to exp(log_density(x, y)) for y between low and high."""

    log_density: Callable[[Floats, Floats], Floats]
    low: float
    high: float
    n_nodes: int = 4001

    @property
    def grid(self) -> Floats:
        return np.linspace(self.low, self.high, self.n_nodes)

    def _density(self, x: float) -> tuple[Floats, Floats, float]:
        """One row's density and CDF on the grid, and the log of its normaliser."""
        log_density = self.log_density(np.asarray(x), self.grid)
        peak = log_density.max()
        cumulative = cumulative_trapezoid(np.exp(log_density - peak), self.grid, initial=0)
        total = cumulative[-1]
        return np.exp(log_density - peak) / total, cumulative / total, float(peak + np.log(total))

    def _rows(self, x: ArrayLike, y: ArrayLike, answer: Callable[[float, Floats], Floats]) -> Floats:
        x, y = pair(x, y)
        rows = np.broadcast_to(y, (x.size, *y.shape[1:]))
        return np.array([answer(float(one), row) for one, row in zip(x.ravel(), rows, strict=True)])

    def mean(self, x: ArrayLike) -> Floats:
        def answer(one: float, _: Floats) -> Floats:
            return np.asarray(np.trapezoid(self.grid * self._density(one)[0], self.grid))

        return self._rows(x, 0.0, answer)

    def cdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        return self._rows(x, y, lambda one, row: np.interp(row, self.grid, self._density(one)[1]))

    def logpdf(self, x: ArrayLike, y: ArrayLike) -> Floats:
        def answer(one: float, row: Floats) -> Floats:
            inside = (row >= self.low) & (row <= self.high)
            return np.where(inside, self.log_density(np.asarray(one), row) - self._density(one)[2], -np.inf)

        return self._rows(x, y, answer)

    def quantile(self, x: ArrayLike, q: ArrayLike) -> Floats:
        x, q = levels(x, q)
        return self._rows(x, q, lambda one, row: np.interp(row, self._density(one)[1], self.grid))
