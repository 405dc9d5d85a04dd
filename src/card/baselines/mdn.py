"""Mixture-density network: one network that predicts all parameters of a mixture of Gaussians.

Bishop (1994). For each row the network gives C weights (softmax), means and scales (softplus); it
maximises the likelihood of the response. Left alone, the likelihood of training rows rises without end
as components shrink around them, so the epoch with the best likelihood of held-out rows is kept.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from card.baselines.base import LossRegressor, check_positive, check_share, settings
from card.baselines.mixtures import GaussianMixture
from card.nn import MLP

FLOOR = 1e-3  # of a predicted scale of the standardised response


@settings
class MixtureDensityRegressor(LossRegressor):
    """A network that predicts a mixture of Gaussians for each row.

    Parameters
    ----------
    n_components
        Gaussians for each row.
    validation_fraction, patience
        Share of rows held out, and epochs without a better likelihood of them before training ends.
    hidden, epochs, batch_size, lr
        Layers of the network, and how it is trained (Adam, ReLU).
    random_state
        Seed of everything random.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = MixtureDensityRegressor(n_components=3, epochs=5, random_state=0).fit(X, X[:, 0])
    >>> model.predict_distribution(X).weights.shape
    (50, 3)
    """

    n_components: int = 5
    validation_fraction: float = 0.2
    patience: int = 50

    def _check_parameters(self):
        super()._check_parameters()
        check_positive(n_components=self.n_components, patience=self.patience)
        check_share(validation_fraction=self.validation_fraction)

    def _training(self):
        return replace(super()._training(), patience=self.patience)

    def _network(self, n_features, rngs):
        return MLP((n_features, *self.hidden, 3 * self.n_components), functional.relu, rngs)

    def _train(self, tables):
        rest, held = tables.split(self.validation_fraction)
        network = self._network(tables.x.shape[1], rest.generators())
        self._learn(network, rest, held)
        return network

    def _loss(self, network, x, z, rngs):
        log_weight, mean, scale = parameters(network(x))
        log = log_weight - scale.log() - 0.5 * ((z - mean) / scale).square()
        return 0.5 * math.log(2 * math.pi) - torch.logsumexp(log, dim=-1).mean(dim=1)

    def _outputs(self, network, x):
        log_weight, mean, scale = parameters(network(x[None]))
        return log_weight[0].exp(), mean[0], scale[0]

    def _law(self, outputs):
        weight, mean, scale = outputs
        return GaussianMixture(weight, self._decode(mean), self._decode_scale(scale), members=False)


def parameters(out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights, means and scales, (..., C) each, from a network's outputs (..., 3 C)."""
    logit, mean, raw = out.chunk(3, dim=-1)
    return logit.log_softmax(-1), mean, functional.softplus(raw) + FLOOR
