"""What adapters share: checks, one seed, and a plain word where a package is missing.

A peer is a package of others, wrapped so that it is fitted and asked as the baselines are. Packages
are imported when a fit begins, so that all else works without them.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from card.distribution import Distribution


class PeerNotAvailable(ImportError):
    """A peer's package is not installed."""


def need(module: str, package: str) -> Any:
    """The module of a peer's package; if it is not installed, an error that says how to have it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PeerNotAvailable(
            f"this method needs the package {package} ({error}): pip install 'card-diffusion[peers]'"
        ) from None


class Peer(RegressorMixin, BaseEstimator, ABC):
    """A regressor of one response, by a package of others."""

    random_state: int | None
    model_: Any

    @abstractmethod
    def _learn(self, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
        """The package's fitted model."""

    @abstractmethod
    def _law(self, X: np.ndarray) -> Distribution:
        """The distribution that the fitted model predicts."""

    def fit(self, X: Any, y: Any) -> Peer:
        """Learn from rows X (N, D) and responses y (N,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=10)
        y = np.asarray(y, dtype=np.float64)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.model_ = self._learn(X, y, seed)
        return self

    def predict_distribution(self, X: Any) -> Distribution:
        """The predicted distribution of each row."""
        check_is_fitted(self, "model_")
        return self._law(validate_data(self, X, reset=False, dtype=np.float64))

    def predict(self, X: Any) -> np.ndarray:
        """Mean of the predicted distribution, (N,)."""
        return self.predict_distribution(X).mean()


def held_out(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, ...]:
    """X and y of the rows to learn from, then of a random share held out."""
    if not 0 < share < 1:
        raise ValueError(f"validation_fraction must lie strictly between 0 and 1, got {share!r}.")
    X_rest, X_held, y_rest, y_held = train_test_split(X, y, test_size=share, random_state=seed)
    return X_rest, y_rest, X_held, y_held
