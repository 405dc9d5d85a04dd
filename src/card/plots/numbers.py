"""Pictures of predicted numbers: their shapes, and whether they keep their promise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from card.plots.style import BLUE, INK, ORANGE, SKY, VERMILION, axes, legend_above, percent, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def fan_chart(
    x: ArrayLike,
    distribution: Any,
    y: ArrayLike | None = None,
    *,
    coverages: Sequence[float] = (0.95, 0.8, 0.5),
    ax: "Axes | None" = None,
) -> "Axes":
    """Nested central intervals and the median of the predictions, along one column x.

    Parameters
    ----------
    x : (n_rows,)
        Where each row stands on the horizontal axis.
    distribution : object with `quantile(q)`
        Predictions for those rows.
    y : (n_rows,), optional
        Observed responses, drawn as points.
    coverages : the intervals, widest first
    """
    ax = axes(ax)
    x = np.asarray(x, dtype=float)
    order = np.argsort(x, kind="stable")
    coverages = sorted(coverages, reverse=True)
    for i, coverage in enumerate(coverages):
        tails = [(1 - coverage) / 2, (1 + coverage) / 2]
        lower, upper = distribution.quantile(tails)[order].T
        shade = 0.16 + 0.5 * i / max(1, len(coverages))
        ax.fill_between(
            x[order], lower, upper, color=BLUE, alpha=shade, lw=0, label=f"{coverage:.0%} interval"
        )
    ax.plot(x[order], distribution.quantile(0.5)[order], color=INK, lw=1.6, label="median")
    if y is not None:
        ax.scatter(x, y, s=14, color=ORANGE, edgecolor="white", lw=0.4, zorder=3, label="observed")
    ax.legend(frameon=False)
    return tidy(ax, "x", "response")


def density(
    distribution: Any,
    row: int = 0,
    y: float | None = None,
    *,
    coverage: float = 0.9,
    ax: "Axes | None" = None,
) -> "Axes":
    """The predicted density of one row, its central interval shaded, its mean and the observed y marked."""
    ax = axes(ax)
    one = distribution[row : row + 1]
    t, p = density_curves(one, span=[] if y is None else [y])
    lower, upper = _whole_bars(one, one.quantile([(1 - coverage) / 2, (1 + coverage) / 2])[0])
    inside = (t >= lower) & (t <= upper)
    ax.fill_between(
        t, p[0], where=inside.tolist(), color=SKY, alpha=0.55, lw=0, label=f"{coverage:.0%} interval"
    )
    ax.plot(t, p[0], color=BLUE, lw=2)
    ax.axvline(float(one.mean()[0]), color=INK, lw=1.2, ls=":", label="mean")
    if y is not None:
        ax.axvline(y, color=VERMILION, lw=1.6, label="observed")
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    legend_above(ax)
    return tidy(ax, "response", "predicted density")


def _whole_bars(distribution: Any, ends: np.ndarray) -> np.ndarray:
    """The ends of an interval, moved to the borders of the bars they are in."""
    values = grid_values(distribution)
    if values is None:
        return ends
    first, last = np.searchsorted(values, ends)
    borders = grid_borders(values)
    return borders[[first, min(last + 1, len(values))]]


def density_ridge(
    distribution: Any,
    y: ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    overlap: float = 1.6,
    ax: "Axes | None" = None,
) -> "Axes":
    """The predicted densities of several rows, one ridge a row, the first on top.

    Each ridge is scaled to the same height, so that shapes compare; y marks the observed responses.
    """
    ax = axes(ax)
    observed = np.asarray([] if y is None else y, dtype=float)
    t, p = density_curves(distribution, span=observed)
    n = len(p)
    for i, curve in enumerate(p):
        base = float(n - 1 - i)
        ridge = base + overlap * curve / curve.max()
        ax.fill_between(t, base, ridge, color=SKY, alpha=0.75, lw=0, zorder=2 * i)
        ax.plot(t, ridge, color=BLUE, lw=1.2, zorder=2 * i + 1)
        if y is not None:
            ax.plot([observed[i]] * 2, [base, base + 0.55], color=VERMILION, lw=2.2, zorder=2 * n)
    ax.set_yticks(range(n), list(labels or map(str, range(n)))[::-1])
    if y is not None:
        ax.plot([], [], color=VERMILION, lw=2.2, label="observed")
        legend_above(ax)
    return tidy(ax, "response", "row")


def density_curves(
    distribution: Any, n_points: int = 400, span: ArrayLike = ()
) -> tuple[np.ndarray, np.ndarray]:
    """(points, density of every row at them), over the range of the predictions and of `span`.

    A response on a grid (counts, ordinal levels) has no density; it is drawn as a histogram, a bar a value. A
    density too narrow for the points is spread over those next to it.
    """
    ends = np.concatenate([np.ravel(distribution.quantile([0.002, 0.998])), np.asarray(span, dtype=float)])
    margin = 0.04 * (np.ptp(ends) or 1.0)
    t = np.linspace(ends.min() - margin, ends.max() + margin, n_points)
    p = np.asarray(distribution.pdf(np.tile(t, (len(distribution), 1))), dtype=float)
    lost = p.sum(axis=1) * (t[1] - t[0]) < 0.5
    if not lost.any():
        return t, p
    grid = grid_values(distribution)
    if grid is not None:
        return _histogram(distribution, grid, n_points, ends)
    edges = np.append(t, t[-1] + t[1] - t[0])
    return t, np.where(lost[:, None], _masses(distribution, edges) / (t[1] - t[0]), p)


def grid_values(distribution: Any) -> np.ndarray | None:
    """The values that the predictions can take, where these are few: whole numbers, ordinal levels.

    >>> from card.distribution import Gaussian
    >>> grid_values(Gaussian(np.zeros(2), np.ones(2))) is None
    True
    """
    quantiles = np.asarray(distribution.quantile(np.linspace(0.002, 0.998, 250)), dtype=float)
    steps = np.diff(quantiles, axis=1) > 0
    return np.unique(quantiles) if steps.mean() < 0.9 else None


def grid_borders(values: np.ndarray) -> np.ndarray:
    """Half-way between the values; the outer bars are as wide as their neighbours.

    >>> grid_borders(np.array([0.0, 1.0, 3.0]))
    array([-0.5,  0.5,  2. ,  4. ])
    """
    gaps = np.diff(values) if len(values) > 1 else np.ones(1)
    inner = (values[1:] + values[:-1]) / 2
    return np.concatenate([[values[0] - gaps[0] / 2], inner, [values[-1] + gaps[-1] / 2]])


def _histogram(
    distribution: Any, values: np.ndarray, n_points: int, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    borders = grid_borders(values)
    bars = _masses(distribution, np.append(borders[0], values)) / np.diff(borders)
    low, high = min(borders[0], ends.min()), max(borders[-1], ends.max())
    margin = 0.02 * (high - low)
    t = np.linspace(low - margin, high + margin, n_points)
    bar = np.searchsorted(borders, t, side="right") - 1
    outside = (bar < 0) | (bar >= len(values))
    return t, np.where(outside, 0.0, bars[:, np.clip(bar, 0, len(values) - 1)])


def _masses(distribution: Any, edges: np.ndarray) -> np.ndarray:
    """(N, m - 1) probabilities of the steps between m edges."""
    return np.diff(np.asarray(distribution.cdf(np.tile(edges, (len(distribution), 1))), dtype=float), axis=1)


def pit(values: ArrayLike, *, n_bins: int = 20, ax: "Axes | None" = None) -> "Axes":
    """Histogram of the probability integral transform, flat for an honest forecaster.

    The band holds each bar of an honest forecaster with probability 95 %. A hump in the middle: intervals too
    wide. Heaps at the ends: too narrow. A slope: predictions too high or too low.
    """
    ax = axes(ax)
    values = np.asarray(values, dtype=float)
    ax.hist(values, bins=np.linspace(0, 1, n_bins + 1).tolist(), color=SKY, edgecolor="white", lw=0.8)
    _honest_bars(ax, 1 / n_bins, len(values), unit=1.0)
    ax.axhline(len(values) / n_bins, color=VERMILION, lw=1.5, label="ideal")
    ax.set_xlim(0, 1)
    legend_above(ax)
    return tidy(ax, "where the observed value fell (PIT)", "rows")


def coverage_curve(values: ArrayLike, *, ax: "Axes | None" = None) -> "Axes":
    """Share of rows inside the central interval, against the share promised; from PIT values.

    Below the diagonal the intervals are too narrow, above it too wide.
    """
    ax = axes(ax)
    reach = np.sort(np.abs(2 * np.asarray(values, dtype=float) - 1))
    nominal = np.linspace(0, 1, 101)
    observed = np.searchsorted(reach, nominal, side="right") / len(reach)
    low, high = binom.ppf([[0.025], [0.975]], len(reach), nominal) / len(reach)
    ax.fill_between(nominal, low, high, color=ORANGE, alpha=0.25, lw=0, label="honest forecaster, 95 %")
    ax.plot([0, 1], [0, 1], color=ORANGE, lw=1.2, label="ideal")
    ax.plot(nominal, observed, color=BLUE, lw=2, label="observed")
    percent(ax)
    legend_above(ax)
    return tidy(ax, "promised coverage", "observed coverage")


def qice_bars(shares: ArrayLike, *, n_rows: int | None = None, ax: "Axes | None" = None) -> "Axes":
    """Share of rows in each of M predicted quantile bins; QICE is the mean distance from 1 / M.

    Parameters
    ----------
    shares : (M,), fractions that sum to 1
    n_rows : how many rows they come from; draws the band of an honest forecaster
    """
    ax = axes(ax)
    shares = np.asarray(shares, dtype=float)
    m = len(shares)
    ax.bar(np.arange(1, m + 1), 100 * shares, color=SKY, width=0.86)
    if n_rows:
        _honest_bars(ax, 1 / m, n_rows, unit=100 / n_rows)
    ax.axhline(100 / m, color=VERMILION, lw=1.5, label=f"ideal, {100 / m:g} %")
    ax.set_xticks(range(1, m + 1))
    legend_above(ax)
    return tidy(ax, f"predicted quantile bin (of {m})", "rows in the bin, %")


def _honest_bars(ax: "Axes", share: float, n_rows: int, unit: float) -> None:
    """Where the bar of an honest forecaster lies with probability 95 %: a band, its edges over the bars."""
    low, high = unit * binom.ppf([0.025, 0.975], n_rows, share)
    ax.axhspan(low, high, color=ORANGE, alpha=0.25, lw=0, zorder=0, label="honest forecaster, 95 %")
    for edge in (low, high):
        ax.axhline(edge, color=ORANGE, lw=1, ls="--")


def intervals_vs_observed(
    y: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    max_rows: int = 150,
    ax: "Axes | None" = None,
) -> "Axes":
    """Predicted intervals, rows sorted by predicted mean, and the observed values; misses stand out.

    Of more than `max_rows` rows an even selection is drawn.
    """
    ax = axes(ax)
    order = np.argsort(mean, kind="stable")
    if len(order) > max_rows:
        order = order[np.linspace(0, len(order) - 1, max_rows).round().astype(int)]
    seen, centre, low, high = (np.asarray(v, dtype=float)[order] for v in (y, mean, lower, upper))
    x = np.arange(len(order))
    hit = (low <= seen) & (seen <= high)
    ax.vlines(x, low, high, color=SKY, alpha=0.75, lw=max(1.0, min(5.0, 380 / len(x))), label="interval")
    ax.plot(x, centre, color=BLUE, lw=1.4, label="mean")
    ax.scatter(x[hit], seen[hit], s=14, color=INK, zorder=3, label="observed")
    ax.scatter(x[~hit], seen[~hit], s=30, color=VERMILION, marker="X", zorder=4, label="outside it")
    ax.set_xticks([])
    legend_above(ax)
    return tidy(ax, "rows, by predicted mean", "response")
