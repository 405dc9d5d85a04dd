"""From encoded rows to a fitted model: the two recipes, on the same modules.

The denoiser of the default recipe has one member per fold. Member m learns from the residuals of all
other folds and is judged on fold m: training stops, and the best averaged weights are kept, where the
held-out denoising loss is lowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from card.checkpoint import Stage
from card.denoise import TableDenoiser, UnitDenoiser
from card.nn import generators
from card.train import Progress, Trace, Training, seed_of, train

HELD_OUT_COPIES = 8  # noise levels at which each held-out row is judged


def fit_unit_denoiser(
    x: Tensor,
    f: Tensor,
    r: Tensor,
    fold: np.ndarray,
    n_members: int,
    seed: int,
    how: Training,
    width: int,
    dropout: float,
    stage: Stage | None = None,
    progress: Progress | None = None,
    level: tuple[float, float] = (-0.5, 1.5),
) -> tuple[UnitDenoiser, Trace]:
    """M denoisers for residuals r (N, K) of unit variance; `fold` (N,) tells who may not see a row."""
    seeds = [seed_of(seed, m) for m in range(n_members)]
    denoiser = UnitDenoiser(x.shape[1], r.shape[1], generators(seeds), width, dropout, level).to(x.device)
    train_rows = rectangle([np.flatnonzero((fold != m) & (fold >= 0)) for m in range(n_members)])
    test_rows = rectangle([np.flatnonzero(fold == m) for m in range(n_members)])
    held_out = _held_out(denoiser, x, f, r, test_rows, seeds)

    def loss(rows: Tensor, rngs) -> Tensor:
        return denoiser.loss(r[rows], denoiser.context(x[rows], f[rows], rngs), rngs)

    trace = train(denoiser, loss, train_rows, seeds, how, held_out, stage, progress)
    return denoiser, trace


def _held_out(denoiser: UnitDenoiser, x: Tensor, f: Tensor, r: Tensor, rows: Tensor, seeds: Sequence[int]):
    """The held-out denoising loss, at levels and noise that stay the same from one look to the next."""
    n_members, n = rows.shape
    most = max(1, 40_000 // HELD_OUT_COPIES)
    rows = rows[:, :most]
    n = rows.shape[1]
    rngs = generators([seed_of(seed, 7) for seed in seeds])
    order = torch.stack([torch.randperm(n * HELD_OUT_COPIES, generator=rng) for rng in rngs])
    centre, spread = denoiser.level
    level = centre + spread * math.sqrt(2) * torch.erfinv(2 * (order + 0.5) / (n * HELD_OUT_COPIES) - 1)
    eps = torch.stack([torch.randn(n, HELD_OUT_COPIES // 2, r.shape[1], generator=rng) for rng in rngs])
    eps = torch.cat([eps, -eps], dim=2).flatten(1, 2)
    level, eps = level.float().to(x.device), eps.to(x.device)
    repeated = rows.repeat_interleave(HELD_OUT_COPIES, dim=1)

    def held_out(epoch: int) -> Tensor:
        context = denoiser.context(x[rows], f[rows]).repeat_interleave(HELD_OUT_COPIES, dim=1)
        parts = [
            denoiser.loss_at(r[repeated[:, b]], context[:, b], level[:, b], eps[:, b]) * (b.stop - b.start)
            for b in (slice(i, min(i + 4096, repeated.shape[1])) for i in range(0, repeated.shape[1], 4096))
        ]
        return torch.stack(parts).sum(0) / repeated.shape[1]

    return held_out


def rectangle(rows: Sequence[np.ndarray]) -> Tensor:
    """Lists of rows of nearly equal length as (M, n): the shorter start again from their beginning."""
    n = max(len(each) for each in rows)
    return torch.from_numpy(np.stack([np.resize(each, n) for each in rows]))


def fit_table_denoiser(
    x: Tensor,
    f: Tensor,
    r: Tensor,
    rows: Tensor,
    seeds: Sequence[int],
    how: Training,
    make,
    stage: Stage | None = None,
    progress: Progress | None = None,
) -> TableDenoiser:
    """The paper's denoiser for members that read rows (M, n) of a common table."""
    denoiser = make(generators([seed_of(s, 5) for s in seeds])).to(x.device)

    def loss(batch: Tensor, rngs) -> Tensor:
        return denoiser.loss(r[batch], denoiser.context(x[batch], f[batch]), rngs)

    train(denoiser, loss, rows, [seed_of(s, 6) for s in seeds], how, None, stage, progress)
    return denoiser
