"""The fitted thing: codec + mean + denoiser, and the ways to a predicted distribution.

In the model's coordinates a response is z = c_m(x) + scale * r. Its centre is the mean model's f, or 0
for the prior N(0, I); r is the residual that the diffusion draws. With M fold models f_1..f_M of
average f, member m is centred at

    c_m = f + (f_m - f) / sqrt(M - 1),

so that the members spread by the variance of the average f and not by that of a single model: this
is the epistemic part that folds can tell. For one member c = f, as in the paper. The members' denoisers are
averaged in the same way while the flow is solved, since an average of regressions errs less than each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from card.codec import Codec
from card.denoise import Denoiser, UnitDenoiser
from card.flow import FLOW_RANGE, Curve, bends, latents, log_density, ode, solve
from card.nn import generators, member
from card.noise import Schedule, even_log_snr
from card.sample import Normal, Sampler
from card.train import seed_of
from card.warp import Warp

TILE = 1024  # draws worked on at once: they stay in a core's cache
FEWEST = 16  # rows in a matrix product: below, a CPU rounds differently, and a row would feel its company


class Predictor(Protocol):
    """A fitted mean model: (N, D) -> (M, N, K)."""

    def predict(self, x: np.ndarray) -> np.ndarray: ...


@dataclass
class FoldMean:
    """The mean model of one fold."""

    mean: Predictor
    k: int

    def predict(self, x: np.ndarray) -> np.ndarray:
        by_fold = self.mean.predict(x)
        return by_fold[self.k : self.k + 1] if len(by_fold) > 1 else by_fold


@dataclass
class Model:
    """Everything that predicts, for encoded rows x (N, D).

    `scale` (K,) is that of the residual in the model's coordinates; `mean_scale` (K,) the typical
    error of f alone, for comparison.
    """

    codec: Codec
    mean: Predictor
    denoiser: Denoiser
    scale: np.ndarray
    mean_scale: np.ndarray
    centred: bool
    n_members: int
    device: torch.device
    apart: float = 1.0  # of a denoiser's difference from the members' average, what it keeps in the flow
    warp: Warp | None = None  # of the flow's latents, learned from held-out rows
    holds_mean: bool = False  # whether the mean of a prediction is f, and the flow tells all else
    fold: np.ndarray | None = None  # (N,) of the training rows, right after a fit; not stored

    @property
    def n_targets(self) -> int:
        return len(self.codec.location)

    def centres(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f (N, K), and the members' centres (M, N, K)."""
        by_fold = self.mean.predict(padded(x))[:, : len(x)]
        f = by_fold.mean(0)
        if not self.centred:
            return f, np.zeros((self.n_members, *f.shape), dtype=np.float32)
        if len(by_fold) == 1 or self.n_members != len(by_fold):
            return f, np.broadcast_to(f, (self.n_members, *f.shape))
        return f, f + (by_fold - f) / np.sqrt(len(by_fold) - 1.0)

    def context(self, x: np.ndarray, f: np.ndarray) -> Tensor:
        """What the rows contribute to the denoisers: (M, N, H)."""
        rows, means = (
            torch.from_numpy(padded(a)).to(self.device).expand(self.n_members, -1, -1) for a in (x, f)
        )
        return self.denoiser.context(rows, means)[:, : len(x)]

    def respond(self, centres: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Residuals -> responses in the user's units, before any rounding."""
        return self.codec.decode(centres + self.scale * r)

    def member(self, k: int) -> Model:
        """Member k alone, around the mean of fold k: it has seen none of that fold's rows."""
        assert isinstance(self.denoiser, UnitDenoiser)
        n_in = self.denoiser.state_dict()["row.0.weight"].shape[1]
        single = UnitDenoiser(n_in - self.n_targets, self.n_targets, generators([0]), self.denoiser.width)
        single.load_state_dict(member(self.denoiser, k))
        mean = FoldMean(self.mean, k)
        return replace(self, mean=mean, denoiser=single.to(self.device), n_members=1, fold=None)

    # ------------------------------------------------------------------ draws

    @torch.no_grad()
    def draw(self, x: np.ndarray, n_draws: int, sampler: Sampler, seed: int) -> np.ndarray:
        """(S, N, K) draws; draw s is of member s mod M.

        Draws are numbered row by row and cut into tiles, each with noise of its own: what a row
        gets does not depend on the rows after it, nor on how much is worked on at once.
        """
        f, centres = self.centres(x)
        per_member = -(-n_draws // self.n_members)

        def noise(first: int, n: int) -> Normal:
            rng = Generator(self.device).manual_seed(seed_of(seed, first))
            shape = (self.n_members, TILE, self.n_targets)
            return lambda: torch.randn(shape, generator=rng, device=self.device)[:, :n]

        residuals = walk(self.denoiser, self.context(x, f), per_member, sampler, noise)
        draws = self.respond(centres, residuals.transpose(2, 0, 1, 3))
        return draws.reshape(-1, *draws.shape[2:])[:n_draws]

    # ------------------------------------------------------------------- flow

    @torch.no_grad()
    def curves(self, x: np.ndarray, schedule: Schedule, n_nodes: int, refine: int = 4) -> Curve:
        """The exact distributions of one target, by the probability-flow ODE.

        Rows that `n_nodes` latents do not resolve are solved again in twice as many steps, and `refine` times
        as densely where latents land far apart.
        """
        f, centres = self.centres(x)
        curve = self._residuals(self.context(x, f), schedule, n_nodes, refine)
        if self.holds_mean:
            curve = curve.with_mean(torch.zeros(len(x), dtype=torch.float64))
        return self._decoded(curve, centres)

    @torch.no_grad()
    def latents_alone(
        self, x: np.ndarray, f: np.ndarray, z: np.ndarray, schedule: Schedule, n_nodes: int
    ) -> np.ndarray:
        """Where each member alone places its responses z (M, n, 1) around f, of rows x (M, n, D): (M, n)."""
        rows, means, r = (torch.from_numpy(a).float().to(self.device) for a in (x, f, (z - f) / self.scale))
        alone = replace(self, apart=1.0, warp=None)
        curve = alone._residuals(self.denoiser.context(rows, means), schedule, n_nodes)
        return curve.at_own(r.double().cpu())[0][..., 0].numpy()

    @torch.no_grad()
    def latents_together(self, x: np.ndarray, z: np.ndarray, schedule: Schedule, n_nodes: int) -> np.ndarray:
        """Where the prediction, not warped, places responses z (n, 1) of rows x (n, D): (n,)."""
        y = torch.from_numpy(self.codec.decode(z)).double()
        cdf = replace(self, warp=None).curves(x, schedule, n_nodes).cdf(y)
        return torch.special.ndtri(cdf.clamp(1e-12, 1.0 - 1e-12)).flatten().numpy()

    def _residuals(self, context: Tensor, schedule: Schedule, n_nodes: int, refine: int = 4) -> Curve:
        """The distributions of the residuals of rows of this context."""
        coarse, fine = latents(n_nodes), latents(refine * (n_nodes - 1) + 1)
        y, dy = self._solve_all(context, schedule, coarse)
        curve, hard = self._curve(y, coarse, dy), bends(y, coarse, dy, 3.0).any(1)
        if not bool(hard.any()):
            return curve
        part, ratio = context[:, hard.to(context.device)], schedule.sigma / schedule.alpha
        finer = even_log_snr(2 * schedule.n_steps, float(ratio[1]), float(ratio[-1]))
        y, dy = self._solve_all(part, finer, coarse)
        between = _inside(bends(y, coarse, dy, 2.0), refine)
        y, dy = _resample(y, dy, coarse, fine)
        y[:, between], dy[:, between] = self._solve(part, finer, between, fine)
        return curve.denser(refine).with_rows(hard, self._curve(y, fine, dy))

    def _solve_all(self, context: Tensor, schedule: Schedule, z: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the flow and tangents, (M, N, Q) each, from latents z (Q,)."""
        wanted = torch.ones(context.shape[1], len(z), dtype=torch.bool)
        y, dy = self._solve(context, schedule, wanted, z)
        return y.view(-1, *wanted.shape), dy.view(-1, *wanted.shape)

    def _curve(self, y: Tensor, z: Tensor, dy: Tensor) -> Curve:
        if self.warp is None:
            return Curve.through(y, z, dy)
        g, slope = (torch.from_numpy(a) for a in self.warp(z.numpy()))
        return Curve.through(y, g, dy / slope)

    def _solve(self, context: Tensor, schedule: Schedule, wanted: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the flow and tangents, (M, L) each, for the L wanted of all rows and latents z: (N, Q)."""
        assert isinstance(self.denoiser, UnitDenoiser)
        sampler, (rows, nodes) = ode(schedule), torch.nonzero(wanted.to(self.device), as_tuple=True)
        start = z.float().to(self.device)[nodes, None] + self._top(context, schedule)[:, rows]
        ends = torch.empty(2, len(context), len(rows))
        for block in _blocks(len(rows), 2 * TILE // len(context)):
            n, items = block.stop - block.start, _enough(block)
            denoise = self.denoiser.at_with_tangents(context[:, rows[items]], schedule, self.apart)
            value, slope = solve(denoise, sampler, start[:, items], torch.ones_like(start[:, items]))
            ends[:, :, block] = torch.stack([value, slope])[:, :, :n, 0].cpu()
        return ends[0], ends[1]

    def _top(self, context: Tensor, schedule: Schedule) -> Tensor:
        """Where the prior is centred at the noisiest level, so that r_0 is met: (M, N, 1)."""
        top, centres = schedule.n_steps, []
        for block in _blocks(context.shape[1], TILE):
            part = context[:, _enough(block)]
            mean = self.denoiser.at(part, schedule)(part.new_zeros(*part.shape[:2], 1), top)
            mean = torch.lerp(mean.mean(0, keepdim=True), mean, self.apart)
            centres.append(float(schedule.alpha[top]) * mean[:, : block.stop - block.start])
        return torch.cat(centres, dim=1)

    @torch.no_grad()
    def log_density(self, x: np.ndarray, y: np.ndarray, n_evaluations: int = 60) -> np.ndarray:
        """(N, m) log-densities of responses y (N, m, K) under the mixture of members, by the flow."""
        assert isinstance(self.denoiser, UnitDenoiser)
        schedule = even_log_snr(n_evaluations // 2, *FLOW_RANGE)
        f, centres = self.centres(x)
        context, n_values = self.context(x, f), y.shape[1]
        z = (y - self.codec.location) / self.codec.scale
        residuals = ((z[None] - centres[:, :, None]) / self.scale).astype(np.float32)  # (M, N, m, K)
        out = np.empty(y.shape[:2])
        top, alpha = schedule.n_steps, float(schedule.alpha[-1])
        for block in _blocks(len(x), max(1, TILE // (n_values * (1 + self.n_targets)))):
            part = context[:, block].repeat_interleave(n_values, dim=1)
            r = torch.from_numpy(residuals[:, block]).flatten(1, 2).to(self.device)
            centre = alpha * self.denoiser.at(part, schedule)(torch.zeros_like(r), top)
            log = log_density(self.denoiser.velocities(part, schedule), schedule, r, centre)
            mixed = torch.logsumexp(log, 0) - math.log(self.n_members)
            out[block] = mixed.view(-1, n_values).cpu().numpy()
        return out - np.log(self.scale * self.codec.scale).sum()

    def _decoded(self, curve: Curve, centres: np.ndarray) -> Curve:
        """From residuals to the user's units."""
        scale = float(self.scale[0] * self.codec.scale[0])
        centre = torch.from_numpy(self.codec.decode(centres[..., 0]))
        return Curve(centre[..., None] + scale * curve.y, curve.z, curve.dz / scale)


def walk(
    denoiser: Denoiser,
    context: Tensor,
    per_member: int,
    sampler: Sampler,
    noise: Callable[[int, int], Normal],
    tile: int = TILE,
) -> np.ndarray:
    """(M, N, per_member, K) residuals at the end of the chain, for rows of this context (M, N, H).

    Items are numbered row by row and worked on a tile at a time; `noise(first, n)` is what the n items from
    `first` on are drawn with.
    """
    n_members, n_rows, _ = context.shape
    parts = []
    for first in range(0, n_rows * per_member, tile):
        last = min(first + tile, n_rows * per_member)
        rows = torch.arange(first, last, device=context.device) // per_member
        normal = noise(first, last - first)
        denoise = denoiser.at(context[:, rows].contiguous(), sampler.schedule)
        parts.append(sampler(denoise, normal(), normal).cpu().numpy())
    return np.concatenate(parts, axis=1).reshape(n_members, n_rows, per_member, -1)


def padded(a: np.ndarray) -> np.ndarray:
    """At least FEWEST rows, the first ones repeated."""
    return a if len(a) >= FEWEST or not len(a) else a[np.arange(FEWEST) % len(a)]


def _blocks(n: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(0, n, size))


def _enough(block: slice) -> Tensor:
    """The numbers of a block, at least FEWEST, the first ones repeated."""
    n = block.stop - block.start
    return block.start + torch.arange(max(n, FEWEST)) % n


def _inside(pieces: Tensor, refine: int) -> Tensor:
    """Of a grid `refine` times as fine, the nodes within the given pieces (N, Q - 1): (N, nodes)."""
    inner = pieces[:, :, None] & (torch.arange(refine) > 0)
    return torch.cat([inner.flatten(1), inner.new_zeros(len(inner), 1)], dim=1)


def _resample(y: Tensor, dy: Tensor, coarse: Tensor, fine: Tensor) -> tuple[Tensor, Tensor]:
    """The cubic through coarse values and tangents, read at fine latents."""
    right = torch.searchsorted(coarse, fine).clamp(1, len(coarse) - 1)
    left = right - 1
    h = (coarse[right] - coarse[left]).to(y)
    t = ((fine - coarse[left]) / (coarse[right] - coarse[left])).to(y)
    y0, y1, d0, d1 = y[..., left], y[..., right], dy[..., left], dy[..., right]
    secant = (y1 - y0) / h
    c2, c3 = 3 * secant - 2 * d0 - d1, d0 + d1 - 2 * secant
    return y0 + h * t * (d0 + t * (c2 + t * c3)), d0 + t * (2 * c2 + 3 * t * c3)
