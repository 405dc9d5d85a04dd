"""The fitted classifier: reader + denoiser, and the ways from rows to reconstructed prototypes.

Rows are read once into a `Glimpse`: f and the denoiser's context. From there come p(c | x) without any draws,
or draws of y_0 = f + r in R^C, by members in turn, in tiles of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Generator, Tensor

from card.class_denoise import ProductDenoiser, PrototypeDenoiser
from card.model import FEWEST, TILE, walk
from card.noise import Schedule, even_log_snr
from card.reader import Reader
from card.sample import Normal, Sampler, make_sampler
from card.train import seed_of

LARGEST = 20.0  # noise-to-signal ratio from which draws start, in units of a prototype's length
BLOCK = 2_000_000  # numbers drawn at once


@dataclass(frozen=True)
class Glimpse:
    """Rows as the members see them."""

    context: Tensor  # (M, N, H)
    f: np.ndarray  # (M, N, C), which is where each member's prior is centred


@dataclass
class ClassModel:
    """Everything that predicts, for rows x: encoded tables or images."""

    reader: Reader
    denoiser: PrototypeDenoiser | ProductDenoiser
    n_members: int
    centred: bool
    device: torch.device

    @property
    def n_classes(self) -> int:
        return self.reader.n_classes

    def f(self, x: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
        """(N, C) probabilities of the base classifier, averaged over its folds."""
        return self.reader.f(x, given).mean(axis=0)

    @torch.no_grad()
    def look(self, x: np.ndarray, given: np.ndarray | None = None) -> Glimpse:
        """Read rows, at least FEWEST at once: below, a CPU rounds a row by its company."""
        n = len(x)
        rows = np.arange(max(n, FEWEST)) % n
        f = self.reader.f(x[rows], None if given is None else given[rows])
        f = f if len(f) == self.n_members else f.mean(axis=0, keepdims=True)
        f = np.broadcast_to(f, (self.n_members, *f.shape[1:]))
        seen = torch.from_numpy(self.reader.features(x[rows])).to(self.device)
        seen = seen.expand(self.n_members, *seen.shape[1:])
        glimpse = self.glimpse(seen, np.array(f))
        return Glimpse(glimpse.context[:, :n], glimpse.f[:, :n])

    @torch.no_grad()
    def glimpse(self, seen: Tensor, f: np.ndarray) -> Glimpse:
        """From what the denoiser sees of rows (M, N, ...) and f (M, N, C)."""
        self.denoiser.eval()
        return Glimpse(self.denoiser.context(seen, torch.from_numpy(f).to(self.device)), f)

    @torch.no_grad()
    def direct(self, glimpse: Glimpse) -> np.ndarray | None:
        """(M, N, C) p(c | x) without draws, where the denoiser knows it."""
        if not isinstance(self.denoiser, PrototypeDenoiser):
            return None
        return self.denoiser.direct(glimpse.context).cpu().numpy()

    @torch.no_grad()
    def draw(
        self, glimpse: Glimpse, per_member: int, sampler: Sampler, seed: int, first_row: int | None = None
    ) -> np.ndarray:
        """(M, N, per_member, C) draws of y_0.

        The noise of draw j is common to all rows, so that a row's draws do not depend on its company; with
        `first_row`, the number of the first of these rows among all, rows have noise of their own.
        """
        shape = (self.n_members, per_member, self.n_classes)
        tile = per_member * max(1, TILE // per_member)

        def common(first: int, n: int) -> Normal:
            rng = Generator(self.device).manual_seed(seed_of(seed))
            return self._repeated(rng, shape, n // per_member)

        def own(first: int, n: int) -> Normal:
            rows = first // per_member + (first_row or 0) + np.arange(n // per_member)
            rngs = [Generator(self.device).manual_seed(seed_of(seed, int(row))) for row in rows]
            return lambda: torch.cat([torch.randn(shape, generator=g, device=self.device) for g in rngs], 1)

        noise = common if first_row is None else own
        r = walk(self.denoiser, glimpse.context, per_member, sampler, noise, tile)
        return r + glimpse.f[:, :, None] if self.centred else r

    def _repeated(self, rng: Generator, shape: tuple[int, ...], n_rows: int) -> Callable[[], Tensor]:
        return lambda: torch.randn(shape, generator=rng, device=self.device).repeat(1, n_rows, 1)

    def rows_at_once(self, n_draws: int) -> int:
        """So many that their draws stay within bounds."""
        return int(np.clip(BLOCK // (n_draws * self.n_classes), FEWEST, 1024))


def prototype_schedule(n_evaluations: int, read: float, floor: float) -> Schedule:
    """The noise levels of a `PrototypeDenoiser`'s draws: from the largest down to `read`, then `floor`.

    The posterior mean is a martingale: read at any level, its mean over draws is p(c | x). At small levels it
    sits on the vertices, with these frequencies; at large ones it is p(c | x) in every draw. In between, at
    about the length of a prototype, its spread is the doubt in the row. A draw is the posterior mean at
    `read` and noise of size `floor`, the same in every class, which the intervals need: near 1 the square
    of `card.confidence.closeness` is flat, so that the class that is present has the narrowest.
    """
    between = even_log_snr(n_evaluations, read, LARGEST)
    ratio = torch.cat([torch.tensor([0.0, floor], dtype=torch.float64), (between.sigma / between.alpha)[1:]])
    alpha = (1.0 + ratio.square()).rsqrt()
    return Schedule(alpha, ratio * alpha)


def class_sampler(name: str, schedule: Schedule, n_evaluations: int, unit: bool) -> Sampler:
    """As for the regressor; draws of the "unit" denoiser keep the smallest noise."""
    if not unit:
        return make_sampler(name, schedule, n_evaluations)
    sampler = make_sampler(name, schedule, schedule.n_steps)
    nodes = (*range(schedule.n_steps, 0, -1),)
    return replace(sampler, nodes=nodes)


def in_turn(draws: np.ndarray) -> np.ndarray:
    """(M, N, S, C) -> (S M, N, C), members in turn."""
    n_members, n_rows, per_member, n_classes = draws.shape
    return draws.transpose(2, 0, 1, 3).reshape(per_member * n_members, n_rows, n_classes)
