"""Peers that predict quantiles: a forest that keeps its leaves' responses, boosting a level at a time,
and intervals around gradient boosting. What becomes of quantiles is told in `card.peers.route`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from card.peers.base import Peer, held_out, need
from card.peers.route import LEVELS, QuantileGrid, bell, resolution

MANY_ROWS = 10_000  # from here on scikit-learn advises its boosting on histograms


class QuantilePeer(Peer):
    """A peer that predicts quantiles at `LEVELS`."""

    resolution_: float
    background_: tuple[float, float]

    @abstractmethod
    def _values(self, X: np.ndarray) -> np.ndarray:
        """Quantiles (N, m) at `LEVELS`."""

    def fit(self, X: Any, y: Any) -> QuantilePeer:
        """Learn from rows X (N, D) and responses y (N,)."""
        super().fit(X, y)
        self.resolution_, self.background_ = resolution(y), bell(y)
        return self

    def _law(self, X):
        return QuantileGrid(LEVELS, self._values(X), self.resolution_, self.background_)


class QuantileForestRegressor(QuantilePeer):
    """Quantile regression forest (Meinshausen 2006), by the package quantile-forest, its defaults.

    Parameters
    ----------
    n_estimators
        Trees.
    random_state
        Seed of everything random.
    """

    def __init__(self, n_estimators: int = 100, random_state: int | None = None) -> None:
        self.n_estimators, self.random_state = n_estimators, random_state

    def _learn(self, X, y, seed):
        module = need("quantile_forest", "quantile-forest")
        forest = module.RandomForestQuantileRegressor(self.n_estimators, n_jobs=1, random_state=seed)
        return forest.fit(X, y)

    def _values(self, X):
        return self.model_.predict(X, quantiles=list(LEVELS))


class LightGBMQuantileRegressor(QuantilePeer):
    """LightGBM with the quantile loss, its defaults, one model for each level.

    Parameters
    ----------
    n_estimators
        Rounds of each model.
    random_state
        Seed of everything random.
    """

    def __init__(self, n_estimators: int = 100, random_state: int | None = None) -> None:
        self.n_estimators, self.random_state = n_estimators, random_state

    def _learn(self, X, y, seed):
        lightgbm = need("lightgbm", "lightgbm")
        settings = {"objective": "quantile", "num_threads": 1, "seed": seed, "verbosity": -1}
        return [
            lightgbm.train({**settings, "alpha": level}, lightgbm.Dataset(X, y), self.n_estimators)
            for level in LEVELS
        ]

    def _values(self, X):
        return np.column_stack([booster.predict(X, num_threads=1) for booster in self.model_])


class ConformalGBMRegressor(QuantilePeer):
    """Split-conformal intervals around scikit-learn's gradient boosting, its defaults.

    f learns from four fifths of the rows. Of the others' n absolute residuals the k-th smallest, k =
    ceil((n + 1) c), is the half-width that covers a new response with probability c or more, if rows are
    exchangeable (Lei et al. 2018). Intervals at c = 10, 20, ..., 90 and 95 % have the ends that `LEVELS`
    name, f is the median: one symmetric law of the same width everywhere. With so few rows that k > n no
    width is promised, and the largest residual stands in.

    Parameters
    ----------
    calibration_fraction
        Share of rows kept for the residuals.
    random_state
        Seed of everything random.

    Examples
    --------
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = ConformalGBMRegressor(random_state=0).fit(X, X[:, 0])
    >>> model.predict_distribution(X).interval(0.9).shape
    (50, 2)
    """

    def __init__(self, calibration_fraction: float = 0.2, random_state: int | None = None) -> None:
        self.calibration_fraction, self.random_state = calibration_fraction, random_state

    def _learn(self, X, y, seed):
        X_rest, y_rest, X_held, y_held = held_out(X, y, self.calibration_fraction, seed)
        learner = GradientBoostingRegressor if len(X) < MANY_ROWS else HistGradientBoostingRegressor
        with threadpool_limits(1):
            f = learner(random_state=seed).fit(X_rest, y_rest)
            return f, half_widths(np.abs(y_held - f.predict(X_held)))

    def _values(self, X):
        f, widths = self.model_
        with threadpool_limits(1):
            middle = f.predict(X)
        return middle[:, None] + np.concatenate([-widths[::-1], [0.0], widths])


def half_widths(residuals: np.ndarray) -> np.ndarray:
    """Conformal half-widths of the intervals whose upper ends are `LEVELS` above 1/2."""
    n = len(residuals)
    ranks = [math.ceil(round((n + 1) * (2 * level - 1), 9)) for level in LEVELS if level > 0.5]
    return np.sort(residuals)[np.minimum(ranks, n) - 1]


__all__ = ["ConformalGBMRegressor", "LightGBMQuantileRegressor", "QuantileForestRegressor"]
