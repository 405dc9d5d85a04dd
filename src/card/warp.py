"""What held-out rows say of the latents: a warp that makes them normal.

If the learned flow were right, the latent z = Phi^-1(F(y|x)) of a response that it has not seen would be
N(0, 1). Let q(p) be the quantiles of held-out latents. The monotone g with

    g(q(p)) = Phi^-1(p)

makes them normal, and Phi(g(z(y))) is the calibrated CDF. Only one member has not seen a training row, yet
all of them predict together, and an average of members errs less than each. So the rows are also read by a
member that has seen them, and by all members together: what this changes in the quantiles is added to q. In
the same way, held-out residuals are around the mean of R models of f, and predictions around that of many:
with q_1 the quantiles around a single one, (R q - q_1) / (R - 1) take the place of q.

g is known at a few knots, and between them by a monotone cubic, so that densities stay continuous; beyond
them it is straight. As many rows as `PRIOR` speak for g(z) = z. Small tables are not warped at all
(`card.fit`): there q is mostly chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

PRIOR = 500
LEVELS = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.975, 0.99])


@dataclass(frozen=True)
class Warp:
    """g by its knots: latents z (J,) and what becomes of them (J,), both ascending."""

    z: np.ndarray
    g: np.ndarray

    @classmethod
    def fit(
        cls,
        unseen: np.ndarray,
        alone: np.ndarray | None = None,
        together: np.ndarray | None = None,
        single: Sequence[np.ndarray] = (),
        prior: float = PRIOR,
    ) -> Warp:
        """The warp of held-out latents (n,).

        `alone` and `together` are latents of the same rows, seen in training, by one member and by all;
        `single` are those of the held-out rows around each of the R models whose mean they are around.
        """
        normal = ndtri(LEVELS)
        q = np.quantile(unseen, LEVELS)
        if len(single) > 1:
            q += (q - np.mean([np.quantile(each, LEVELS) for each in single], axis=0)) / (len(single) - 1)
        if alone is not None and together is not None:
            q += np.quantile(together, LEVELS) - np.quantile(alone, LEVELS)
        z = (len(unseen) * q + prior * normal) / (len(unseen) + prior)
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
