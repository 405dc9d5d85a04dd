"""What a prediction is: a distribution for each row, in the user's units.

Every `predict*` of the estimators starts from one of these. Arrays have rows first, then quantiles
or evaluation points, then targets (the last axis is dropped for a response given as one column).

`Curves` holds exact distributions of one target (see `card.flow`), `Draws` what is known from draws,
`Gaussian` a bell around a mean. For responses that are positive, on a grid or bounded see `card.responses`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp, ndtr, ndtri
from torch import Tensor

from card.flow import Curve

Seed = int | np.random.Generator | None


class Variance(NamedTuple):
    """The two parts of a predicted variance; they sum to std() ** 2."""

    aleatoric: np.ndarray  # noise in the response: more data would not remove it
    epistemic: np.ndarray  # disagreement between members: more data would


def check_levels(q: float | Sequence[float] | np.ndarray) -> np.ndarray:
    """Quantile levels as an array, all strictly between 0 and 1."""
    levels = np.asarray(q, dtype=np.float64)
    if levels.ndim > 1 or levels.size == 0:
        raise ValueError(f"Quantile levels must be a number or a list of numbers, got shape {levels.shape}.")
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"Quantile levels must lie strictly between 0 and 1, got {levels.tolist()}.")
    return levels


def check_coverage(coverage: float) -> float:
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage}: 0.9 means 90 %.")
    return float(coverage)


def check_n_draws(n_draws: int, at_least: int = 1) -> int:
    if not isinstance(n_draws, (int, np.integer)) or isinstance(n_draws, bool) or n_draws < at_least:
        raise ValueError(f"n_draws must be a whole number of {at_least} or more, got {n_draws!r}.")
    return int(n_draws)


class Distribution(ABC):
    """Predicted distributions of N rows."""

    step: float = 0.0
    """Distance of neighbouring values; 0 for a continuum."""
    support: tuple[float, float] = (-np.inf, np.inf)
    """Between which all values lie."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows) -> Distribution:
        """The distributions of some rows: a slice, an index array or a mask."""

    @abstractmethod
    def mean(self) -> np.ndarray: ...

    @abstractmethod
    def decompose(self) -> Variance:
        """Aleatoric and epistemic parts of the variance."""

    @abstractmethod
    def _quantiles(self, q: np.ndarray) -> np.ndarray:
        """(N, m[, K]) at levels q (m,)."""

    @abstractmethod
    def sample(self, n_draws: int, random_state: Seed = None) -> np.ndarray:
        """Independent draws, (n_draws, N[, K])."""

    @abstractmethod
    def cdf(self, y: np.ndarray) -> np.ndarray:
        """P(Y <= y) for y (N,) or (N, m); with several targets y ends in K, each target by itself."""

    @abstractmethod
    def logpdf(self, y: np.ndarray) -> np.ndarray:
        """Log-density at y (N,) or (N, m); with several targets, y (N, K), of the whole vector: (N,)."""

    def pdf(self, y: np.ndarray) -> np.ndarray:
        """Density at y."""
        return np.exp(self.logpdf(y))

    def std(self) -> np.ndarray:
        parts = self.decompose()
        return np.sqrt(parts.aleatoric + parts.epistemic)

    def quantile(self, q: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """Quantiles: (N[, K]) for one level, (N, m[, K]) for a list of m."""
        levels = check_levels(q)
        values = self._quantiles(np.atleast_1d(levels))
        return values[:, 0] if levels.ndim == 0 else values

    def interval(self, coverage: float = 0.95) -> np.ndarray:
        """Central intervals, (N, 2[, K])."""
        tail = (1.0 - check_coverage(coverage)) / 2.0
        return self._quantiles(np.array([tail, 1.0 - tail]))


def columns(y: np.ndarray, n_rows: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Values to evaluate at as (N, m), and the shape to give back."""
    y = np.asarray(y, dtype=np.float64)
    if y.ndim == 0:
        y = np.full(n_rows, y)
    if y.ndim > 2 or len(y) != n_rows:
        raise ValueError(
            f"y must have shape ({n_rows},) or ({n_rows}, m), one row a prediction; got {y.shape}."
        )
    return y.reshape(n_rows, -1), y.shape


class Curves(Distribution):
    """Exact distributions of one target; a mixture of members."""

    ROWS = 256  # worked on at a time, so that arrays stay in the cache and memory is bounded

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self._moments: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.curve)

    def __getitem__(self, rows) -> Curves:
        return Curves(self.curve.rows(rows))

    def _by_block(self, function, *arrays: np.ndarray, width: int = 1) -> np.ndarray:
        size = max(1, self.ROWS * 16 // max(16, width))
        blocks = [slice(i, i + size) for i in range(0, max(len(self), 1), size)]
        out = [function(self.curve.rows(b), *(torch.from_numpy(a[b]) for a in arrays)) for b in blocks]
        return torch.cat(out).numpy()

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each member: (M, N) each."""
        if self._moments is None:
            self._moments = self._pairs(Curve.moments)
        return self._moments

    def exponential_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of exp(Y), for each member: (M, N) each."""
        return self._pairs(Curve.exponential_moments)

    def _pairs(self, function: Callable[[Curve], tuple[Tensor, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
        both = self._by_block(lambda curve: torch.stack(function(curve)).permute(2, 0, 1))
        return both[:, 0].T, both[:, 1].T

    def mean(self):
        return self.moments()[0].mean(0)

    def decompose(self):
        mean, variance = self.moments()
        return Variance(variance.mean(0), mean.var(0))

    def quantiles_by_row(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles at levels of each row's own: (N, m) -> (N, m)."""
        return self._by_block(lambda curve, u: curve.quantile(u), levels, width=levels.shape[1])

    def _quantiles(self, q):
        return self.quantiles_by_row(np.broadcast_to(q, (len(self), len(q))).copy())

    def sample(self, n_draws, random_state=None):
        n_draws = check_n_draws(n_draws)
        rng = np.random.default_rng(random_state)
        noise = rng.random((len(self), 2, n_draws))
        strata = noise[:, 0].argsort(axis=1)
        u = np.clip((strata + noise[:, 1]) / n_draws, 1e-12, 1 - 1e-12)
        return self.quantiles_by_row(u).T.copy()

    def _evaluate(self, function, y):
        values, shape = columns(y, len(self))
        finite = np.nan_to_num(values, nan=0.0, posinf=1e300, neginf=-1e300)
        out = self._by_block(function, finite, width=values.shape[1])
        return np.where(np.isnan(values), np.nan, out).reshape(shape)

    def cdf(self, y):
        return self._evaluate(lambda curve, v: curve.cdf(v), y)

    def logpdf(self, y):
        return self._evaluate(lambda curve, v: curve.logpdf(v), y)


@dataclass
class OneColumn(Distribution):
    """Distributions of one target whose responses came as a table of one column: a last axis of length 1."""

    inner: Distribution

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows) -> OneColumn:
        return OneColumn(self.inner[rows])

    def mean(self):
        return self.inner.mean()[..., None]

    def decompose(self):
        aleatoric, epistemic = self.inner.decompose()
        return Variance(aleatoric[..., None], epistemic[..., None])

    def _quantiles(self, q):
        return self.inner._quantiles(q)[..., None]

    def interval(self, coverage: float = 0.95) -> np.ndarray:
        return self.inner.interval(coverage)[..., None]

    def sample(self, n_draws, random_state=None):
        return self.inner.sample(n_draws, random_state)[..., None]

    def cdf(self, y):
        y = np.asarray(y)
        return self.inner.cdf(y[..., 0])[..., None] if y.ndim == 3 else self.inner.cdf(y)

    def logpdf(self, y):
        y = np.asarray(y)
        return self.inner.logpdf(y[..., 0] if y.ndim == 3 else y)


class Draws(Distribution):
    """Distributions known from draws (S, N, K); densities by a Gaussian kernel on them.

    `n_members` says that draw s is of member s mod n_members. `squeeze` drops the target axis.
    """

    def __init__(self, draws: np.ndarray, squeeze: bool, n_members: int = 1) -> None:
        self.draws, self.squeeze, self.n_members = draws, squeeze, n_members

    def __len__(self) -> int:
        return self.draws.shape[1]

    def __getitem__(self, rows) -> Draws:
        return Draws(self.draws[:, rows], self.squeeze, self.n_members)

    def marginal(self, target: int) -> Draws:
        """The distributions of one target by itself, as those of a response of one column."""
        return Draws(self.draws[:, :, [target]], True, self.n_members)

    def _out(self, array: np.ndarray) -> np.ndarray:
        return array[..., 0] if self.squeeze else array

    def mean(self):
        return self._out(self.draws.mean(0))

    def decompose(self):
        members = [self.draws[m :: self.n_members] for m in range(self.n_members)]
        within = np.mean([d.var(0) for d in members], axis=0)
        between = np.var([d.mean(0) for d in members], axis=0)
        return Variance(self._out(within), self._out(between))

    def _quantiles(self, q):
        return self._out(np.moveaxis(np.quantile(self.draws, q, axis=0), 0, 1))

    def sample(self, n_draws, random_state=None):
        picks = np.random.default_rng(random_state).integers(
            len(self.draws), size=(check_n_draws(n_draws), len(self))
        )
        return self._out(self.draws[picks, np.arange(len(self))])

    def _target_values(self, y: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
        """y as (N, m, K), and the shape to give back for a function of each target."""
        if self.squeeze:
            values, shape = columns(y, len(self))
            return values[..., None], shape
        y = np.asarray(y, dtype=np.float64)
        n_targets = self.draws.shape[2]
        if y.ndim not in (2, 3) or len(y) != len(self) or y.shape[-1] != n_targets:
            raise ValueError(
                f"y must have shape ({len(self)}, [m,] {n_targets}), one row a prediction; got {y.shape}."
            )
        return y.reshape(len(self), -1, n_targets), y.shape

    def cdf(self, y):
        values, shape = self._target_values(y)
        return np.stack(
            [(self.draws[:, :, None][:, i] <= values[i]).mean(0) for i in range(len(self))]
        ).reshape(shape)

    def logpdf(self, y):
        values, shape = self._target_values(y)
        n_draws, _, n_targets = self.draws.shape
        bandwidth = np.maximum(self._bandwidth(), 1e-300)  # (N, K)
        kernel = np.log(bandwidth).sum(-1) + n_targets * 0.5 * np.log(2 * np.pi) + np.log(n_draws)
        out = np.empty(values.shape[:2])
        for i in range(len(self)):
            u = (values[i][None] - self.draws[:, i][:, None]) / bandwidth[i]
            out[i] = logsumexp(-0.5 * (u**2).sum(-1), axis=0) - kernel[i]
        return out.reshape(shape if self.squeeze else shape[:-1])

    def _bandwidth(self) -> np.ndarray:
        """Silverman's rule, by the smaller of standard deviation and inter-quartile range."""
        n_draws, _, n_targets = self.draws.shape
        low, high = np.quantile(self.draws, [0.25, 0.75], axis=0)
        std, iqr = self.draws.std(0), (high - low) / 1.349
        spread = np.where(iqr > 0, np.minimum(std, iqr), std)
        floor = 1e-9 * np.maximum(np.abs(self.draws).max(0), 1e-9)
        factor = (4.0 / ((n_targets + 2) * n_draws)) ** (1.0 / (n_targets + 4))
        return np.maximum(spread, floor) * factor


@dataclass
class Gaussian(Distribution):
    """N(location, scale^2) for each row: location (N,) or (N, K), scale broadcast to it."""

    location: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        self.scale = np.broadcast_to(self.scale, self.location.shape)

    def __len__(self) -> int:
        return len(self.location)

    def __getitem__(self, rows) -> Gaussian:
        return Gaussian(self.location[rows], self.scale[rows])

    def mean(self):
        return self.location

    def decompose(self):
        return Variance(self.scale**2, np.zeros_like(self.location))

    def _quantiles(self, q):
        z = ndtri(q).reshape(1, -1, *[1] * (self.location.ndim - 1))
        return self.location[:, None] + self.scale[:, None] * z

    def sample(self, n_draws, random_state=None):
        noise = np.random.default_rng(random_state).standard_normal(
            (check_n_draws(n_draws), *self.location.shape)
        )
        return self.location + self.scale * noise

    def _standardise(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.asarray(y, dtype=np.float64)
        location, scale = self.location, self.scale
        if y.ndim == location.ndim + 1:
            location, scale = location[:, None], scale[:, None]
        return (y - location) / scale, scale

    def cdf(self, y):
        return ndtr(self._standardise(y)[0])

    def logpdf(self, y):
        u, scale = self._standardise(y)
        log = -0.5 * u**2 - 0.5 * np.log(2 * np.pi) - np.log(scale)
        return log.sum(-1) if self.location.ndim == 2 else log


__all__ = ["Curves", "Distribution", "Draws", "Gaussian", "OneColumn", "Variance"]
