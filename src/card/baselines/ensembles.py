"""Deep ensembles: networks that predict a mean and a variance, averaged as a mixture.

Lakshminarayanan, Pritzel and Blundell (2017). Each of M networks maximises the likelihood of
y ~ N(mean(x), variance(x)) from initial weights and an order of rows of its own; the prediction is
their mixture with equal weights. Adversarial smoothing adds the loss at x moved by a small step in the
direction that raises it most, sign(gradient).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from card.baselines.base import LossRegressor, check_positive, settings
from card.baselines.mixtures import GaussianMixture
from card.nn import MLP

FLOOR = 1e-6  # of a predicted variance of the standardised response


@settings
class DeepEnsembleRegressor(LossRegressor):
    """Mixture of Gaussian networks.

    Parameters
    ----------
    n_members
        Networks.
    adversarial
        Length of the adversarial step in each feature as a share of its range; 0 for none.
    hidden, epochs, batch_size, lr
        Layers of each network, and how it is trained (Adam, ReLU).
    random_state
        Seed of everything random.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = DeepEnsembleRegressor(n_members=2, epochs=5, random_state=0).fit(X, X[:, 0])
    >>> model.predict_distribution(X).interval(0.9).shape
    (50, 2)
    """

    n_members: int = 5
    adversarial: float = 0.0
    hidden: Sequence[int] = (50,)
    epochs: int = 100

    @property
    def n_networks(self):
        return self.n_members

    def _check_parameters(self):
        super()._check_parameters()
        check_positive(n_members=self.n_members)
        if self.adversarial < 0:
            raise ValueError(f"adversarial must be 0 (none) or above, got {self.adversarial!r}.")

    def _learn(self, network, members, held=None):
        x = members.x[members.rows]
        self._reach = self.adversarial * (x.amax(1) - x.amin(1))[:, None]
        super()._learn(network, members, held)

    def _network(self, n_features, rngs):
        return MLP((n_features, *self.hidden, 2), functional.relu, rngs)

    def _loss(self, network, x, z, rngs):
        if self.adversarial == 0:
            return gaussian_loss(network(x), z)
        x = x.requires_grad_()
        here = gaussian_loss(network(x), z)
        (uphill,) = torch.autograd.grad(here.sum(), x, retain_graph=True)
        return here + gaussian_loss(network(x.detach() + self._reach * uphill.sign()), z)

    def _outputs(self, network, x):
        out = network(x.expand(self.n_members, -1, -1))
        return out[..., 0].T, variance(out[..., 1]).sqrt().T

    def _law(self, outputs):
        mean, scale = outputs
        return GaussianMixture(np.ones(self.n_members), self._decode(mean), self._decode_scale(scale))


def variance(raw: Tensor) -> Tensor:
    return functional.softplus(raw) + FLOOR


def gaussian_loss(out: Tensor, z: Tensor) -> Tensor:
    """Mean negative log-likelihood of each member (M,), up to a constant."""
    var = variance(out[..., 1:])
    return 0.5 * (var.log() + (z - out[..., :1]).square() / var).mean(dim=(1, 2))
