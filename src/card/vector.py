"""Several targets at once: draws by the flow, densities by its Jacobian; the draws behind a prediction."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import torch
from torch import Generator

from card.distribution import Draws
from card.model import TILE, Model, walk
from card.sample import Normal, Sampler
from card.train import seed_of


class FlowDraws(Draws):
    """Draws of a vector response, with the exact log-density of the flow that drew them."""

    def __init__(self, draws: np.ndarray, model: Model, x: np.ndarray) -> None:
        super().__init__(draws, squeeze=False, n_members=model.n_members)
        self.model, self.x = model, x

    def __getitem__(self, rows) -> FlowDraws:
        return FlowDraws(self.draws[:, rows], self.model, self.x[rows])

    def logpdf(self, y):
        """Log-density of whole vectors: y (N, K) -> (N,), or (N, m, K) -> (N, m)."""
        values, shape = self._target_values(y)
        return self.model.log_density(self.x, values).reshape(shape[:-1])


@torch.no_grad()
def draws_of_rows(model: Model, x: np.ndarray, n_draws: int, sampler: Sampler, seed: int) -> np.ndarray:
    """(S, N, K) draws as of `Model.draw`, with noise that belongs to the row and not to its place.

    Equal rows have equal draws, in whatever company and order: a prediction made of them is a function
    of the row. Noise common to all rows would do that too, but its errors would not average out over rows.
    """
    f, centres = model.centres(x)
    per_member = -(-n_draws // model.n_members)
    seeds = [seed_of(seed, crc32(row.tobytes())) for row in np.ascontiguousarray(x) + 0.0]  # -0.0 is 0.0
    shape = (model.n_members, per_member, model.n_targets)

    def noise(first: int, n: int) -> Normal:
        rows = seeds[first // per_member : (first + n) // per_member]
        rngs = [Generator(model.device).manual_seed(row) for row in rows]
        return lambda: torch.cat([torch.randn(shape, generator=g, device=model.device) for g in rngs], dim=1)

    tile = per_member * max(1, TILE // per_member)
    residuals = walk(model.denoiser, model.context(x, f), per_member, sampler, noise, tile)
    draws = model.respond(centres, residuals.transpose(2, 0, 1, 3))
    return draws.reshape(-1, *draws.shape[2:])[:n_draws]
