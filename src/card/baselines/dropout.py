"""MC dropout: dropout left on at prediction, as draws from an approximate posterior.

Gal and Ghahramani (2016). Units are dropped before every layer, inputs included, with probability p in
training and in each of T passes at prediction. With noise precision tau the predicted law is the
mixture of N(pass, 1 / tau) over the passes. As the authors do, p and tau are those of a grid with the
best likelihood of a fifth of the rows held out; then the network learns anew from all rows. All rates
of the grid train at once as members. Their weight decay, of a prior length-scale of 0.01, is below 1e-7
on every table of the benchmark and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.baselines.base import LossRegressor, Tables, check_positive, check_share, settings
from card.baselines.mixtures import GaussianMixture
from card.nn import Linear, uniform
from card.train import seed_of

NOISE = np.geomspace(0.01, 2.0, 60)  # standard deviations tried, of the standardised response


class DropoutMLP(nn.Module):
    """ReLU networks with a dropout rate, and a noise scale, of each member's own."""

    rate: Tensor  # (M,)
    noise: Tensor  # (M,)

    def __init__(self, sizes: Sequence[int], rngs: Sequence[Generator]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(i, o, rngs) for i, o in pairwise(sizes))
        self.register_buffer("rate", torch.zeros(len(rngs)))
        self.register_buffer("noise", torch.ones(len(rngs)))

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool = False) -> Tensor:
        """(M, B, I) -> (M, B, 1), units dropped by `rngs`; `common`: the same for all rows."""
        kept = (1.0 - self.rate)[:, None, None]
        for i, layer in enumerate(self.layers):
            x = functional.relu(x) if i else x
            mask = uniform(rngs, 1 if common else x.shape[1], x.shape[2]) < kept
            x = layer(x * mask / kept)
        return x


@settings
class MCDropoutRegressor(LossRegressor):
    """Mixture of passes through a network with dropout.

    Parameters
    ----------
    dropout
        Rates to choose from on held-out rows; one number to fix it.
    n_passes
        Passes at prediction: components of the mixture. The same units are dropped for all rows.
    validation_fraction
        Share of rows held out to choose the rate and the noise.
    hidden, epochs, batch_size, lr
        Layers of the network, and how it is trained (Adam, ReLU).
    random_state
        Seed of everything random.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = MCDropoutRegressor(dropout=0.05, n_passes=10, epochs=5, random_state=0).fit(X, X[:, 0])
    >>> model.predict_distribution(X).means.shape
    (50, 10)
    """

    dropout: float | Sequence[float] = (0.005, 0.01, 0.05, 0.1)
    n_passes: int = 100
    validation_fraction: float = 0.2

    def _check_parameters(self):
        super()._check_parameters()
        check_positive(n_passes=self.n_passes)
        if not ((self._rates() >= 0) & (self._rates() < 1)).all():
            raise ValueError(
                f"dropout must be a rate, or rates, of 0 or more and below 1, got {self.dropout!r}."
            )
        check_share(validation_fraction=self.validation_fraction)

    def _rates(self) -> np.ndarray:
        return np.atleast_1d(np.asarray(self.dropout, dtype=np.float64))

    def _network(self, n_features, rngs):
        return DropoutMLP((n_features, *self.hidden, 1), rngs)

    def _loss(self, network, x, z, rngs):
        return (network(x, rngs) - z).square().mean(dim=(1, 2))

    def _train(self, tables):
        rate, noise = self._choose(tables)
        return self._train_at(tables, rate, noise)

    def _train_at(self, members: Tables, rate: Tensor, noise: Tensor | None = None) -> DropoutMLP:
        network = self._network(members.x.shape[1], members.generators())
        network.rate, network.noise = rate, torch.ones_like(rate) if noise is None else noise
        self._learn(network, members)
        return network

    def _choose(self, tables: Tables) -> tuple[Tensor, Tensor]:
        """The rate and the noise of each set, by the likelihood of rows held out."""
        rates = torch.as_tensor(self._rates(), dtype=torch.float32)
        rest, held = (part.repeat(len(rates)) for part in tables.split(self.validation_fraction))
        network = self._train_at(rest, rates.repeat(len(tables.rows)))
        passes = self._passes(network, held.x[held.rows], held.seeds).numpy()[..., 0]
        score = log_likelihood(passes, held.z[held.rows].numpy()[..., 0])
        best = score.reshape(len(tables.rows), -1).argmax(1)
        rate, noise = np.divmod(best, len(NOISE))
        return rates[rate], torch.as_tensor(NOISE[noise], dtype=torch.float32)

    @torch.no_grad()
    def _passes(self, network: DropoutMLP, x: Tensor, seeds: Sequence[int]) -> Tensor:
        """(M, B, D) -> (T, M, B, 1)."""
        rngs = [Generator().manual_seed(seed_of(seed, 3)) for seed in seeds]
        return torch.stack([network(x, rngs, common=True) for _ in range(self.n_passes)])

    def _outputs(self, network, x):
        passes = self._passes(network, x[None], [self.seed_])
        return (passes[:, 0, :, 0].T,)

    def _law(self, outputs):
        (means,) = outputs
        noise = self._decode_scale(self.network_.noise.numpy())
        return GaussianMixture(np.ones(self.n_passes), self._decode(means), noise)


def log_likelihood(passes: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Mean log-likelihood (M, n_noise) of z (M, m) under mixtures over passes (T, M, m), at each noise."""
    error = np.square(passes - z)
    out = np.empty((len(z), len(NOISE)))
    for i, noise in enumerate(NOISE):
        log = -0.5 * error / noise**2
        top = log.max(0)
        out[:, i] = (top + np.log(np.exp(log - top).mean(0))).mean(1) - np.log(noise)
    return out
