"""What the network baselines share: checks, standardisation, members that train together.

As the papers of these methods do, features and response are standardised over the training rows and
predictions are given back in the user's units. A method says which network it has, its loss and
what its network's outputs mean; everything here has a leading member axis (see `card.nn`), so that the
members of an ensemble, and the splits of a benchmark, train in one batched call.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator, Tensor, nn

from card.codec import Codec, fit_codec
from card.distribution import Distribution
from card.features import Features
from card.train import Training, seed_of, train

ROWS = 1000  # predicted at a time

Made = TypeVar("Made")


@dataclass_transform(kw_only_default=True, eq_default=False)
def settings(cls: type[Made]) -> type[Made]:
    """Make the constructor of an estimator from the settings that it and those above it declare."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


@dataclass(frozen=True)
class Tables:
    """S training sets of n rows each, one after the other in a common table."""

    x: Tensor  # (S * n, D)
    z: Tensor  # (S * n, 1)
    rows: Tensor  # (S, n): the numbers of each set's rows
    seeds: Sequence[int]  # S

    def generators(self) -> list[Generator]:
        """Of initial weights, one per set."""
        return [Generator().manual_seed(seed) for seed in self.seeds]

    def repeat(self, n: int) -> Tables:
        """Each set n times, one next to the other, with seeds of their own: one for each member."""
        seeds = [seed_of(seed, i) for seed in self.seeds for i in range(n)]
        return Tables(self.x, self.z, self.rows.repeat_interleave(n, dim=0), seeds)

    def split(self, share: float) -> tuple[Tables, Tables]:
        """The sets without a random share of their rows, and that share, at least one row."""
        n = self.rows.shape[1]
        rngs = [Generator().manual_seed(seed_of(seed, 1, 1)) for seed in self.seeds]
        order = torch.stack([torch.randperm(n, generator=rng) for rng in rngs])
        shuffled, n_held = self.rows.gather(1, order), max(1, int(share * n))
        rest, held = shuffled[:, n_held:], shuffled[:, :n_held]
        return Tables(self.x, self.z, rest, self.seeds), Tables(self.x, self.z, held, self.seeds)


def check_positive(**parameters: Any) -> None:
    """Refuse a parameter, or a member of it, that is not above zero."""
    for name, value in parameters.items():
        if not (np.asarray(value) > 0).all():
            raise ValueError(f"{name} must be above 0, got {value!r}.")


def check_not_negative(**parameters: float) -> None:
    """Refuse a parameter below zero."""
    for name, value in parameters.items():
        if not value >= 0:
            raise ValueError(f"{name} must be 0 or above, got {value!r}.")


def check_rate(**parameters: float) -> None:
    """Refuse a parameter that is not 0 or more and below 1."""
    for name, value in parameters.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be a rate of 0 or more and below 1, got {value!r}.")


def check_share(**parameters: float) -> None:
    """Refuse a parameter that is not strictly between 0 and 1."""
    for name, value in parameters.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")


@dataclass(frozen=True)
class OneHot:
    """Features of which some are categories, a 0/1 column for each level."""

    features: Features

    def encode(self, X: np.ndarray) -> np.ndarray:
        """(N, D) -> (N, columns)."""
        return self.features.transform(X).astype(np.float64)


