"""Exact distributions without drawing: the probability-flow ODE and what it gives.

For one target the ODE carries the prior's z monotonically to the response: the q-quantile of y is
where the flow takes Phi^-1(q). Solve it once per row from fixed latents z_1 < ... < z_Q, with the
tangent dy/dz carried along. The curve z(y) through (y_i, z_i) with slopes dz/dy_i, a monotone cubic on
each piece and logarithmic beyond the outer nodes, **is** the predicted distribution:

    CDF  F(y) = Phi(z(y)),     density  p(y) = phi(z(y)) z'(y),

so the density is the derivative of the CDF and integrates to 1 by construction. Members average F
and p; quantiles invert the averaged F. "Exact" means exact for the learned flow on these nodes.

Of the tails, which hold a good percent, a flow learns next to nothing from data. They go on
with the slope of the outer node, and fall off slower than a Gaussian's the farther they go: an honest
model is surprised now and then, and should not call it impossible.

Where neighbouring latents land far apart (between modes) the coarse curve is refined: such rows are
solved once more from a finer set of latents and in smaller steps. This is decided row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from card.noise import Schedule
from card.sample import Denoise, Multistep, Sampler, all_nodes

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
FLOW_RANGE = (0.01, 30.0)  # noise-to-signal ratios that the flow walks through
REACH = 1.0  # of the tails, in latents, for the mean of an exponential
TAIL = 1.0  # how fast the tails leave the Gaussian's: z(y) grows like a logarithm of base exp(TAIL)


def latents(n_nodes: int, reach: float = 2.5) -> Tensor:
    """n_nodes values of z from -reach to reach, closer together in the middle."""
    u = torch.linspace(-1.0, 1.0, n_nodes, dtype=torch.float64)
    return reach * (0.8 * u + 0.2 * u**3)


def solve(denoise: Denoise, sampler: Sampler, start: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The end of the flow from `start` (M, B, 1), and the derivative along it from d start / dz = `slope`.

    An ODE sampler's step is linear in the state and in the estimate of r_0, so value and tangent,
    stacked, go through the very same loop; `denoise` gives the estimate and its derivative.
    """

    def no_noise() -> Tensor:
        raise AssertionError("the flow is deterministic")

    end = sampler(denoise, torch.stack([start, slope]), no_noise)
    return end[0], end[1]


def log_density(velocity: Denoise, schedule: Schedule, r: Tensor, centre: Tensor) -> Tensor:
    """log p(r_0) of residuals (M, B, K): the flow walked from the data to the noise, with its whole Jacobian.

    With a = cos(t), s = sin(t) the flow is dr/dt = -v(r, t), whose velocity v has unit variance at every
    level; Heun's method takes it from node to node. `velocity` gives v and its derivatives along K directions
    for a state (1 + K, M, B, K). At the top r is N(centre, I).
    """
    n_targets = r.shape[-1]
    directions = torch.eye(n_targets, dtype=r.dtype, device=r.device)
    state = torch.cat([r[None], directions[:, None, None].expand(-1, *r.shape[:-1], -1)])
    angles = torch.atan2(schedule.sigma, schedule.alpha).tolist()
    state = state - angles[1] * velocity(state, 1)
    for k in range(1, schedule.n_steps):
        step = angles[k + 1] - angles[k]
        slope = velocity(state, k)
        ahead = velocity(state - step * slope, k + 1)
        state = state - step / 2 * (slope + ahead)
    jacobian = state[1:].permute(1, 2, 3, 0).double()  # d r_T / d r_0
    bell = -0.5 * (state[0] - centre).double().square().sum(-1) - n_targets * LOG_SQRT_2PI
    return bell + torch.linalg.slogdet(jacobian).logabsdet


def ode(schedule: Schedule) -> Multistep:
    """The flow's solver, on all nodes of a schedule made for it."""
    return Multistep(schedule, all_nodes(schedule))


