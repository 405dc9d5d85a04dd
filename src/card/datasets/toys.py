"""The eight toy problems of the CARD paper: one covariate, one response, and the truth known.

| name | x | y given x |
|---|---|---|
| linear | U(-5, 5) | 2x + 3 + N(0, 2^2) |
| quadratic | U(-5, 5) | 3x^2 + 2x + 1 + N(0, 2^2) |
| log_log_linear | U(0, 10) | exp(log x + N(0, 0.15^2)) |
| log_log_cubic | U(0, 10) | exp(3 log x + N(0, 0.15^2)) |
| sinusoidal | U(0, 1) | x + 0.3 sin(2 pi x) + N(0, 0.08^2) |
| inverse_sinusoidal | | sinusoidal with x and y swapped: up to three modes |
| eight_gaussians | | (x, y) near one of eight points, N(0, 0.1^2) in each coordinate |
| full_circle | | (x, y) = (10 + N(0, 0.5^2)) (cos a, sin a), a ~ U(0, 2 pi) |

The authors' code differs from the paper's table in two of them, `variant="authors"`: linear is 2 + 3x, and
the noise of eight_gaussians is 0.1 / sqrt(2). Its rows are drawn as that code draws them: seeds 0 to 9 are
the ten data sets of the paper. The paper prints the circle as y = (10 + eps)(cos(2 pi x) + sin(2 pi x)),
which draws no circle; both variants have the one that its picture shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtr

from card.datasets._authors import authors_circle, authors_draws, authors_order, authors_points
from card.datasets._laws import Floats, Law, LogNormal, Modes, Normal, Tabulated
from card.datasets._names import choose
from card.datasets._split import Split

Variant = Literal["paper", "authors"]
Rng = np.random.Generator

ROOT_2 = np.sqrt(2)
EIGHT_POINTS = np.array(
    [[ROOT_2, 0], [-ROOT_2, 0], [0, ROOT_2], [0, -ROOT_2], [1, 1], [1, -1], [-1, 1], [-1, -1]]
)


@dataclass(frozen=True)
class Toy:
    """A sample of a toy problem, with the law it came from.

    `law` answers for any x: `law.cdf(x, y)`, `law.quantile(x, q)`, `law.logpdf(x, y)`, `law.mean(x)`,
    `law.median(x)`.
    """

    name: str
    variant: Variant
    X: Floats  # (n, 1)
    y: Floats  # (n,)
    law: Law

    @property
    def true_mean(self) -> Floats:
        """E[y | x] of every row."""
        return self.law.mean(self.X)

    @property
    def true_median(self) -> Floats:
        return self.law.median(self.X)

    @property
    def noiseless(self) -> Floats | None:
        """The generating function at every row: what the paper's RMSE is measured against.

        It is the mean, but for the log-log toys the median; None for the three multimodal toys.
        """
        return self.law.noiseless(self.X)

    def split(self, train: float = 0.8) -> Split:
        """The first 80 % of the rows to train, the rest to test; the rows are independent draws."""
        cut = _cut(len(self.y), train)
        return Split(self.X[:cut], self.X[cut:], self.y[:cut], self.y[cut:])


@dataclass(frozen=True)
class _Recipe:
    draw: Callable[[Rng, int, Law], tuple[Floats, Floats]]
    law: Law
    authors: Law | None = None  # where it differs


def _given_x(low: float, high: float) -> Callable[[Rng, int, Law], tuple[Floats, Floats]]:
    def draw(rng: Rng, n: int, law: Law) -> tuple[Floats, Floats]:
        x = high - (high - low) * rng.uniform(size=n)  # (low, high]: never log(0)
        return x, law.quantile(x, rng.uniform(1e-16, 1, size=(n, 1)))[:, 0]

    return draw


def _swapped(rng: Rng, n: int, law: Law) -> tuple[Floats, Floats]:
    u = rng.uniform(size=n)
    return _sine(u) + 0.08 * rng.normal(size=n), u


def _modes(rng: Rng, n: int, law: Law) -> tuple[Floats, Floats]:
    assert isinstance(law, Modes)
    points = law.points[rng.integers(len(law.points), size=n)] + law.sd * rng.normal(size=(n, 2))
    return points[:, 0], points[:, 1]


def _circle(rng: Rng, n: int, law: Law) -> tuple[Floats, Floats]:
    angle, radius = rng.uniform(0, 2 * np.pi, size=n), rng.normal(10, 0.5, size=n)
    return radius * np.cos(angle), radius * np.sin(angle)


def _by_the_authors(name: str, n: int, run: int, law: Law) -> tuple[Floats, Floats]:
    """The rows of one of the authors' runs, training rows first."""
    if name == "full_circle":
        return authors_circle(n, run, _cut(n))
    order = authors_order(n, run)
    if isinstance(law, Modes):
        x, y = authors_points(n, run, law.points, law.sd)
        return x[order], y[order]
    x, noise = (numbers[order] for numbers in authors_draws(name, n, run))
    if name == "inverse_sinusoidal":
        return _sine(x) + 0.08 * noise, x
    return x, law.quantile(x, ndtr(noise)[:, None])[:, 0]


