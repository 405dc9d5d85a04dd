"""Generative conditional distribution sampler: a network that turns noise into responses.

Zhou, Jiao, Liu and Huang (2021). A generator G(x, eta), eta ~ N(0, I), makes responses; a critic D tells
pairs (x, G) from pairs (x, y). Generator and critic play

    min_G max_D  E[D(x, G(x, eta))] - E[exp(D(x, y))],

whose inner maximum is KL(generated pairs || real pairs) - 1, so at the end G(x, eta) follows p(y | x). Both
take each step together: the critic descends minus the objective, and the generator, behind a
reversed gradient, climbs down the same number. The prediction is a set of draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from card.baselines.base import LossRegressor, check_positive, settings
from card.distribution import Draws
from card.mean import leaky_relu
from card.nn import MLP, normal
from card.train import seed_of

LARGEST = 10.0  # of the critic's exponent: beyond it exp goes on as a straight line


class Players(nn.Module):
    """Generators and critics of each member."""

    def __init__(
        self, n_features: int, n_noise: int, hidden: Sequence[int], rngs: Sequence[Generator]
    ) -> None:
        super().__init__()
        self.n_noise = n_noise
        self.generator = MLP((n_features + n_noise, *hidden, 1), leaky_relu, rngs)
        self.critic = MLP((n_features + 1, *hidden, 1), leaky_relu, rngs)

    def make(self, x: Tensor, noise: Tensor) -> Tensor:
        """Responses (M, B, 1) from rows (M, B, D) and noise (M, B, n_noise)."""
        return self.generator(torch.cat([x, noise], dim=-1))

    def judge(self, x: Tensor, z: Tensor) -> Tensor:
        """How far each pair looks made rather than real: (M, B, 1), log-odds."""
        return self.critic(torch.cat([x, z], dim=-1))


@settings
class GCDSRegressor(LossRegressor):
    """Draws from a generator trained against a critic.

    Parameters
    ----------
    n_noise
        Dimensions of the noise that the generator reads beside x.
    n_draws
        Draws that a prediction is made of, with the same noise for all rows.
    hidden, epochs, batch_size, lr
        Layers of generator and critic, and how they are trained (Adam, leaky ReLU).
    random_state
        Seed of everything random.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = GCDSRegressor(n_draws=20, epochs=5, random_state=0).fit(X, X[:, 0])
    >>> model.predict_distribution(X).draws.shape
    (20, 50, 1)
    """

    n_noise: int = 50
    n_draws: int = 1000

    def _check_parameters(self):
        super()._check_parameters()
        check_positive(n_noise=self.n_noise, n_draws=self.n_draws)

    def _training(self):
        return replace(super()._training(), betas=(0.5, 0.999), clip=1.0)

    def _network(self, n_features, rngs):
        return Players(n_features, self.n_noise, self.hidden, rngs)

    def _loss(self, network, x, z, rngs):
        made = network.make(x, normal(rngs, x.shape[1], self.n_noise))
        reversed_ = 2.0 * made.detach() - made  # the same number, the opposite gradient
        real, fake = network.judge(x, z), network.judge(x, reversed_)
        return (bounded_exp(real) - fake).mean(dim=(1, 2))

    def _outputs(self, network, x):
        rng = Generator().manual_seed(seed_of(self.seed_, 3))
        noise = torch.randn(self.n_draws, 1, self.n_noise, generator=rng, dtype=x.dtype)
        made = [network.make(x[None], eta.expand(1, len(x), -1)) for eta in noise]
        return (torch.cat(made)[..., 0].T,)

    def _law(self, outputs):
        (made,) = outputs
        return Draws(self._decode(made.T[..., None]), squeeze=True)


def bounded_exp(x: Tensor) -> Tensor:
    """exp(x), continued from LARGEST on by its tangent, so that no step explodes."""
    low = x.clamp(max=LARGEST)
    return low.exp() * (1.0 + x - low)
