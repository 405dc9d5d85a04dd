"""Bayes by backprop: a Gaussian for every weight, learned by gradients of the evidence lower bound.

Blundell, Cornebise, Kavukcuoglu and Wierstra (2015). A weight has the posterior N(m, s^2), s = softplus(rho),
and the prior N(0, s_0^2); their divergence is

    sum over weights of log(s_0 / s) + (s^2 + m^2) / (2 s_0^2) - 1/2.

s_0 falls with the root of the number of a layer's inputs, so that under the prior its outputs are as large as
they: a weight that is of no use may then stay at its prior, at no cost and doing little harm.

The authors draw the weights once a batch, and estimate the divergence from a prior of two Gaussians. Here it
is exact, and while training each row has a draw of its own: given its inputs h a layer's output is Gaussian,
with mean h m and variance h^2 s^2 (Kingma, Salimans and Welling 2015): the same expectation, with less noise.
At its full weight the divergence of so many weights outweighs what the rows say, and the network underfits; a
weight below 1 makes a "cold" posterior, which predicts better (Wenzel et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.baselines.base import check_not_negative, check_positive, settings
from card.baselines.class_base import NetworkClassifier, cross_entropy
from card.nn import Linear, affine, normal


class GaussianLinear(nn.Module):
    """M affine maps whose weights and biases are independent Gaussians: (M, B, I) -> (M, B, O)."""

    def __init__(
        self, n_in: int, n_out: int, prior_scale: float, start: float, rngs: Sequence[Generator]
    ) -> None:
        super().__init__()
        self.mean = Linear(n_in, n_out, rngs)
        self.priors = (prior_scale / math.sqrt(n_in), prior_scale)  # of weights, of biases
        scales = [inverse_softplus(start * prior) for prior in self.priors]
        pairs = zip(self.mean.parameters(), scales, strict=True)
        self.rho = nn.ParameterList([torch.full_like(mean, rho) for mean, rho in pairs])

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

    def divergence(self) -> Tensor:
        """Of the posterior from the prior, summed over weights and biases, (M,)."""
        parts = zip(self.mean.parameters(), self.scales(), self.priors, strict=True)
        return torch.stack([gaussian_divergence(*part) for part in parts]).sum(0)


class MeanFieldMLP(nn.Module):
    """Such maps with ReLU between them: (M, B, I) -> (M, B, C)."""

    layers: Any  # a list of GaussianLinear

    def __init__(
        self, sizes: Sequence[int], prior_scale: float, start: float, rngs: Sequence[Generator]
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            GaussianLinear(i, o, prior_scale, start, rngs) for i, o in pairwise(sizes)
        )

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool = False) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(functional.relu(x) if i else x, rngs, common)
        return x

    def divergence(self) -> Tensor:
        """Of the posterior of all weights from their prior, (M,)."""
        return torch.stack([layer.divergence() for layer in self.layers]).sum(0)


def inverse_softplus(value: float) -> float:
    return value + math.log(-math.expm1(-value))


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
        Standard deviation of the weights' prior, times the root of the number of a layer's inputs.
    kl_weight
        Of the divergence; 1 for the evidence lower bound.
    start
        Standard deviation of the posterior to start from, as a share of the prior's.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> model = BayesByBackpropClassifier(hidden=(10,), epochs=5, random_state=0).fit(X, X[:, 0] > 0)
    >>> model.sample_proba(X, n_draws=20).shape
    (20, 50, 2)
    """

    prior_scale: float = 1.0
    kl_weight: float = 1.0
    start: float = 0.3

    def _check_parameters(self):
        super()._check_parameters()
        check_positive(prior_scale=self.prior_scale, start=self.start)
        check_not_negative(kl_weight=self.kl_weight)

    def _network(self, sizes, rngs):
        return MeanFieldMLP(sizes, self.prior_scale, self.start, rngs)

    def _loss(self, network, x, y, rngs, n_rows):
        fit = cross_entropy(network(x, rngs), y).mean(dim=1)
        return fit + self.kl_weight * network.divergence() / n_rows