def _cut(n: int, train: float = 0.8) -> int:
    return round(train * n)


def _sine(x: Floats) -> Floats:
    return x + 0.3 * np.sin(2 * np.pi * x)


def _swapped_density(x: Floats, y: Floats) -> Floats:
    """y ~ U(0, 1) and x ~ N(sine(y), 0.08^2), so p(y | x) is proportional to the density of x."""
    return -0.5 * ((x - _sine(y)) / 0.08) ** 2


def _circle_density(x: Floats, y: Floats) -> Floats:
    """In the plane the density at radius r is that of r divided by 2 pi r."""
    r = np.maximum(np.hypot(x, y), 1e-9)
    return -0.5 * ((r - 10) / 0.5) ** 2 - np.log(r)


TOYS: dict[str, _Recipe] = {
    "linear": _Recipe(
        _given_x(-5, 5), Normal(lambda x: 2 * x + 3, 2.0), authors=Normal(lambda x: 2 + 3 * x, 2.0)
    ),
    "quadratic": _Recipe(_given_x(-5, 5), Normal(lambda x: 3 * x**2 + 2 * x + 1, 2.0)),
    "log_log_linear": _Recipe(_given_x(0, 10), LogNormal(np.log, 0.15)),
    "log_log_cubic": _Recipe(_given_x(0, 10), LogNormal(lambda x: 3 * np.log(x), 0.15)),
    "sinusoidal": _Recipe(_given_x(0, 1), Normal(_sine, 0.08)),
    "inverse_sinusoidal": _Recipe(_swapped, Tabulated(_swapped_density, 0.0, 1.0)),
    "eight_gaussians": _Recipe(_modes, Modes(EIGHT_POINTS, 0.1), authors=Modes(EIGHT_POINTS, 0.1 / ROOT_2)),
    "full_circle": _Recipe(_circle, Tabulated(_circle_density, -15.0, 15.0)),
}
TOY_NAMES = tuple(TOYS)


def make_toy(
    name: str,
    n: int = 10_240,
    random_state: int | Rng | None = None,
    variant: Variant = "paper",
) -> Toy:
    """A sample of one of the eight toy problems of the CARD paper.

    Parameters
    ----------
    name : linear, quadratic, log_log_linear, log_log_cubic, sinusoidal, inverse_sinusoidal, eight_gaussians
        or full_circle; hyphens, spaces and capitals do not matter
    n : number of rows; the paper has 10,240
    random_state : a seed or a generator; the same seed gives the same rows
    variant : "paper" for the formulas of the paper's table, "authors" for those of the authors' code, whose
        ten runs are the seeds 0 to 9

    >>> toy = make_toy("linear", n=5, random_state=0)
    >>> toy.X.shape, toy.y.shape
    ((5, 1), (5,))
    >>> bool(np.all(toy.true_mean == 2 * toy.X[:, 0] + 3))
    True
    """
    if name.lower().strip().startswith("8"):
        name = "eight" + name.strip()[1:]
    name, recipe = choose("toy", name, TOYS)
    if variant not in get_args(Variant):
        raise ValueError(f"variant must be 'paper' or 'authors'; got {variant!r}")
    if n < 1:
        raise ValueError(f"n, the number of rows, must be at least 1; got {n}")
    law = recipe.authors if variant == "authors" and recipe.authors else recipe.law
    if variant == "authors":
        run = random_state if isinstance(random_state, int | np.integer) else _any_run(random_state)
        x, y = _by_the_authors(name, n, int(run), law)
    else:
        x, y = recipe.draw(np.random.default_rng(random_state), n, law)
    return Toy(name, variant, x[:, None], y, law)


def _any_run(rng: Rng | None) -> int:
    return int(np.random.default_rng(rng).integers(2**31))
