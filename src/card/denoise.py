"""The denoiser: what is the clean residual, given a noisy one and x?

Both networks here read the row (x and f) once, into a context, and then the noisy residual and
the noise level; what depends on the row alone is never computed per draw or per step.

`TableDenoiser` is the network of the paper: it predicts the noise eps from y_k = r_k + centre, f and
x, with a learnable row per time step multiplied onto every layer.

`UnitDenoiser` works at any noise level. For a residual of unit variance,

    r_k = a r_0 + s eps,     r_0 = a r_k + s v,     v = s r_0 - a eps,

and v has unit variance at every level, as has the input r_k: the network learns v. This is
the preconditioning of Karras et al. (2022) for unit variance. A network that returns 0 leaves the
prior N(0, 1) as it is, so training starts from the Gaussian around f and can only add to it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.nn import Linear, Space, Table, affine, gradient, normal, softplus_of_two, uniform
from card.noise import Schedule
from card.sample import Denoise

IN_CACHE = 512  # rows whose activations stay in a core's cache


class Denoiser(nn.Module, ABC):
    """M networks that estimate r_0."""

    @abstractmethod
    def context(self, x: Tensor, f: Tensor, rngs: Sequence[Generator] | None = None) -> Tensor:
        """What the rows x (M, N, D), f (M, N, K) contribute: (M, N, H). `rngs` while training."""

    @abstractmethod
    def at(self, context: Tensor, schedule: Schedule) -> Denoise:
        """The estimate of r_0 for rows of this context, at the nodes of a schedule."""

    @abstractmethod
    def loss(self, r: Tensor, x: Tensor, f: Tensor, rngs: Sequence[Generator]) -> Tensor:
        """Mean squared error per member (M,) at random noise levels, for clean residuals r (M, B, K)."""


class TableDenoiser(Denoiser):
    """The paper's network: 3 x [Linear * row of step k -> Softplus] -> Linear (CARD, Table 6a).

    Parameters
    ----------
    mean_input
        Whether f is an input of the network.
    centred
        Whether the prior is N(f, I), so that the network reads y_k = r_k + f; otherwise r is y itself.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        schedule: Schedule,
        rngs: Sequence[Generator],
        width: int = 128,
        mean_input: bool = True,
        centred: bool = True,
    ) -> None:
        super().__init__()
        self.schedule, self.n_targets = schedule, n_targets
        self.rounded = Schedule(
            schedule.alpha.float(), schedule.sigma.float()
        )  # for training, once and for all
        self.mean_input, self.centred, self.width = mean_input, centred, width
        n_in = n_targets + n_targets * mean_input + n_features
        self.first = Linear(n_in, width, rngs)
        self.hidden = nn.ModuleList(Linear(width, width, rngs) for _ in range(2))
        self.last = Linear(width, n_targets, rngs)
        self.times = Table(schedule.n_steps + 1, 3 * width, rngs)
        self.space = Space()

    def context(self, x, f, rngs=None):
        response, rest = self.first.weight.split(
            [self.n_targets, self.first.weight.shape[1] - self.n_targets], 1
        )
        row = torch.cat([f, x], dim=2) if self.mean_input else x
        context = affine(self.first.bias, row, rest)
        return affine(context, f, response) if self.centred else context

    def at(self, context, schedule):
        if schedule is not self.schedule:
            raise ValueError(
                "This network knows only the time steps it was trained on: pick nodes among them."
            )
        alpha, sigma = schedule.alpha.tolist(), schedule.sigma.tolist()
        response, last = self.first.weight[:, : self.n_targets], math.log(2.0) * self.last.weight
        n_members, n_rows, _ = context.shape
        blocks = [slice(i, min(i + IN_CACHE, n_rows)) for i in range(0, n_rows, IN_CACHE)]
        space = context.new_empty(2, n_members, min(IN_CACHE, n_rows), self.width)  # used at every step

        @torch.no_grad()
        def denoise(r: Tensor, k: int) -> Tensor:
            """With activations in units of log 2, and gates multiplied onto the weights."""
            gates = self.times.at(k)
            parts = gates.split(self.width, dim=-1)
            layers = [
                (layer.bias * (gate / math.log(2.0)), layer.weight * gate)
                for layer, gate in zip(self.hidden, parts[1:], strict=True)
            ]
            eps = torch.empty_like(r)
            for block in blocks:
                u, h = space[:, :, : block.stop - block.start]
                affine(context[:, block], r[:, block], response, out=u)
                softplus_of_two(u.mul_(parts[0] / math.log(2.0)), out=h)
                for bias, weight in layers:
                    softplus_of_two(affine(bias, h, weight, out=u), out=h)
                affine(self.last.bias, h, last, out=eps[:, block])
            return (r - sigma[k] * eps) / alpha[k]

        return denoise

    def loss(self, r, x, f, rngs):
        k = self.antithetic_times(r.shape[1], rngs)
        eps = normal(rngs, *r.shape[1:])
        y = self.rounded.diffuse(r, eps, k)
        y = y + f if self.centred else y
        inputs = torch.cat([y, f, x] if self.mean_input else [y, x], dim=2)
        layers = (self.first, *self.hidden, self.last)
        parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
        return _NoiseError.apply(self.space, inputs, self.times(k), eps, *parameters)

    def antithetic_times(self, n: int, rngs: Sequence[Generator]) -> Tensor:
        """(M, n) steps of 1..T: a uniform half and its mirror image."""
        n_steps = self.schedule.n_steps
        half = (uniform(rngs, n // 2 + 1) * n_steps).long().clamp(max=n_steps - 1)
        return torch.cat([half, n_steps - 1 - half], dim=1)[:, :n] + 1


class _NoiseError(torch.autograd.Function):
    """The paper's network and its mean squared error (M,), with the gradient in closed form.

    Autograd would give the same and take longer: here the slope of softplus comes with its value, and every
    step works in the same memory. Arguments: that memory, what the first layer reads (M, B, I), the rows of
    the table (M, B, 3H), the noise (M, B, K), and each layer's weight and bias, whose gradients are added to
    in place.
    """

    @staticmethod
    def forward(ctx, space: Space, inputs: Tensor, gates: Tensor, eps: Tensor, *parameters: Tensor) -> Tensor:
        h, sums, slopes, below = inputs, [], [], [inputs]
        for i, gate in enumerate(gates.chunk(3, dim=-1)):
            sums.append(torch.baddbmm(parameters[2 * i + 1], h, parameters[2 * i], out=space("sum", i, gate)))
            u = torch.mul(sums[i], gate, out=space("u", 0, gate))
            slope = torch.clamp(u, max=64.0, out=space("slope", i, gate)).exp_()
            h = torch.add(slope, 1.0, out=space("h", i, gate))
            slopes.append(slope.div_(h))
            below.append(torch.maximum(h.log_(), u, out=h))
        error = torch.baddbmm(parameters[-1], h, parameters[-2]).sub_(eps)
        ctx.space, ctx.parameters, ctx.kept = space, parameters, (gates, error, sums, slopes, below)
        return error.square().mean(dim=(1, 2))

    @staticmethod
    def backward(ctx, upstream: Tensor):
        space, parameters, (gates, error, sums, slopes, below) = ctx.space, ctx.parameters, ctx.kept
        down = error * (upstream * (2.0 / error[0].numel()))[:, None, None]
        by_gate = space("gates", 0, gates)
        gates_and_grads = list(zip(gates.chunk(3, dim=-1), by_gate.chunk(3, dim=-1), strict=True))
        for i in (3, 2, 1, 0):
            weight, bias = parameters[2 * i : 2 * i + 2]
            gradient(weight).baddbmm_(below[i].transpose(1, 2), down)
            gradient(bias).add_(down.sum(1, keepdim=True))
            if i > 0:
                gate, grad = gates_and_grads[i - 1]
                down = torch.bmm(down, weight.transpose(1, 2), out=space("down", i % 2, gate))
                torch.mul(down.mul_(slopes[i - 1]), sums[i - 1], out=grad)
                down.mul_(gate)
        return None, None, by_gate, None, *[None] * len(parameters)


def _silu_(u: Tensor) -> Tensor:
    """Puts h = silu(u) in the place of u, and returns its derivative s + h (1 - s), with s = sigmoid(u)."""
    s = torch.sigmoid(u)
    return torch.lerp(u.mul_(s), torch.ones((), dtype=u.dtype, device=u.device), s)


class UnitDenoiser(Denoiser):
    """Predicts v for residuals of unit variance; smooth features of log-SNR gate the layers.

    The noise-to-signal ratio s / a of a training batch is log-normal: log ratio ~ N(centre, spread).
    """

    N_LEVEL_FEATURES = 12

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        rngs: Sequence[Generator],
        width: int = 128,
        dropout: float = 0.0,
        level: tuple[float, float] = (-0.8, 1.2),
    ) -> None:
        super().__init__()
        self.width, self.dropout, self.level = width, dropout, level
        self.row = nn.ModuleList([Linear(n_features + n_targets, width, rngs), Linear(width, width, rngs)])
        self.response = nn.Parameter(2.0 * uniform(rngs, n_targets, width) - 1.0)
        self.hidden = Linear(width, width, rngs)
        self.gate = Linear(self.N_LEVEL_FEATURES, 2 * width, rngs, zero=True)
        self.last = Linear(width, n_targets, rngs, zero=True)

    def context(self, x, f, rngs=None):
        h = functional.silu(self.row[0](torch.cat([f, x], dim=2)))
        if rngs is not None and self.dropout > 0:
            h = h * (uniform(rngs, *h.shape[1:]) >= self.dropout) / (1.0 - self.dropout)
        return self.row[1](h)

    def level_features(self, log_ratio: Tensor) -> Tensor:
        """Smooth functions of log(s / a) (...,) -> (..., features): it, and bumps along it."""
        centres = torch.linspace(-4.5, 3.5, self.N_LEVEL_FEATURES - 1).to(log_ratio)
        bumps = torch.exp(-0.5 * ((log_ratio[..., None] - centres) / 0.8).square())
        return torch.cat([log_ratio[..., None] / 4.0, bumps], dim=-1)

    def velocity(self, r: Tensor, context: Tensor, gates: Tensor) -> Tensor:
        """v, for noisy residuals r (M, B, K) and gates (M, B or 1, 2H)."""
        one, two = gates.split(self.width, dim=-1)
        h = functional.silu(affine(context, r, self.response) * (1.0 + one))
        h = functional.silu(self.hidden(h) * (1.0 + two))
        return self.last(h)

    def gates(self, schedule: Schedule) -> Tensor:
        """The gates at nodes 1..T of a schedule: (M, T, 2H)."""
        log_ratio = -0.5 * schedule.log_snr[1:].to(self.last.weight)
        return self.gate(self.level_features(log_ratio).expand(len(self.last.weight), -1, -1))

    def at(self, context, schedule):
        alpha, sigma, gates = schedule.alpha.tolist(), schedule.sigma.tolist(), self.gates(schedule)

        def denoise(r: Tensor, k: int) -> Tensor:
            return alpha[k] * r + sigma[k] * self.velocity(r, context, gates[:, k - 1 : k])

        return denoise

    def at_with_tangents(self, context: Tensor, schedule: Schedule, apart: float = 1.0) -> Denoise:
        """As `at`, for a state (1 + J, M, B, K): r_k and J directions, whose derivatives come out beside.

        Members keep `apart` of what their velocity differs by from the average: at 1 each walks by itself.
        """
        alpha, sigma, gates = schedule.alpha.tolist(), schedule.sigma.tolist(), self.gates(schedule)

        def denoise(state: Tensor, k: int) -> Tensor:
            v = self.velocity_with_tangents(state, context, gates[:, k - 1 : k])
            if apart < 1.0:
                v = torch.lerp(v.mean(1, keepdim=True), v, apart)
            return alpha[k] * state + sigma[k] * v

        return denoise

    def velocities(self, context: Tensor, schedule: Schedule) -> Denoise:
        """v and its derivatives at the nodes of a schedule, for states as in `at_with_tangents`."""
        gates = self.gates(schedule)
        return lambda state, k: self.velocity_with_tangents(state, context, gates[:, k - 1 : k])

    def velocity_with_tangents(self, state: Tensor, context: Tensor, gates: Tensor) -> Tensor:
        """v and its derivatives along the directions in state[1:], by way of its Jacobian."""
        n_targets, (_, n_members, n_rows, _) = self.response.shape[1], state.shape
        one, two = (1.0 + gates).split(self.width, dim=-1)
        first = context.new_empty(n_members, 1 + n_targets, n_rows, self.width)
        torch.mul(affine(context, state[0], self.response), one, out=first[:, 0])
        slope = _silu_(first[:, 0])
        torch.mul(slope[:, None], (self.response * one)[:, :, None], out=first[:, 1:])
        second = torch.bmm(first.flatten(1, 2), self.hidden.weight * two).view_as(first)
        slope = _silu_(second[:, 0].add_(self.hidden.bias * two))
        second[:, 1:].mul_(slope[:, None])
        last = affine(torch.zeros_like(self.last.bias), second.flatten(1, 2), self.last.weight)
        value, jacobian = last.view(n_members, 1 + n_targets, n_rows, -1).split([1, n_targets], dim=1)
        tangents = (state[1:, ..., None] * jacobian.transpose(1, 2)).sum(-2)
        return torch.cat([value.transpose(0, 1) + self.last.bias, tangents])

    def loss(self, r, x, f, rngs):
        n = r.shape[1]
        context = self.context(x, f, rngs)
        strata = (torch.arange(n, device=r.device) + uniform(rngs, n)) / n
        centre, spread = self.level
        log_ratio = centre + spread * math.sqrt(2.0) * torch.erfinv(
            (2.0 * strata - 1.0).clamp(-0.9999, 0.9999)
        )
        return self.loss_at(r, context, log_ratio, normal(rngs, *r.shape[1:]))

    def loss_at(self, r: Tensor, context: Tensor, log_ratio: Tensor, eps: Tensor) -> Tensor:
        """The loss at given levels log(s / a) (M, B) and noise (M, B, K)."""
        ratio = log_ratio.exp()[..., None]
        alpha = (1.0 + ratio.square()).rsqrt()
        sigma = ratio * alpha
        gates = self.gate(self.level_features(log_ratio))
        error = self.velocity(alpha * r + sigma * eps, context, gates) - (sigma * r - alpha * eps)
        return error.square().mean(dim=(1, 2))
