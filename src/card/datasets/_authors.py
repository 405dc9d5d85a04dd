"""The rows that the authors of CARD drew for their toys, number by number.

Their code seeds PyTorch and NumPy with 1235 in its first run, with 1236 in its second, and so on to its tenth
run. From there on the numbers are those of `torch.rand`, `torch.randn` and NumPy's older generator, which do
not change from one release to the next. So the paper's ten data sets can be had again, and what is fitted to
them can be set beside the paper's figures without the luck of other rows.

The noise of all toys with a function is the same in a run, but for its size. The training rows of the circle
are at other angles than its test rows, since the code draws angles before it sets the seed.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from card.datasets._laws import Floats

FIRST_SEED = 1235
BEFORE_TEST_ANGLES = 5301  # numbers that the initial weights of the mean network take: 1-100-50-1
RANGES = {
    "linear": (-5, 5),
    "quadratic": (-5, 5),
    "log_log_linear": (0, 10),
    "log_log_cubic": (0, 10),
    "sinusoidal": (0, 1),
    "inverse_sinusoidal": (0, 1),
}


def authors_draws(name: str, n: int, run: int) -> tuple[Floats, Floats]:
    """Covariate and noise of the toys with a function: x ~ U(low, high), N(0, 1)."""
    low, high = RANGES[name]
    rng = _generator(run)
    x, noise = _uniform(rng, n), torch.randn(n, 1, generator=rng).double().numpy()[:, 0]
    return np.maximum(low + (high - low) * x, low + 1e-9), noise  # never log(0)


def authors_points(n: int, run: int, points: Floats, sd: float) -> tuple[Floats, Floats]:
    """x and y near one of eight points, the noise of a row drawn before its point."""
    rng = np.random.RandomState(FIRST_SEED + run)
    noise, point = np.empty((n, 2)), np.empty(n, int)
    for i in range(n):
        noise[i], point[i] = rng.randn(2), rng.choice(len(points))
    x, y = (points[point] + sd * noise).T
    return x, y


def authors_circle(n: int, run: int, cut: int) -> tuple[Floats, Floats]:
    """x and y of radius 10 + N(0, 0.5^2), in the order of `authors_order`."""
    noise = _generator(run)
    _uniform(noise, n)
    radius = 10 + 0.5 * torch.randn(n, 1, generator=noise).double().numpy()[:, 0]
    for_test = _generator(run)
    torch.rand(BEFORE_TEST_ANGLES, generator=for_test)
    order = authors_order(n, run)
    turn = np.concatenate([_uniform(_generator(run), n)[order[:cut]], _uniform(for_test, n)[order[cut:]]])
    return radius[order] * np.cos(2 * np.pi * turn), radius[order] * np.sin(2 * np.pi * turn)


def authors_order(n: int, run: int) -> NDArray[np.int_]:
    """Training rows first, then test rows."""
    order = np.arange(n)
    np.random.RandomState(FIRST_SEED + run).shuffle(order)
    return order


def _generator(run: int) -> torch.Generator:
    return torch.Generator().manual_seed(FIRST_SEED + run)


def _uniform(rng: torch.Generator, n: int) -> Floats:
    return torch.rand(n, 1, generator=rng).double().numpy()[:, 0]