class Standardised(RegressorMixin, BaseEstimator, ABC):
    """A regressor of one response that works on standardised features and response."""

    features_: Codec | OneHot
    response_: Codec

    def predict(self, X: Any) -> np.ndarray:
        """Mean of the predicted distribution, (N,)."""
        return self.predict_distribution(X).mean()

    @abstractmethod
    def predict_distribution(self, X: Any) -> Distribution:
        """The predicted distribution of each row."""

    def _check(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Features and response as arrays of numbers."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        return X, np.asarray(y, dtype=np.float64)

    def _encoded(self, X: Any) -> np.ndarray:
        """Features to predict from, in the learned coordinates."""
        check_is_fitted(self, "features_")
        return self.features_.encode(validate_data(self, X, reset=False, dtype=np.float64))

    def _decode(self, mean: np.ndarray) -> np.ndarray:
        return self.response_.decode(mean)

    def _decode_scale(self, scale: np.ndarray) -> np.ndarray:
        return np.asarray(scale, dtype=np.float64) * self.response_.scale


@settings
class NetworkRegressor(Standardised):
    """A regressor made of `n_networks` networks that learn from the same rows.

    `categorical_features` are positions of columns to be encoded level by level; the others are numbers.
    """

    hidden: Sequence[int] = (100, 50)
    epochs: int = 500
    categorical_features: Sequence[int] = ()
    random_state: int | None = None

    @property
    def n_networks(self) -> int:
        """Networks for each training set."""
        return 1

    @abstractmethod
    def _network(self, n_features: int, rngs: Sequence[Generator]) -> nn.Module:
        """Networks with initial weights, one per generator."""

    @abstractmethod
    def _learn(self, network: Any, members: Tables) -> None:
        """Train one network on each set."""

    @abstractmethod
    def _outputs(self, network: Any, x: Tensor) -> tuple[Tensor, ...]:
        """What the fitted networks say of rows x (N, D), rows first, in the model's coordinates."""

    @abstractmethod
    def _law(self, outputs: Sequence[np.ndarray]) -> Distribution:
        """The distribution, in the user's units, that outputs stand for."""

    def fit(self, X: Any, y: Any) -> NetworkRegressor:
        """Learn from rows X (N, D) and responses y (N,)."""
        fit_together([self], [X], [y])
        return self

    def predict_distribution(self, X: Any) -> Distribution:
        """The predicted distribution of each row; the same for the same row, whatever comes with it."""
        x = torch.as_tensor(self._encoded(X)).double()
        with torch.no_grad():
            blocks = [self._outputs(self.network_, block) for block in x.split(ROWS)]
        return self._law([torch.cat(part).numpy() for part in zip(*blocks, strict=True)])

    def _check_parameters(self) -> None:
        check_positive(hidden=self.hidden, epochs=self.epochs)

    def _learn_features(self, X: np.ndarray) -> Codec | OneHot:
        """How features are brought to numbers of comparable size."""
        chosen = list(self.categorical_features)
        return OneHot(Features.fit(X, chosen)) if chosen else fit_codec(X)

    def _train(self, tables: Tables) -> nn.Module:
        """All networks of all training sets, those of one set next to each other."""
        members = tables.repeat(self.n_networks)
        network = self._network(tables.x.shape[1], members.generators())
        self._learn(network, members)
        return network

    def _publish(self, network: nn.Module, i: int) -> None:
        """Keep the networks of training set i, in double precision: rows must not feel their neighbours."""
        mine = slice(i * self.n_networks, (i + 1) * self.n_networks)
        self.network_: Any = some_members(network, mine).double()


@settings
class LossRegressor(NetworkRegressor):
    """Networks that go down a loss by Adam."""

    batch_size: int = 32
    lr: float = 1e-3

    @abstractmethod
    def _loss(self, network: Any, x: Tensor, z: Tensor, rngs: Sequence[Generator]) -> Tensor:
        """The loss of each member (M,) on its batch, x (M, B, D) and z (M, B, 1)."""

    def _training(self) -> Training:
        return Training(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr, clip=None)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive(batch_size=self.batch_size, lr=self.lr)

    def _learn(self, network: nn.Module, members: Tables, held: Tables | None = None) -> None:
        """Train one network on each set; with rows held out, keep the weights with the least loss there."""

        def loss(batch: Tensor, rngs: Sequence[Generator]) -> Tensor:
            return self._loss(network, members.x[batch], members.z[batch], rngs)

        seeds = [seed_of(seed, 1) for seed in members.seeds]
        judge = None if held is None else lambda epoch: loss(held.rows, held.generators())
        train(network, loss, members.rows, seeds, self._training(), judge)


def some_members(network: nn.Module, members: slice) -> nn.Module:
    """A copy that has only some of the members."""
    part = copy.deepcopy(network)
    for value in [*part.parameters(), *part.buffers()]:
        value.data = value.data[members].clone()
    return part


def fit_together(estimators: Sequence[NetworkRegressor], Xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """Fit estimators with equal parameters, each on data of its own, in one batched run.

    Each result is what the estimator would have learned alone, to rounding. Tables of different sizes
    are fitted one after the other.
    """
    for estimator in estimators:
        estimator._check_parameters()
    data = [e._check(X, y) for e, X, y in zip(estimators, Xs, ys, strict=True)]
    codecs = [
        (e._learn_features(X), fit_codec(y[:, None])) for e, (X, y) in zip(estimators, data, strict=True)
    ]
    encoded = [
        (of_x.encode(X), of_y.encode(y[:, None])) for (of_x, of_y), (X, y) in zip(codecs, data, strict=True)
    ]
    if len({x.shape for x, _ in encoded}) > 1:
        for estimator, each in zip(estimators, encoded, strict=True):
            _fit_alike([estimator], [each])
    else:
        _fit_alike(estimators, encoded)
    for estimator, (of_x, of_y) in zip(estimators, codecs, strict=True):
        estimator.features_, estimator.response_ = of_x, of_y
    return estimators


def _fit_alike(
    estimators: Sequence[NetworkRegressor], encoded: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Fit to encoded features (n, D) and responses (n, 1) of one shape."""
    x, z = (torch.as_tensor(np.concatenate(part)) for part in zip(*encoded, strict=True))
    rows = torch.arange(len(x)).view(len(estimators), -1)
    seeds = [int(check_random_state(e.random_state).randint(2**31 - 1)) for e in estimators]
    network = estimators[0]._train(Tables(x, z, rows, seeds))
    for i, estimator in enumerate(estimators):
        estimator.seed_ = seeds[i]
        estimator._publish(network, i)