@dataclass(frozen=True)
class Curve:
    """Monotone curves z(y), one per member and row: values, latents and slopes at Q nodes.

    All float64: y and dz (M, N, Q); z (Q,), or (N, Q) or (M, N, Q) where latents differ.
    """

    y: Tensor
    z: Tensor
    dz: Tensor

    @classmethod
    def through(cls, y: Tensor, z: Tensor, dy: Tensor) -> Curve:
        """The curve through values y (M, N, Q) at latents z (Q,) with tangents dy/dz, made monotone."""
        y, dy, z = y.double(), dy.double(), z.double()
        gap = 1e-6 * _spread(y)
        steps = torch.arange(len(z), dtype=torch.float64, device=y.device)
        y = (y - gap * steps).cummax(dim=-1).values + gap * steps
        secant = torch.diff(z) / torch.diff(y, dim=-1)
        limit = 3.0 * torch.minimum(
            torch.cat([secant[..., :1], secant], -1), torch.cat([secant, secant[..., -1:]], -1)
        )
        dz = torch.where(dy > 0, 1.0 / dy.clamp_min(1e-300), limit)
        dz = torch.minimum(dz, limit)
        floor = 1e-3 * limit
        return cls(y, z, torch.maximum(dz, floor))

    def __len__(self) -> int:
        return self.y.shape[1]

    def rows(self, index) -> Curve:
        z = self.z if self.z.dim() == 1 else self.z[..., index, :]
        return Curve(self.y[:, index], z, self.dz[:, index])

    def denser(self, times: int) -> Curve:
        """The same curves in `times` as many pieces: a part of a cubic is that cubic."""
        share = torch.arange(times, dtype=torch.float64).to(self.y) / times
        inside = self.y[..., :-1, None] + torch.diff(self.y)[..., None] * share
        y = torch.cat([inside.flatten(2), self.y[..., -1:]], dim=-1)
        return Curve(y, *self.at_own(y))

    def with_rows(self, index: Tensor, other: Curve) -> Curve:
        """These curves, but for some rows, whose are the other's."""
        y, z, dz = self.y.clone(), self.z.expand(self.y.shape).clone(), self.dz.clone()
        y[:, index], z[:, index], dz[:, index] = other.y, other.z.expand(other.y.shape), other.dz
        return Curve(y, z, dz)

    def at(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """z and dz/dy at values y (N, m): each (M, N, m)."""
        n_members, n_rows, n_nodes = self.y.shape
        y = y.expand(n_members, n_rows, -1).contiguous()
        right = torch.searchsorted(self.y.contiguous(), y).clamp(1, n_nodes - 1)
        left = right - 1
        y0, y1 = self.y.gather(2, left), self.y.gather(2, right)
        d0, d1 = self.dz.gather(2, left), self.dz.gather(2, right)
        z = self.z.expand(self.y.shape)
        z0, z1 = z.gather(2, left), z.gather(2, right)
        h = y1 - y0
        t = ((y - y0) / h).clamp(0.0, 1.0)
        secant = (z1 - z0) / h
        c2 = 3.0 * secant - 2.0 * d0 - d1
        c3 = d0 + d1 - 2.0 * secant
        inside = z0 + h * t * (d0 + t * (c2 + t * c3))
        slope = d0 + t * (2.0 * c2 + 3.0 * t * c3)
        below, above = (y0 - y).clamp_min(0.0) * d0, (y - y1).clamp_min(0.0) * d1
        beyond = (torch.log1p(TAIL * above) - torch.log1p(TAIL * below)) / TAIL
        slope = torch.where(
            y < y0, d0 / (1.0 + TAIL * below), torch.where(y > y1, d1 / (1.0 + TAIL * above), slope)
        )
        return inside + beyond, slope.clamp_min(1e-300)

    def knots(self, away: Sequence[float]) -> Tensor:
        """The nodes and, on both sides, where z(y) has gone `away` beyond the outer ones: (M, N, ...)."""
        steps = torch.expm1(TAIL * torch.tensor(away, dtype=torch.float64)).to(self.y) / TAIL
        below = self.y[..., :1] - steps.flip(0) / self.dz[..., :1]
        return torch.cat([below, self.y, self.y[..., -1:] + steps / self.dz[..., -1:]], dim=-1)

    def cdf(self, y: Tensor) -> Tensor:
        """The members' mean CDF at y (N, m)."""
        return torch.special.ndtr(self.at(y)[0]).mean(0)

    def logpdf(self, y: Tensor) -> Tensor:
        """Log of the members' mean density at y (N, m)."""
        z, slope = self.at(y)
        log = -0.5 * z.square() - LOG_SQRT_2PI + slope.log()
        return torch.logsumexp(log, 0) - math.log(len(log))

    def quantile(self, q: Tensor) -> Tensor:
        """Where the mean CDF reaches q (m,) or (N, m): (N, m), by Newton steps kept within a bracket.

        The steps are for the normal score of the CDF, which is closer to a line than the CDF. One that leaves
        the bracket, or is over half as long as the one before, gives way to the bracket's middle.
        """
        target = q.to(self.y).expand(len(self), q.shape[-1]).contiguous()
        score = torch.special.ndtri(target)
        low, high, y = self._bracket(score)
        close = (1e-9 * torch.minimum(target, 1.0 - target)).clamp_min(1e-15)
        curve, rows, out = self, torch.arange(len(self), device=y.device), torch.empty_like(y)
        before = torch.full_like(y, math.inf)
        for i in range(1, 61):
            out[rows] = y
            z, slope = curve.at(y)
            cdf = torch.special.ndtr(z).mean(0)
            error = cdf - target
            found = error.abs() < close
            if bool(found.all()):
                break
            low, high = torch.where(error < 0, y, low), torch.where(error < 0, high, y)
            now = torch.special.ndtri(cdf)
            steep = torch.exp(0.5 * (now.square() - z.square())).mul(slope).mean(0)
            newton = y - (now - score) / steep
            safe = (newton > low) & (newton < high) & ((newton - y).abs() <= 0.5 * before)
            to = torch.where(found, y, torch.where(safe, newton, 0.5 * (low + high)))
            before, y = (to - y).abs(), to
            if i % 4 == 0:  # go on with the rows that have not arrived
                on = ~found.all(1)
                curve = curve.rows(on)
                rows, target, score, low, high, y, close, before = (
                    a[on] for a in (rows, target, score, low, high, y, close, before)
                )
        return out

    def _bracket(self, score: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Between which values the mean CDF has this normal score (N, m), and a guess: (N, m) each.

        A mixture's quantile is among those of its members. Of these the piece of the curve is known, and
        beyond the outer nodes the value.
        """
        n_members, n_rows, n_nodes = self.y.shape
        score = score.expand(n_members, n_rows, -1).contiguous()
        z = self.z.expand(self.y.shape).contiguous()
        right = torch.searchsorted(z, score).clamp(1, n_nodes - 1)
        (z0, y0, d0), (z1, y1, d1) = (
            [a.gather(2, end) for a in (z, self.y, self.dz)] for end in (right - 1, right)
        )
        below, above = (torch.expm1(TAIL * u.clamp_min(0.0)) / TAIL for u in (z0 - score, score - z1))
        low = torch.where(score > z1, y1 + above / d1, y0 - below / d0)
        high = torch.where(score < z0, y0 - below / d0, y1 + above / d1)
        share = ((score - z0) / (z1 - z0)).clamp(0.0, 1.0)
        return low.amin(0), high.amax(0), torch.lerp(low, high, share).mean(0)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of each member's distribution: (M, N) each."""
        y, mass, _ = self._quadrature()
        return _moments(y, mass)

    def exponential_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of exp(y): (M, N) each.

        Tails are made heavy, and the exponential of a heavy tail has no mean: y stops where z(y) is `REACH`
        beyond the outer nodes.
        """
        y, mass, _ = self._quadrature()
        ends = self.knots((REACH,))
        return _moments(torch.exp(y.clamp(ends[..., :1], ends[..., -1:])), mass)

    def with_mean(self, mean: Tensor, n_steps: int = 4) -> Curve:
        """The distributions Phi(z(y) + d), each row's d such that the mean of the mixture is `mean` (N,).

        A bell moves as it is; of several modes, which stay where they are, some gain what others lose.
        """
        curve = self
        for _ in range(n_steps):  # Newton's, for the mean falls by E[dy/dz] = integral of phi(z(y)) dy
            y, mass, bell = curve._quadrature()
            error = (mass * y).sum(-1).mean(0) - mean
            step = (error / bell.sum(-1).mean(0)).clamp(-0.5, 0.5)
            curve = Curve(self.y, curve.z + step[:, None], self.dz)
        return curve

    def _quadrature(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points piece by piece, and there, times the weights, the members' p(y), to 1, and phi(z(y))."""
        points, weights = (torch.from_numpy(a).to(self.y) for a in np.polynomial.legendre.leggauss(5))
        edges = self.knots((0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0))
        h = torch.diff(edges, dim=-1)
        y = (edges[..., :-1, None] + h[..., None] * (points + 1) / 2).flatten(2)
        z, slope = self.at_own(y)
        bell = torch.exp(-0.5 * z.square() - LOG_SQRT_2PI) * (h[..., None] * weights / 2).flatten(2)
        mass = bell * slope
        return y, mass / mass.sum(-1, keepdim=True), bell

    def at_own(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """z and dz/dy of each member at values of its own: y (M, N, m), as are both."""
        z = self.z if self.z.dim() == 1 else self.z.expand(self.y.shape).flatten(0, 1)
        flat = Curve(self.y.flatten(0, 1)[None], z, self.dz.flatten(0, 1)[None])
        z, slope = flat.at(y.flatten(0, 1))
        return z.view(y.shape), slope.view(y.shape)


def _moments(y: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    mean = (mass * y).sum(-1)
    return mean, (mass * (y - mean[..., None]).square()).sum(-1)


def _spread(y: Tensor) -> Tensor:
    """A positive length typical of each curve, for gaps that keep nodes apart."""
    return (y[..., -1:] - y[..., :1]).abs().clamp_min(1e-9 * y.abs().amax(-1, keepdim=True) + 1e-300)


def bends(y: Tensor, z: Tensor, dy: Tensor, factor: float) -> Tensor:
    """Pieces (N, Q - 1) that some member's curve crosses `factor` times as steeply as it enters or leaves.

    Beyond 3 a cubic cannot follow.
    """
    step = torch.diff(y, dim=-1) / torch.diff(z).to(y)
    end = torch.minimum(dy[..., 1:], dy[..., :-1])
    bent = (step > factor * end).any(0)
    bent[:, [0, -1]] = False  # the outermost pieces hold little mass
    return bent
