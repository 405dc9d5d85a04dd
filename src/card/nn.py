"""Layers with a leading member axis: M independent networks in one batched call.

Members never meet: each has its own weights, its own initial values (drawn from a generator of
its own) and its own rows, so that networks trained together equal networks trained alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.rows import RowAdam


def generators(seeds: Sequence[int], device: torch.device | str = "cpu") -> list[Generator]:
    """One generator per member."""
    return [Generator(device).manual_seed(seed) for seed in seeds]


def uniform(rngs: Sequence[Generator], *shape: int) -> Tensor:
    """(M, *shape) numbers of U(0, 1), member m's from generator m."""
    return _stacked([torch.rand(shape, generator=rng, device=rng.device) for rng in rngs])


def normal(rngs: Sequence[Generator], *shape: int) -> Tensor:
    """(M, *shape) numbers of N(0, 1), member m's from generator m."""
    return _stacked([torch.randn(shape, generator=rng, device=rng.device) for rng in rngs])


def _stacked(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts) if len(parts) > 1 else parts[0][None]


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    if torch.is_grad_enabled():
        return functional.softplus(x)
    return softplus_of_two(x / math.log(2.0)).mul_(math.log(2.0))


def softplus_of_two(u: Tensor, out: Tensor | None = None) -> Tensor:
    """log2(1 + 2^u), softplus in units of log 2, without gradients: powers of two cost a CPU half as much."""
    h = torch.clamp(u, max=64.0, out=out).exp2_().add_(1.0).log2_()
    return torch.maximum(h, u, out=h)


class Linear(nn.Module):
    """M independent affine maps: (M, B, I) -> (M, B, O)."""

    def __init__(self, n_in: int, n_out: int, rngs: Sequence[Generator], zero: bool = False) -> None:
        super().__init__()
        bound = 0.0 if zero else 1.0 / math.sqrt(max(n_in, 1))
        self.weight = nn.Parameter(bound * (2.0 * uniform(rngs, n_in, n_out) - 1.0))
        self.bias = nn.Parameter(bound * (2.0 * uniform(rngs, 1, n_out) - 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return affine(self.bias, x, self.weight)


def affine(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """bias + x @ weight, batched; a row's result does not depend on where in the batch it stands.

    For this, products with a single column or a single inner index are written out: a library's routine
    for them may round by the position of a row. In training, where rows are met in any order, it serves.
    """
    if torch.is_grad_enabled():
        return torch.baddbmm(bias, x, weight)
    if weight.shape[1] == 1:
        return torch.addcmul(bias, x, weight, out=out)
    if weight.shape[2] == 1:
        return torch.add(bias, (x * weight.transpose(1, 2)).sum(-1, keepdim=True), out=out)
    return torch.baddbmm(bias, x, weight, out=out)


class Space:
    """Memory that is used again at every step of a training: to ask for it anew costs more than most sums."""

    def __init__(self) -> None:
        self.tensors: dict[tuple, Tensor] = {}

    def __call__(self, name: str, i: int, like: Tensor) -> Tensor:
        """A tensor of the shape of another; whatever was in it under this name is lost."""
        key = (name, i, like.shape, like.device)
        if key not in self.tensors:
            self.tensors[key] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return self.tensors[key]


def gradient(parameter: Tensor) -> Tensor:
    """The gradient that a parameter holds, to be added to in place; zeros if it has none yet."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


class _Rows(torch.autograd.Function):
    """Rows of a table (M, R, O) by their numbers in all of it (M, B): (M, B, O).

    Their gradients are added to the table's in place: a table is too large to be made anew at every step.
    """

    @staticmethod
    def forward(ctx, table: Tensor, numbers: Tensor) -> Tensor:
        ctx.table, ctx.numbers = table, numbers.flatten()
        return table.flatten(0, 1).index_select(0, ctx.numbers).view(*numbers.shape, -1)

    @staticmethod
    def backward(ctx, upstream: Tensor):
        gradient(ctx.table).flatten(0, 1).index_add_(0, ctx.numbers, upstream.flatten(0, 1))
        return None, None


class Table(nn.Module):
    """M tables of learnable rows, init U(0, 1): k (M, B) -> (M, B, O).

    While `rows` holds an optimiser, a look-up brings the rows asked for up to date and hands them
    out as leaves, so that a step costs what the batch touches and not what the table holds.
    """

    def __init__(self, n_rows: int, n_out: int, rngs: Sequence[Generator]) -> None:
        super().__init__()
        self.weight = nn.Parameter(uniform(rngs, n_rows, n_out))
        self.rows: RowAdam | None = None

    def forward(self, k: Tensor) -> Tensor:
        if self.rows is not None and torch.is_grad_enabled():
            return self.rows.look_up(k)
        first = torch.arange(len(k), device=k.device)[:, None] * self.weight.shape[1]
        return _Rows.apply(self.weight, k + first)

    def at(self, k: int) -> Tensor:
        """Row k of each member: (M, 1, O)."""
        return self.weight[:, k : k + 1]


class MLP(nn.Module):
    """Affine layers with an activation between them: (M, B, I) -> (M, B, O)."""

    def __init__(self, sizes, activation, rngs, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(i, o, rngs) for i, o in pairwise(sizes))
        self.activation = activation
        self.dropout = dropout

    def forward(self, x: Tensor, rngs: Sequence[Generator] | None = None) -> Tensor:
        """`rngs`, given while training, turns dropout on."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
            if rngs is not None and self.dropout > 0:
                keep = uniform(rngs, *x.shape[1:]) >= self.dropout
                x = x * keep / (1.0 - self.dropout)
        return self.layers[-1](x)


def member(module: nn.Module, m: int) -> dict[str, Tensor]:
    """The state of one member, with a member axis of length one."""
    return {name: value[m : m + 1].clone() for name, value in module.state_dict().items()}
