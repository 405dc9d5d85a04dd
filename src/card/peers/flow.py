"""Neural spline flow: a monotone map, learned from x, that turns the response into a standard Gaussian.

Durkan et al. (2019), by the package zuko. With z = T(y; x), T increasing, the law has

    F(y|x) = Phi(T(y; x)),    p(y|x) = phi(T(y; x)) dT/dy,    quantile T^-1(Phi^-1(q); x),

all three exact. Features and response are standardised; training is that of the mixture-density baseline:
Adam, a fifth of the rows held out, the weights with the best likelihood of them.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Generator, Tensor

from card.codec import Codec, fit_codec
from card.distribution import Distribution, Variance, check_n_draws, columns
from card.peers.base import Peer, held_out, need

N_NODES = 1000  # stratified quantiles that mean and variance are taken over


class SplineFlowRegressor(Peer):
    """Conditional spline flow with zuko's defaults: three splines of eight bins, two layers of 64.

    Parameters
    ----------
    transforms, bins, hidden
        Splines, bins of each, layers of the network behind each.
    epochs, batch_size, lr, patience, validation_fraction
        How it is trained.
    random_state
        Seed of everything random.
    """

    def __init__(
        self,
        transforms: int = 3,
        bins: int = 8,
        hidden: tuple[int, ...] = (64, 64),
        epochs: int = 500,
        batch_size: int = 32,
        lr: float = 1e-3,
        patience: int = 50,
        validation_fraction: float = 0.2,
        random_state: int | None = None,
    ) -> None:
        self.transforms, self.bins, self.hidden = transforms, bins, hidden
        self.epochs, self.batch_size, self.lr, self.patience = epochs, batch_size, lr, patience
        self.validation_fraction, self.random_state = validation_fraction, random_state

    def _learn(self, X, y, seed):
        zuko = need("zuko", "zuko")
        of_x, of_y = fit_codec(X), fit_codec(y[:, None])
        parts = held_out(of_x.encode(X), of_y.encode(y[:, None]), self.validation_fraction, seed)
        x, z, x_held, z_held = (torch.as_tensor(part).float() for part in parts)
        with torch.random.fork_rng(devices=[]):  # zuko's initial weights come from the global generator
            torch.manual_seed(seed)
            flow = zuko.flows.NSF(
                1, X.shape[1], bins=self.bins, transforms=self.transforms, hidden_features=list(self.hidden)
            )
        self._train(flow, (x, z), (x_held, z_held), Generator().manual_seed(seed))
        return flow.double(), of_x, of_y

    def _train(
        self, flow: Any, rows: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], rng: Generator
    ) -> None:
        """Leave in the flow the weights with the least loss on the rows held out."""
        adam = torch.optim.Adam(flow.parameters(), lr=self.lr)
        best, weights, waited = np.inf, flow.state_dict(), 0
        for _ in range(self.epochs):
            for batch in torch.randperm(len(rows[0]), generator=rng).split(self.batch_size):
                adam.zero_grad()
                loss(flow, rows[0][batch], rows[1][batch]).backward()
                adam.step()
            with torch.no_grad():
                cost = float(loss(flow, *held))
            waited += 1
            if cost < best:
                best, weights, waited = cost, copy.deepcopy(flow.state_dict()), 0
            if waited >= self.patience:
                break
        flow.load_state_dict(weights)

    def _law(self, X):
        flow, of_x, of_y = self.model_
        return FlowLaw(flow, torch.as_tensor(of_x.encode(X)).double(), of_y)


def loss(flow: Any, x: Tensor, z: Tensor) -> Tensor:
    """Mean negative log-likelihood."""
    return -flow(x).log_prob(z).mean()


class FlowLaw(Distribution):
    """What a flow predicts at encoded rows x (N, D)."""

    def __init__(self, flow: Any, x: Tensor, response: Codec) -> None:
        self.flow, self.x, self.response = flow, x, response
        self.scale = float(np.asarray(response.scale).item())

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows) -> FlowLaw:
        return FlowLaw(self.flow, self.x[torch.as_tensor(np.arange(len(self))[rows])], self.response)

    @torch.no_grad()
    def _scores(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """T(y) and log dT/dy at responses (N, k)."""
        encoded = torch.as_tensor(self.response.encode(y[..., None])).double()
        z, slope = self.flow(self.x[:, None]).transform.call_and_ladj(encoded)
        return z[..., 0].numpy(), slope.numpy() - np.log(self.scale)

    @torch.no_grad()
    def _at(self, z: np.ndarray) -> np.ndarray:
        """Responses at normal scores (N, k)."""
        scores = torch.as_tensor(np.ascontiguousarray(z)).double()[..., None]
        return self.response.decode(self.flow(self.x[:, None]).transform.inv(scores).numpy())[..., 0]

    def _quantiles(self, q):
        return self._at(np.broadcast_to(ndtri(q), (len(self), len(q))))

    def _nodes(self) -> np.ndarray:
        return self._quantiles((np.arange(N_NODES) + 0.5) / N_NODES)

    def mean(self):
        return self._nodes().mean(1)

    def decompose(self):
        variance = self._nodes().var(1)
        return Variance(variance, np.zeros_like(variance))

    def cdf(self, y):
        values, shape = columns(y, len(self))
        return ndtr(self._scores(values)[0]).reshape(shape)

    def logpdf(self, y):
        values, shape = columns(y, len(self))
        z, log_slope = self._scores(values)
        return (log_slope - 0.5 * z**2 - 0.5 * np.log(2 * np.pi)).reshape(shape)

    def sample(self, n_draws, random_state=None):
        rng = np.random.default_rng(random_state)
        return self._at(rng.standard_normal((len(self), check_n_draws(n_draws)))).T.copy()


__all__ = ["SplineFlowRegressor"]
