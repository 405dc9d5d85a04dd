"""What is seen of a row: pixels made numbers of unit size, noise and shifts while learning.

Rows are encoded tables (N, D) in float32, or images (N, channels, height, width), uint8 from 0 to 255 or
floating point as they are. A network reads both as tensors in unit variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

Augment = Callable[[Tensor, Generator], Tensor]


@dataclass(frozen=True)
class Pixels:
    """Images (or table rows, as they are) -> tensors standardised channel by channel."""

    mean: np.ndarray  # (channels,), or (0,) for tables
    std: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, noise: float = 0.0, most: int = 5000) -> Pixels:
        """From training rows, with the variance that `noise` will add."""
        if x.ndim == 2:
            return cls(np.zeros(0, np.float32), np.zeros(0, np.float32))
        some = unit_pixels(x[:: max(1, len(x) // most)])
        mean, std = some.mean(axis=(0, 2, 3)), np.sqrt(some.var(axis=(0, 2, 3)) + noise**2)
        return cls(mean.astype(np.float32), np.maximum(std, 1e-3).astype(np.float32))

    @classmethod
    def as_they_are(cls, x: np.ndarray) -> Pixels:
        """Bytes from 0 to 1, other numbers as they come: what a network that has learned elsewhere reads."""
        channels = 0 if x.ndim == 2 else x.shape[1]
        return cls(np.zeros(channels, np.float32), np.ones(channels, np.float32))

    def __call__(self, x: Tensor) -> Tensor:
        if not len(self.mean):
            return x
        mean, std = (torch.from_numpy(a).to(x).view(-1, 1, 1) for a in (self.mean, self.std))
        out = (x - mean) / std
        return out.contiguous(memory_format=torch.channels_last) if out.dim() == 4 else out  # faster on a CPU

    def flat(self, x: np.ndarray) -> np.ndarray:
        """(N, D) for whoever wants a table."""
        if x.ndim == 2:
            return x
        return self(torch.from_numpy(unit_pixels(x))).flatten(1).numpy()


def unit_pixels(x: np.ndarray) -> np.ndarray:
    """uint8 from 0 to 255 -> float32 from 0 to 1; floating point as it is."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def noisy(x: np.ndarray, noise: float, copies: int, rng: np.random.Generator) -> np.ndarray:
    """`copies` of the rows, one set after the other, each with fresh noise; the rows themselves without."""
    if noise == 0:
        return x
    unit = unit_pixels(x)
    out = np.empty((copies * len(x), *x.shape[1:]), np.float32)
    for c in range(copies):
        part = out[c * len(x) : (c + 1) * len(x)]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= np.float32(noise)
        part += unit
    return out


def shift(x: Tensor, rng: Generator, reach: int = 4, flip: bool = False) -> Tensor:
    """Each image moved by up to `reach` pixels either way, zeros (the darkest) coming in; mirrored or not."""
    n, _, height, width = x.shape
    padded = functional.pad(x, [reach] * 4)
    top, left = (torch.randint(0, 2 * reach + 1, (n, 1, 1), generator=rng) for _ in range(2))
    rows = (top + torch.arange(height)[None, :, None]).expand(n, height, width)
    columns = (left + torch.arange(width)[None, None, :]).expand(n, height, width)
    if flip:
        mirrored = torch.rand(n, 1, 1, generator=rng) < 0.5
        columns = torch.where(mirrored, columns.flip(2), columns)
    return padded[torch.arange(n)[:, None, None], :, rows, columns].permute(0, 3, 1, 2).contiguous()


AUGMENTS: dict[str, Augment] = {
    "shift": lambda x, rng: shift(x, rng, reach=2),
    "flip-nudge": lambda x, rng: shift(x, rng, reach=1, flip=True),
    "flip-shift": lambda x, rng: shift(x, rng, reach=4, flip=True),
}


def augment_of(choice: Any) -> Augment | None:
    """By name, or the user's own (images (B, channels, height, width), generator) -> images."""
    return AUGMENTS[choice] if isinstance(choice, str) else choice
