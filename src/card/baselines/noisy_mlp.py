"""Networks whose units are multiplied by noise: the kinds of dropout, each a gate before a layer.

With h the inputs of a layer, a gate gives z h, elementwise. With rate p, of mean 1 and variance p / (1 - p):

    Bernoulli    z = b / (1 - p), b = 1 with probability 1 - p    Gal and Ghahramani (2016)
    Gaussian     z ~ N(1, p / (1 - p))                            Srivastava et al. (2014)
    Concrete     as Bernoulli, p learned for each layer           Gal, Hron and Kendall (2017)

To learn p, b = 1[u < 1 - p], u ~ U(0, 1), is relaxed while training to sigmoid((logit(1 - p) - logit(u)) / t)
and comes back as t -> 0. The weights m_i that leave unit i of a layer's I inputs are kept or dropped as one:
a posterior whose divergence from N(0, 1 / l^2) is, up to a constant,

    l^2 (1 - p) / 2 sum_i |m_i|^2 - I H(p),    H(p) = -p log p - (1 - p) log(1 - p).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.nn import Linear, normal, uniform

TEMPERATURE = 0.1  # of the relaxed Bernoulli
EDGE = 1e-6  # how close to 0 or 1 a uniform number may come before its logit is taken


class Gate(nn.Module):
    """What is done to the inputs of a layer; by itself, nothing."""

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool) -> Tensor:
        """(M, B, I) -> (M, B, I); `common`: the same noise for all rows."""
        return x

    def divergence(self, layer: Linear) -> Tensor:
        """Of the posterior of the layer's weights from their prior (M,), where the gate makes one."""
        return layer.weight.new_zeros(len(layer.weight))


class BernoulliGate(Gate):
    """Units are dropped at a fixed rate, the others made up for it."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.kept = 1.0 - rate

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool) -> Tensor:
        kept = uniform(rngs, *noise_shape(x, common)) < self.kept
        return x * kept / self.kept


class GaussianGate(Gate):
    """Units are multiplied by N(1, p / (1 - p))."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.scale = math.sqrt(rate / (1.0 - rate))

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool) -> Tensor:
        return x * (1.0 + self.scale * normal(rngs, *noise_shape(x, common)).to(x))


class ConcreteGate(Gate):
    """Units are dropped at a learned rate; while training, all but dropped."""

    def __init__(self, rate: float, length_scale: float, n_members: int) -> None:
        super().__init__()
        self.length_scale = length_scale
        self.logit = nn.Parameter(torch.full((n_members, 1, 1), logit(1.0 - rate)))  # of being kept

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool) -> Tensor:
        u = uniform(rngs, *noise_shape(x, common)).to(x)
        kept = self.logit.sigmoid()
        if not self.training:
            return x * (u < kept) / kept
        return x * ((self.logit - u.logit(EDGE)) / TEMPERATURE).sigmoid() / kept

    def divergence(self, layer: Linear) -> Tensor:
        kept = self.logit[:, 0, 0].sigmoid()
        size = layer.weight.square().sum(dim=(1, 2))
        entropy = torch.special.entr(kept) + torch.special.entr(1.0 - kept)
        return 0.5 * self.length_scale**2 * kept * size - layer.weight.shape[1] * entropy


class NoisyMLP(nn.Module):
    """Affine layers with ReLU between them, each behind a gate of its own: (M, B, I) -> (M, B, C)."""

    gates: Any  # a list of Gate

    def __init__(self, sizes: Sequence[int], gate: Callable[[int], Gate], rngs: Sequence[Generator]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(i, o, rngs) for i, o in pairwise(sizes))
        self.gates = nn.ModuleList(gate(i) for i in sizes[:-1])

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool = False) -> Tensor:
        for i, (gate, layer) in enumerate(zip(self.gates, self.layers, strict=True)):
            x = gate(functional.relu(x) if i else x, rngs, common)
            x = layer(x)
        return x

    def divergence(self) -> Tensor:
        """Of the posterior of all weights from their prior, (M,)."""
        parts = [gate.divergence(layer) for gate, layer in zip(self.gates, self.layers, strict=True)]
        return torch.stack(parts).sum(0)


def noise_shape(x: Tensor, common: bool) -> tuple[int, int]:
    """Of the noise that x (M, B, I) is multiplied by, without the members."""
    return (1 if common else x.shape[1]), x.shape[2]


def logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)
