"""Contextual dropout and its relatives as classifiers; see `card.baselines.contextual_mlp` for the theory."""

from __future__ import annotations

from typing import ClassVar

from card.baselines.base import check_rate, check_share, settings
from card.baselines.class_base import NetworkClassifier
from card.baselines.contextual_mlp import (
    BernoulliContextMLP,
    ContextGate,
    ContextualMLP,
    GaussianContextMLP,
)
from card.baselines.noisy_mlp import NoisyMLP


@settings
class ContextualDropoutClassifier(NetworkClassifier):
    """Mean of passes through a network whose units are kept with a probability that each row sets.

    Parameters
    ----------
    dropout
        Rate to start from, for all rows and in the prior.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> model = ContextualDropoutClassifier(hidden=(10,), epochs=5, random_state=0).fit(X, X[:, 0] > 0)
    >>> model.predict_proba(X).shape
    (50, 2)
    """

    dropout: float = 0.2

    _make: ClassVar[type[ContextualMLP]] = BernoulliContextMLP

    def _check_parameters(self):
        super()._check_parameters()
        check_share(dropout=self.dropout)

    def _network(self, sizes, rngs):
        return self._make(sizes, self.dropout, rngs)

    def _loss(self, network, x, y, rngs, n_rows):
        return network.loss(x, y, rngs)


@settings
class GaussianContextualDropoutClassifier(ContextualDropoutClassifier):
    """The same with Gaussian gates: a row sets the variance of the noise its units are multiplied by.

    Parameters
    ----------
    dropout
        Rate to start from, for all rows and in the prior.
    """

    _make: ClassVar[type[ContextualMLP]] = GaussianContextMLP


@settings
class ContextualGatingClassifier(NetworkClassifier):
    """A network whose units are scaled by gates that read the row, without any chance."""

    drawn: ClassVar[bool] = False

    def _network(self, sizes, rngs):
        return NoisyMLP(sizes, lambda n_in: ContextGate(n_in, 0.0, rngs), rngs)


@settings
class ContextualGatingDropoutClassifier(NetworkClassifier):
    """Mean of passes through a network with such gates and Bernoulli dropout.

    Parameters
    ----------
    dropout
        Share of the units dropped before each layer.
    """

    dropout: float = 0.2

    def _check_parameters(self):
        super()._check_parameters()
        check_rate(dropout=self.dropout)

    def _network(self, sizes, rngs):
        return NoisyMLP(sizes, lambda n_in: ContextGate(n_in, self.dropout, rngs), rngs)
