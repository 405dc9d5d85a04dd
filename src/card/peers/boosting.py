"""Boosted Gaussians: trees that learn the mean and the scale of y given x by its likelihood.

How many rounds to take matters more for a likelihood than for a mean: one round too many and the scale
collapses on rows that are known by heart. So all three are fitted as NGBoost's authors did: rounds are
counted on a fifth of the rows held out, then all rows are learned from for that many. All else is each
library's default. The Gaussian is in closed form, so every score of it is exact.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from card.distribution import Gaussian
from card.peers.base import Peer, held_out, need


class BoostedGaussian(Peer):
    """Boosting whose number of rounds is chosen on held-out rows."""

    validation_fraction: float

    @abstractmethod
    def _boost(
        self,
        X: np.ndarray,
        y: np.ndarray,
        seed: int,
        judge: tuple[np.ndarray, np.ndarray] | None,
        **known: Any,
    ) -> Any:
        """A fitted booster; with rows to judge by, one that stops when their likelihood does not rise."""

    @abstractmethod
    def _best(self, booster: Any) -> dict[str, Any]:
        """What the judged booster found out: the rounds to take, as parameters of the next one."""

    @abstractmethod
    def _mean_and_scale(self, booster: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    def _learn(self, X, y, seed):
        X_rest, y_rest, *judge = held_out(X, y, self.validation_fraction, seed)
        found = self._best(self._boost(X_rest, y_rest, seed, (judge[0], judge[1])))
        return self._boost(X, y, seed, None, **found)

    def _law(self, X):
        mean, scale = self._mean_and_scale(self.model_, X)
        return Gaussian(np.asarray(mean, dtype=np.float64), np.asarray(scale, dtype=np.float64))


class NGBoostRegressor(BoostedGaussian):
    """NGBoost (Duan et al. 2020): natural gradients of the likelihood, trees of depth 3.

    Parameters
    ----------
    n_estimators, learning_rate, minibatch_frac
        Most rounds (2000 as in the authors' experiments), step and share of rows a round.
    patience
        Rounds without a better likelihood of the held-out rows before the search ends.
    validation_fraction
        Share of rows held out to count rounds.
    random_state
        Seed of everything random.
    """

    def __init__(
        self,
        n_estimators: int = 2000,
        learning_rate: float = 0.01,
        minibatch_frac: float = 1.0,
        patience: int = 50,
        validation_fraction: float = 0.2,
        random_state: int | None = None,
    ) -> None:
        self.n_estimators, self.learning_rate = n_estimators, learning_rate
        self.minibatch_frac, self.patience = minibatch_frac, patience
        self.validation_fraction, self.random_state = validation_fraction, random_state

    def _boost(self, X, y, seed, judge, **known):
        settings = {
            "n_estimators": self.n_estimators,
            "learning_rate": self.learning_rate,
            "minibatch_frac": self.minibatch_frac,
            "random_state": seed,
            "verbose": False,
        }
        booster = need("ngboost", "ngboost").NGBRegressor(**{**settings, **known})
        if judge is None:
            return booster.fit(X, y)
        return booster.fit(X, y, *judge, early_stopping_rounds=self.patience)

    def _best(self, booster):
        return {"n_estimators": booster.best_val_loss_itr + 1}

    def _mean_and_scale(self, booster, X):
        parameters = booster.pred_dist(X).params
        return parameters["loc"], parameters["scale"]


class CatBoostGaussianRegressor(BoostedGaussian):
    """CatBoost with the loss RMSEWithUncertainty, a Gaussian's likelihood (Malinin et al. 2021).

    Parameters
    ----------
    n_estimators
        Most rounds.
    patience, validation_fraction, random_state
        As for `NGBoostRegressor`.
    """

    def __init__(
        self,
        n_estimators: int = 1000,
        patience: int = 50,
        validation_fraction: float = 0.2,
        random_state: int | None = None,
    ) -> None:
        self.n_estimators, self.patience = n_estimators, patience
        self.validation_fraction, self.random_state = validation_fraction, random_state

    def _boost(self, X, y, seed, judge, **known):
        settings = {
            "loss_function": "RMSEWithUncertainty",
            "iterations": self.n_estimators,
            "random_seed": seed,
            "thread_count": 1,
            "logging_level": "Silent",
            "allow_writing_files": False,
        }
        booster = need("catboost", "catboost").CatBoostRegressor(**{**settings, **known})
        if judge is None:
            return booster.fit(X, y)
        return booster.fit(X, y, eval_set=judge, early_stopping_rounds=self.patience)

    def _best(self, booster):
        """The step too: CatBoost works it out from the number of rounds asked for."""
        return {"iterations": booster.best_iteration_ + 1, "learning_rate": booster.learning_rate_}

    def _mean_and_scale(self, booster, X):
        mean, variance = booster.predict(X, prediction_type="RMSEWithUncertainty", thread_count=1).T
        return mean, np.sqrt(variance)


class XGBoostDistributionRegressor(BoostedGaussian):
    """XGBoost on the natural gradients of a Gaussian, by the package xgboost-distribution.

    Parameters
    ----------
    n_estimators, patience
        Most rounds, and rounds without a better likelihood of the held-out rows: as in its guide.
    validation_fraction, random_state
        As for `NGBoostRegressor`.
    """

    def __init__(
        self,
        n_estimators: int = 500,
        patience: int = 10,
        validation_fraction: float = 0.2,
        random_state: int | None = None,
    ) -> None:
        self.n_estimators, self.patience = n_estimators, patience
        self.validation_fraction, self.random_state = validation_fraction, random_state

    def _boost(self, X, y, seed, judge, **known):
        settings = {
            "distribution": "normal",
            "n_estimators": self.n_estimators,
            "early_stopping_rounds": None if judge is None else self.patience,
            "n_jobs": 1,
            "random_state": seed,
        }
        module = need("xgboost_distribution", "xgboost-distribution")
        booster = module.XGBDistribution(**{**settings, **known})
        return booster.fit(X, y, eval_set=None if judge is None else [judge], verbose=False)

    def _best(self, booster):
        return {"n_estimators": booster.best_iteration + 1}

    def _mean_and_scale(self, booster, X):
        return booster.predict(X)


__all__ = ["CatBoostGaussianRegressor", "NGBoostRegressor", "XGBoostDistributionRegressor"]
