"""The classifiers of the dropout family: one network, without noise and with three kinds of it.

At prediction the noise stays on, and each pass is a draw from an approximate posterior (Gal and Ghahramani
2016). Noise comes before every layer, the first among them. See `card.baselines.noisy_mlp` for its kinds.
"""

from __future__ import annotations

from typing import ClassVar

from card.baselines.base import check_positive, check_rate, check_share, settings
from card.baselines.class_base import NetworkClassifier
from card.baselines.noisy_mlp import BernoulliGate, ConcreteGate, Gate, GaussianGate, NoisyMLP


@settings
class MAPClassifier(NetworkClassifier):
    """The network alone: weights of the greatest posterior, under the prior that weight decay stands for.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> model = MAPClassifier(hidden=(10,), epochs=20, lr=0.05, random_state=0).fit(X, X[:, 0] > 0)
    >>> model.predict([[-1.0], [1.0]])
    array([False,  True])
    """

    drawn: ClassVar[bool] = False

    def _network(self, sizes, rngs):
        return NoisyMLP(sizes, lambda n_in: Gate(), rngs)


@settings
class MCDropoutClassifier(NetworkClassifier):
    """Mean of passes through a network with Bernoulli dropout.

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
        return NoisyMLP(sizes, lambda n_in: BernoulliGate(self.dropout), rngs)


@settings
class GaussianDropoutClassifier(NetworkClassifier):
    """Mean of passes through a network whose units are multiplied by Gaussian noise.

    Parameters
    ----------
    dropout
        The rate p of Bernoulli dropout whose variance p / (1 - p) the noise has.
    """

    dropout: float = 0.2

    def _check_parameters(self):
        super()._check_parameters()
        check_rate(dropout=self.dropout)

    def _network(self, sizes, rngs):
        return NoisyMLP(sizes, lambda n_in: GaussianGate(self.dropout), rngs)


@settings
class ConcreteDropoutClassifier(NetworkClassifier):
    """Mean of passes through a network that learns the dropout rate of each layer.

    Parameters
    ----------
    dropout
        Rate to start from.
    length_scale
        Of the prior N(0, 1 / length_scale^2) of the weights.
    """

    dropout: float = 0.1
    length_scale: float = 0.01

    @property
    def rates_(self) -> list[float]:
        """The learned rate of each layer."""
        return [1.0 - gate.logit.sigmoid().item() for gate in self.network_.gates]

    def _check_parameters(self):
        super()._check_parameters()
        check_share(dropout=self.dropout)
        check_positive(length_scale=self.length_scale)

    def _network(self, sizes, rngs):
        return NoisyMLP(sizes, lambda n_in: ConcreteGate(self.dropout, self.length_scale, len(rngs)), rngs)
