"""Bayes by backprop: a Gaussian for every weight, learned by gradients of the evidence lower bound.

Blundell, Cornebise, Kavukcuoglu and Wierstra (2015). A weight has the posterior N(m, s^2), s = softplus(rho),
and the prior N(0, s_0^2); their divergence is

    sum over weights of log(s_0 / s) + (s^2 + m^2) / (2 s_0^2) - 1/2.

The authors draw the weights once a batch, and estimate the divergence from a prior of two Gaussians. Here it
is exact, and while training each row has a draw of its own: given its inputs h a layer's output is Gaussian,
with mean h m and variance h^2 s^2 (Kingma, Salimans and Welling 2015): the same expectation, with less noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.baselines.base import check_positive, settings
from card.baselines.class_base import NetworkClassifier
from card.nn import Linear, affine, normal


class GaussianLinear(nn.Module):
    """M affine maps whose weights and biases are independent Gaussians: (M, B, I) -> (M, B, O)."""

    def __init__(self, n_in: int, n_out: int, scale: float, rngs: Sequence[Generator]) -> None:
        super().__init__()
        self.mean = Linear(n_in, n_out, rngs)
        rho = scale + math.log(-math.expm1(-scale))  # softplus(rho) = scale
        self.rho = nn.ParameterList([torch.full_like(m, rho) for m in self.mean.parameters()])

    def scales(self) -> list[Tensor]:
        """Standard deviations of the weights (M, I, O) and of the biases (M, 1, O)."""
        return [functional.softplus(rho) for rho in self.rho]

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool = False) -> Tensor:
        """`common`: one draw of the weights for all rows, else one for each."""
        weight, bias = self.mean.weight, self.mean.bias
        scale, bias_scale = self.scales()
        if common:
            noise, bias_noise = (normal(rngs, *m.shape[1:]).to(x) for m in (weight, bias))
            return affine(bias + bias_scale * bias_noise, x, weight + scale * noise)
        variance = affine(bias_scale.square(), x.square(), scale.square())
        return self.mean(x) + variance.sqrt() * normal(rngs, *variance.shape[1:]).to(x)

    def divergence(self, prior_scale: float) -> Tensor:
        """Of the posterior from N(0, prior_scale^2), summed over weights and biases, (M,)."""
        pairs = zip(self.mean.parameters(), self.scales(), strict=True)
        return sum((gaussian_divergence(m, s, prior_scale) for m, s in pairs), torch.zeros(()))


class MeanFieldMLP(nn.Module):
    """Such maps with ReLU between them: (M, B, I) -> (M, B, C)."""

    layers: Any  # a list of GaussianLinear

    def __init__(
        self, sizes: Sequence[int], scale: float, prior_scale: float, rngs: Sequence[Generator]
    ) -> None:
        super().__init__()
        self.prior_scale = prior_scale
        self.layers = nn.ModuleList(GaussianLinear(i, o, scale, rngs) for i, o in pairwise(sizes))

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool = False) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(functional.relu(x) if i else x, rngs, common)
        return x

    def divergence(self) -> Tensor:
        """Of the posterior of all weights from their prior, (M,)."""
        return torch.stack([layer.divergence(self.prior_scale) for layer in self.layers]).sum(0)


def gaussian_divergence(mean: Tensor, scale: Tensor, prior_scale: float) -> Tensor:
    """KL(N(mean, scale^2) || N(0, prior_scale^2)), summed but for the first axis."""
    size = (scale.square() + mean.square()) / (2.0 * prior_scale**2)
    return (size - scale.log() + math.log(prior_scale) - 0.5).flatten(1).sum(1)


@settings
class BayesByBackpropClassifier(NetworkClassifier):
    """Mean over draws of the weights from a Gaussian for each.

    Parameters
    ----------
    prior_scale
        Standard deviation of the weights' prior.
    initial_scale
        Standard deviation of the weights' posterior to start from.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> model = BayesByBackpropClassifier(hidden=(10,), epochs=5, random_state=0).fit(X, X[:, 0] > 0)
    >>> model.sample_proba(X, n_draws=20).shape
    (20, 50, 2)
    """

    prior_scale: float = 0.1
    initial_scale: float = 0.01

    def _check_parameters(self):
        super()._check_parameters()
        check_positive(prior_scale=self.prior_scale, initial_scale=self.initial_scale)

    def _network(self, sizes, rngs):
        return MeanFieldMLP(sizes, self.initial_scale, self.prior_scale, rngs)
