"""Networks whose gates read the row: every row has dropout rates of its own.

Fan, Zhang, Tanwisuth, Qian and Zhou (2021). Before each layer, with inputs h, a context network of two affine
maps (a tenth of the width between them) gives logits a(h), and the inputs are multiplied by

    Bernoulli    z = 1 with probability sigmoid(a), else 0,
    Gaussian     z ~ N(1, exp(-a)): with a rate p = sigmoid(-a), the variance p / (1 - p) of dropout,
    gating       z = sigmoid(a), without any chance.

The z of a row are latent variables of its own, with posterior q(z | h) and, in each layer, a prior p(z) of
the same kind with one logit eta, learned too. To the cross-entropy comes KL(q || p), which for a unit is

    Bernoulli    pi (a - eta) + log(1 - pi) - log(1 - pi_0),    pi = sigmoid(a), pi_0 = sigmoid(eta),
    Gaussian     (exp(eta - a) - 1 + a - eta) / 2,

summed over layers and, as in the authors' code, averaged over the units of each. There, too, context networks
read and leave alone what they read: no gradient goes through it.

A gate that is 0 or 1 has no gradient of its own. With z = 1[u < sigmoid(a)], u ~ U(0, 1), its mirror image
z' = 1[1 - u < sigmoid(a)] and a loss f, the derivative of E f(z) by a is E[(f(z') - f(z)) (u - 1/2)]:
augment, reinforce, merge (Yin and Zhou 2019). It takes one more pass from each layer on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.baselines.class_base import cross_entropy
from card.baselines.noisy_mlp import BernoulliGate, Gate, logit
from card.nn import Linear, normal, uniform

NARROWING = 10  # of a context network
SLOPE = 0.1  # of its leaky ReLU
START = 0.2  # rate that gates without chance begin with: they let through 0.8


class Context(nn.Module):
    """Logits of gates from what they are to let through: (M, B, I) -> (M, B, I).

    To begin with they are those of a rate, whatever comes.
    """

    def __init__(self, n_in: int, rate: float, rngs: Sequence[Generator]) -> None:
        super().__init__()
        width = max(1, n_in // NARROWING)
        self.narrow = Linear(n_in, width, rngs)
        self.widen = Linear(width, n_in, rngs, zero=True)
        nn.init.constant_(self.widen.bias, logit(1.0 - rate))

    def forward(self, x: Tensor) -> Tensor:
        return self.widen(functional.leaky_relu(self.narrow(x), SLOPE))


@dataclass
class Walk:
    """A batch's way through the layers: what each read, its gates' logits and their divergence."""

    inputs: list[Tensor]  # (M, B, I) each
    logits: list[Tensor]  # (M, B, I) each
    divergences: list[Tensor]  # (M, B) each
    out: Tensor  # (M, B, C)

    def losses(self, y: Tensor, first: int = 0) -> Tensor:
        """Cross-entropy of each row and the divergences from layer `first` on, (M, B)."""
        return sum(self.divergences[first:], start=cross_entropy(self.out, y))


class ContextualMLP(nn.Module, ABC):
    """Affine layers with ReLU between them, each behind gates that read: (M, B, I) -> (M, B, C)."""

    def __init__(self, sizes: Sequence[int], rate: float, rngs: Sequence[Generator]) -> None:
        super().__init__()
        self.widths = tuple(sizes[:-1])
        self.layers = nn.ModuleList(Linear(i, o, rngs) for i, o in pairwise(sizes))
        self.contexts = nn.ModuleList(Context(i, rate, rngs) for i in self.widths)
        self.prior = nn.Parameter(torch.full((len(rngs), len(self.layers)), logit(1.0 - rate)))

    @abstractmethod
    def chance(self, rngs: Sequence[Generator], n_rows: int, width: int) -> Tensor:
        """What decides on gates, (M, n_rows, width)."""

    @abstractmethod
    def gate(self, a: Tensor, u: Tensor) -> Tensor:
        """What inputs are multiplied by, from logits and chance."""

    @abstractmethod
    def gate_divergence(self, a: Tensor, eta: Tensor) -> Tensor:
        """Of the posterior with logits a from the prior with logit eta, elementwise."""

    def forward(self, x: Tensor, rngs: Sequence[Generator], common: bool = False) -> Tensor:
        """`common`: the same chance for all rows."""
        return self.walk(x, self.chances(rngs, 1 if common else x.shape[1])).out

    def loss(self, x: Tensor, y: Tensor, rngs: Sequence[Generator]) -> Tensor:
        """Mean over rows of cross-entropy and divergences, (M,)."""
        return self.walk(x, self.chances(rngs, x.shape[1])).losses(y).mean(1)

    def chances(self, rngs: Sequence[Generator], n_rows: int) -> list[Tensor]:
        """For the gates of each layer."""
        return [self.chance(rngs, n_rows, width) for width in self.widths]

    def walk(self, x: Tensor, chances: Sequence[Tensor], first: int = 0) -> Walk:
        """From what comes to layer `first` on; `chances` begin there, too."""
        inputs, logits, divergences = [], [], []
        for i, u in enumerate(chances, start=first):
            x = functional.relu(x) if i else x
            a = self.contexts[i](x.detach())
            inputs.append(x)
            logits.append(a)
            divergences.append(self.gate_divergence(a, self.prior[:, i, None, None]).mean(-1))
            x = self.layers[i](x * self.gate(a, u.to(x)))
        return Walk(inputs, logits, divergences, x)


class GaussianContextMLP(ContextualMLP):
    """Inputs are multiplied by N(1, exp(-a))."""

    def chance(self, rngs, n_rows, width):
        return normal(rngs, n_rows, width)

    def gate(self, a, u):
        return 1.0 + (-0.5 * a).exp() * u

    def gate_divergence(self, a, eta):
        return 0.5 * (torch.expm1(eta - a) + a - eta)


class BernoulliContextMLP(ContextualMLP):
    """Inputs are kept with probability sigmoid(a)."""

    def chance(self, rngs, n_rows, width):
        return uniform(rngs, n_rows, width)

    def gate(self, a, u):
        return (u < a.sigmoid()).to(a)

    def gate_divergence(self, a, eta):
        return a.sigmoid() * (a - eta) - functional.softplus(a) + functional.softplus(eta)

    def loss(self, x, y, rngs):
        chances = self.chances(rngs, x.shape[1])
        walk = self.walk(x, chances)
        merged = self.mirrored_gain(walk, chances, y)
        return (walk.losses(y) + merged - merged.detach()).mean(1)

    def mirrored_gain(self, walk: Walk, chances: Sequence[Tensor], y: Tensor) -> Tensor:
        """(M, B): its derivative by a gate's logit estimates that of the expected loss by way of the gate."""
        total = torch.zeros_like(walk.divergences[0])
        for i, (x, a, u) in enumerate(zip(walk.inputs, walk.logits, chances, strict=True)):
            with torch.no_grad():
                mirrored = self.layers[i](x * self.gate(a, 1.0 - u))
                other = self.walk(mirrored, chances[i + 1 :], first=i + 1)
                gain = other.losses(y) - walk.losses(y, first=i + 1)
            total = total + gain * ((u - 0.5) * a).sum(-1)
        return total


class ContextGate(Gate):
    """Inputs are multiplied by sigmoid(a), then dropped at a fixed rate."""

    def __init__(self, n_in: int, rate: float, rngs: Sequence[Generator]) -> None:
        super().__init__()
        self.context = Context(n_in, START, rngs)
        self.dropout = BernoulliGate(rate) if rate else Gate()

    def forward(self, x, rngs, common):
        return self.dropout(x * self.context(x).sigmoid(), rngs, common)
