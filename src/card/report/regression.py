"""The sections on predicted numbers."""

from typing import Any

import numpy as np
from scipy.signal import find_peaks
from scipy.stats import binom

from card import plots
from card.evaluation import COVERAGE, Estimate, Rows
from card.report import html

RIDGES = 8


def verdict(rows: Rows, scores: dict[str, Estimate]) -> str:
    """One sentence: do the intervals keep their promise?"""
    n, held = len(rows), scores["picp"].value
    low, high = 100 * binom.ppf([0.025, 0.975], n, COVERAGE) / n
    if held < low:
        said = "fewer than promised: the intervals are too narrow for these rows"
    elif held > high:
        said = "more than promised: the intervals are wider than they need be"
    else:
        said = "as promised"
    return (
        f"The 95 % intervals held {held:.1f} % of the {n:,} observed values, {said} "
        f"(an honest forecaster would land between {low:.0f} and {high:.0f} %)."
    )


def reliability(rows: Rows) -> str:
    """PIT, coverage and QICE."""
    bins = np.histogram(rows.pit, bins=np.linspace(0, 1, 11))[0] / len(rows)
    return html.figures(
        [
            (
                plots.pit(rows.pit, n_bins=int(np.clip(len(rows) // 10, 5, 20)), ax=html.canvas()),
                "Where observed values fell",
                "Each observed value has a place in its predicted distribution, from 0 (below all of it) "
                "to 1. Honest predictions give bars of equal height. Heaps at both ends: intervals too "
                "narrow; a hump in the middle: too wide; a slope: predictions too high or too low.",
            ),
            (
                plots.coverage_curve(rows.pit, ax=html.canvas()),
                "Promised and observed coverage",
                "For every promised coverage, the share of rows inside. On the line is honest; below it, "
                "intervals are too narrow.",
            ),
            (
                plots.qice_bars(bins, n_rows=len(rows), ax=html.canvas()),
                "Ten equally probable bins",
                "Every bin should hold 10 % of the rows; QICE is the mean distance from it.",
            ),
        ]
    )


def predictions(rows: Rows, numbers: np.ndarray, distribution: Any, name: str) -> str:
    """Predictions and what was observed, and the shapes of some of them; `name` is the response's."""
    caption = "Rows from the lowest to the highest predicted mean" + (
        ", an even selection of 90." if len(rows) > 90 else "."
    )
    ax = html.canvas(4.0)
    plots.intervals_vs_observed(rows.y, rows.mean, rows.lower, rows.upper, max_rows=90, ax=ax)
    ax.set_ylabel(name)
    caption += " Crosses are observed values outside their interval: about one in twenty should be."
    return html.figures(
        [
            (ax, "95 % intervals and observed values", caption),
            _densities(distribution, rows.y, numbers, name),
        ]
    )


def _densities(distribution: Any, y: np.ndarray, numbers: np.ndarray, name: str) -> tuple[Any, str, str]:
    """Predicted densities, rows with several peaks first, then from narrow to wide."""
    peaks, picks = choose_rows(distribution)
    several = int((peaks > 1).sum())
    ax = html.canvas(4.0)
    plots.density_ridge(distribution[picks], y[picks], labels=[f"row {numbers[i]}" for i in picks], ax=ax)
    ax.set_ylabel("")
    ax.set_xlabel(name)
    if several:
        said = f"{several} of {len(peaks)} rows looked at have more than one peak; those come first."
    else:
        said = f"None of {len(peaks)} rows looked at has more than one peak; these go from narrow to wide."
    return ax, "Predicted densities", said + " The mark is the observed value."


def certain_rows(rows: Rows, numbers: np.ndarray, n: int = 6) -> str:
    """Tables of the narrowest and the widest predictions."""
    width = rows.upper - rows.lower
    order = np.argsort(width, kind="stable")
    n = min(n, len(order) // 2)
    return html.text(
        "By the width of the 95 % interval. Rows are numbered from 1 in the order of the file."
    ) + html.columns(
        "<h3>Most certain</h3>" + _rows_table(rows, numbers, order[:n]),
        "<h3>Least certain</h3>" + _rows_table(rows, numbers, order[::-1][:n]),
    )


def _rows_table(rows: Rows, numbers: np.ndarray, picks: np.ndarray) -> str:
    inside = (rows.lower <= rows.y) & (rows.y <= rows.upper)
    columns = (rows.y, rows.mean, rows.lower, rows.upper)
    cells = []
    for i in picks:
        y, mean, lower, upper = (html.number(float(v[i])) for v in columns)
        cells.append((numbers[i], y, mean, f"{lower} to {upper}", "" if inside[i] else "outside"))
    return html.table(["row", "observed", "mean", "95 % interval", ""], cells, numeric=range(3))


def choose_rows(distribution: Any, most: int = RIDGES) -> tuple[np.ndarray, np.ndarray]:
    """(number of peaks of each row, the rows to show).

    Of the rows with several peaks those that differ most from one another; then others, from narrow to wide.
    """
    _, p = plots.density_curves(distribution)
    peaks = np.array([len(find_peaks(np.pad(row, 1), prominence=0.15 * row.max())[0]) for row in p])
    std = distribution.std()
    many = np.flatnonzero(peaks > 1)
    many = many[np.argsort(-peaks[many] - std[many] / std.max(), kind="stable")]
    many = many[_unlike(p[many], most)]
    rest = np.setdiff1d(np.argsort(std, kind="stable"), many, assume_unique=True)
    rest = rest[peaks[rest] <= 1] if (peaks <= 1).any() else rest[:0]
    spread = rest[np.linspace(0, len(rest) - 1, min(len(rest), most - len(many))).round().astype(int)]
    return peaks, np.concatenate([many, spread])


def _unlike(p: np.ndarray, most: int) -> np.ndarray:
    """Positions of the first curve, then ever that which is farthest from those taken."""
    if len(p) == 0:
        return np.zeros(0, dtype=int)
    taken = [0]
    distance = np.abs(p - p[0]).sum(axis=1)
    while len(taken) < min(most, len(p)):
        taken.append(int(distance.argmax()))
        distance = np.minimum(distance, np.abs(p - p[taken[-1]]).sum(axis=1))
    return np.array(taken)
