"""The user's responses <-> the model's coordinates.

The model works on z = (y - location) / scale, each target standardised over the training rows
(population standard deviation, as the paper). A response on a grid (counts, ordinal levels) is first
spread evenly over its cell, y + U(-1/2, 1/2), so that a continuous distribution can be learned; of a
positive response the logarithm is learned. The way back is a matter of distributions: `card.responses`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Codec:
    """Standardisation of K targets; `levels` are the ordinal levels, or None."""

    location: np.ndarray  # (K,) float64
    scale: np.ndarray  # (K,) float64
    response: str = "real"  # real, positive, count or ordinal
    levels: np.ndarray | None = None

    def encode(self, y: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """(N, K) responses -> (N, K) float32; `rng` spreads grid responses over their cells."""
        y = self.to_line(y)
        if self.response in ("count", "ordinal") and rng is not None:
            y = y + rng.uniform(-0.5, 0.5, size=y.shape)
        return ((y - self.location) / self.scale).astype(np.float32)

    def decode(self, z: np.ndarray) -> np.ndarray:
        """Model coordinates -> responses on the line of `to_line`, before any rounding, in float64."""
        return z.astype(np.float64) * self.scale + self.location

    def to_line(self, y: np.ndarray) -> np.ndarray:
        """Positive responses -> logarithms, ordinal levels -> numbers 0..L-1; anything else as it is."""
        if self.response == "positive":
            return np.log(y)
        if self.levels is not None:
            return np.searchsorted(self.levels, y).astype(np.float64)
        return y


def fit_codec(y: np.ndarray, response: str = "real", standardise: bool = True) -> Codec:
    """Learn the coordinates from training responses (N, K)."""
    levels = None
    if response == "count" and ((y < 0).any() or (y != np.round(y)).any()):
        bad = y[(y < 0) | (y != np.round(y))][0]
        raise ValueError(
            f"response='count' wants whole numbers of 0 or more, but y holds {bad}: use response='real'."
        )
    if response == "positive" and (y <= 0).any():
        raise ValueError(
            f"response='positive' wants numbers above 0, but y holds {y.min()}: use response='real'."
        )
    if response == "ordinal":
        levels = np.unique(y)
    n_targets = y.shape[1]
    y = Codec(np.zeros(n_targets), np.ones(n_targets), response, levels).to_line(y)
    if not standardise:
        return Codec(np.zeros(n_targets), np.ones(n_targets), response, levels)
    size = np.maximum(np.abs(y).max(0), np.finfo(np.float64).tiny)  # so that no square overflows
    location, scale = (y / size).mean(0) * size, (y / size).std(0) * size
    tiny = 1e-12 * np.maximum(np.abs(location), np.finfo(np.float64).tiny)
    return Codec(location, np.where(scale > tiny, scale, 1.0), response, levels)
