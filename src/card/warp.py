"""What held-out rows say of the latents: a warp that makes them normal.

If the learned flow were right, the latent z = Phi^-1(F(y|x)) of a response that it has not seen would be
N(0, 1). Let q(p) be the quantiles of held-out latents. The monotone g with

    g(q(p)) = Phi^-1(p)

makes them normal, and Phi(g(z(y))) is the calibrated CDF. What the quantiles will be at predict, where models
are averaged, is told by `card.averaging`.

g is known at a few knots, and between them by a monotone cubic, so that densities stay continuous; beyond
them it is straight. As many rows as `PRIOR` speak for g(z) = z. Small tables are not warped at all
(`card.fit`): there q is mostly chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

PRIOR = 500
LEVELS = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.975, 0.99])


def quantiles(z: np.ndarray) -> np.ndarray:
    """Of latents, at the levels of the knots."""
    return np.quantile(z, LEVELS)


@dataclass(frozen=True)
class Warp:
    """g by its knots: latents z (J,) and what becomes of them (J,), both ascending."""

    z: np.ndarray
    g: np.ndarray

    @classmethod
    def fit(cls, z: np.ndarray, prior: float = PRIOR) -> Warp:
        """The warp of held-out latents (n,)."""
        return cls.through(quantiles(z), len(z), prior)

    @classmethod
    def through(cls, q: np.ndarray, n: int, prior: float = PRIOR) -> Warp:
        """The warp that makes quantiles q, of n rows, those of N(0, 1)."""
        normal = ndtri(LEVELS)
        z = (n * q + prior * normal) / (n + prior)
        return cls(np.maximum.accumulate(z) + 1e-6 * np.arange(len(z)), normal)

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g and its derivative at latents z.

        >>> Warp.fit(ndtri((np.arange(999) + 1) / 1000))(np.array([-1.0, 0.5]))[0].round(2)
        array([-1. ,  0.5])
        """
        inside = np.clip(z, self.z[0], self.z[-1])
        curve = PchipInterpolator(self.z, self.g)
        slope = curve(inside, 1)
        return curve(inside) + slope * (z - inside), slope
