"""What the network classifiers share: rows in, draws of class probabilities out.

A Bayesian network says what it does not know by drawing. Each of S networks, drawn from an (approximate)
posterior, gives class probabilities; with them

    p(c | x)    the mean over the draws, the prediction,
    votes       the class that each draw finds most probable,
    certain     whether the paired t-test between the two leading classes rejects (`card.confidence`).

All minimise the mean cross-entropy plus, where there is a posterior over what all rows share, its divergence
from the prior divided by the number of rows: minus the evidence lower bound of a row. A draw is one network
for all rows, so that a row's prediction does not depend on its company.

Images are read flat, pixels from 0 to 1; tables of numbers are standardised. `noise` is added anew whenever a
training row is looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Generator, Tensor, nn
from torch.nn import functional

from card import confidence
from card.baselines.base import check_not_negative, check_positive, settings
from card.codec import Codec, fit_codec
from card.distribution import check_n_draws
from card.images import check_images, is_images
from card.labels import as_labels, encode_labels
from card.nn import normal
from card.train import Training, seed_of, train
from card.views import unit_pixels

ROWS = 1000  # predicted at a time
LAST = 0.01  # share of the learning rate that is left at the end of its cosine


@settings
class NetworkClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Networks of affine layers and ReLU, on cross-entropy.

    Parameters
    ----------
    hidden, epochs, batch_size, lr, weight_decay
        Layers of the network, and how it is trained: by Adam, its rate falling along a cosine.
    noise
        Standard deviation of the noise drawn anew at every look at a training row; rows at predict are taken
        as they are.
    n_draws
        Networks drawn for a prediction.
    random_state
        Seed of everything random.
    """

    hidden: Sequence[int] = (300, 100)
    epochs: int = 40
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.0
    noise: float = 0.0
    n_draws: int = 100
    random_state: int | None = None

    drawn: ClassVar[bool] = True
    """Whether draws differ at all; where they do not there is nothing to test."""

    @abstractmethod
    def _network(self, sizes: Sequence[int], rngs: Sequence[Generator]) -> nn.Module:
        """Networks with initial weights, one per generator: (M, B, I), generators, common -> logits."""

    def _loss(self, network: Any, x: Tensor, y: Tensor, rngs: Sequence[Generator], n_rows: int) -> Tensor:
        """The loss of each member (M,) on its batch, x (M, B, D) and classes y (M, B)."""
        return cross_entropy(network(x, rngs), y).mean(dim=1) + network.divergence() / n_rows

    # --------------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from a table or images X and labels y (N,)."""
        self._check_parameters()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        shape, codec, x = self._learn_rows(X)
        check_consistent_length(x, as_labels(y))
        classes, number = encode_labels(y)
        network = self._learn(torch.from_numpy(x), torch.from_numpy(number), len(classes), seed)
        self.classes_, self.image_shape_, self.features_, self.seed_ = classes, shape, codec, seed
        self.network_: Any = network.double()  # rows must not feel their neighbours
        return self

    def _check_parameters(self) -> None:
        check_positive(hidden=self.hidden, epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)
        check_not_negative(weight_decay=self.weight_decay, noise=self.noise)
        check_n_draws(self.n_draws, at_least=2)

    def _learn_rows(self, X: Any) -> tuple[tuple[int, ...] | None, Codec | None, np.ndarray]:
        """(shape of an image, encoding of a table, rows (N, D) in float32)."""
        if is_images(X):
            images = check_images(X)
            self.n_features_in_ = int(np.prod(images.shape[1:]))
            return images.shape[1:], None, flat(images)
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        codec = fit_codec(X)
        return None, codec, codec.encode(X)

    def _learn(self, x: Tensor, y: Tensor, n_classes: int, seed: int) -> nn.Module:
        network = self._network((x.shape[1], *self.hidden, n_classes), [Generator().manual_seed(seed)])

        def loss(batch: Tensor, rngs: Sequence[Generator]) -> Tensor:
            seen = x[batch]
            if self.noise:
                seen = seen + self.noise * normal(rngs, *seen.shape[1:])
            return self._loss(network, seen, y[batch], rngs, len(x))

        network.train()
        train(network, loss, torch.arange(len(x))[None], [seed_of(seed, 1)], self._training())
        return network.eval()

    def _training(self) -> Training:
        return Training(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            final_lr=LAST * self.lr,
            weight_decay=self.weight_decay,
            clip=None,
        )

    # ----------------------------------------------------------------- predict

    def sample_proba(self, X: Any, n_draws: int | None = None) -> np.ndarray:
        """Class probabilities of each network drawn, (n_draws, n_rows, n_classes)."""
        return np.concatenate(list(self._draws(X, n_draws)), axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n_rows, n_classes) mean probabilities, columns in the order of `classes_`."""
        return np.concatenate([draws.mean(axis=0) for draws in self._draws(X)])

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def assess(self, X: Any, n_draws: int | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """How sure one may be of each row: label, vote, vote_share, probability, p_value, certain.

        A row is certain where the paired t-test between its two leading classes rejects at level `alpha`; a
        method whose draws are all the same lacks the last two.
        """
        lead = confidence.joined([confidence.weigh_probabilities(p) for p in self._draws(X, n_draws)])
        table = confidence.assess(lead, self.classes_, alpha)
        return table if self.drawn else table.drop(columns=["p_value", "certain"])

    def _draws(self, X: Any, n_draws: int | None = None) -> Iterator[np.ndarray]:
        """Probabilities (n_draws, some rows, n_classes), block by block."""
        check_is_fitted(self, "network_")
        n_draws = check_n_draws(self.n_draws if n_draws is None else n_draws, at_least=2)
        for block in torch.from_numpy(self._rows(X)).double().split(ROWS):
            passes = self._passes(block, n_draws if self.drawn else 1)
            yield passes.expand(n_draws, -1, -1).numpy()

    @torch.no_grad()
    def _passes(self, x: Tensor, n_draws: int) -> Tensor:
        """(B, D) -> (S, B, C)."""
        rngs = [Generator().manual_seed(seed_of(self.seed_, 3))]
        logits = [self.network_(x[None], rngs, common=True)[0] for _ in range(n_draws)]
        return torch.stack(logits).softmax(-1)

    def _rows(self, X: Any) -> np.ndarray:
        """Rows to predict, (N, D), as they were learned."""
        if self.features_ is None:
            return flat(check_images(X, self.image_shape_))
        return self.features_.encode(validate_data(self, X, reset=False, dtype=np.float64))


def flat(images: np.ndarray) -> np.ndarray:
    """(N, channels, height, width) -> (N, D) in float32, pixels from 0 to 1."""
    return unit_pixels(images).reshape(len(images), -1)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """-log p(y) of each row, (M, B), from logits (M, B, C) and classes (M, B)."""
    losses = functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
    return losses.view(y.shape)
