"""Pictures of predicted classes: confidence, and what it is worth."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from card.metrics import calibration_bins
from card.metrics import risk_coverage as risk_coverage_curve
from card.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    VERMILION,
    axes,
    legend_above,
    percent,
    shorten,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability_diagram(
    y: ArrayLike,
    proba: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    n_bins: int = 10,
    ax: "Axes | None" = None,
) -> "Axes":
    """Accuracy against confidence, in equal bins of confidence; the area of a point is its number of rows.

    Below the diagonal the classifier is over-confident.
    """
    ax = axes(ax)
    bins = calibration_bins(y, proba, n_bins, classes)
    full = bins.n_rows > 0
    ax.plot([0, 1], [0, 1], color=ORANGE, lw=1.2, label="ideal")
    ax.vlines(bins.confidence[full], bins.confidence[full], bins.accuracy[full], color=GREY, lw=1)
    size = 30 + 370 * bins.n_rows[full] / bins.n_rows.max()
    ax.scatter(
        bins.confidence[full],
        bins.accuracy[full],
        s=size,
        color=BLUE,
        edgecolor="white",
        zorder=3,
        clip_on=False,  # surest and always right: a point in the corner
        label="rows of like confidence",
    )
    percent(ax)
    legend_above(ax, markerscale=0.5)
    return tidy(ax, "confidence", "accuracy")


def risk_coverage(
    correct: ArrayLike,
    confidence: ArrayLike,
    *,
    other: tuple[ArrayLike, ArrayLike] | None = None,
    other_label: str = "f alone",
    ax: "Axes | None" = None,
) -> "Axes":
    """Error rate on the most confident rows, as more of them are answered without a person's help.

    Parameters
    ----------
    correct, confidence : (n_rows,) each
    other : (correct, confidence) of another classifier, drawn for comparison
    """
    ax = axes(ax)
    curve = risk_coverage_curve(correct, confidence)
    ax.plot(curve.coverage, 100 * curve.risk, color=BLUE, lw=2, label="most confident first")
    if other is not None:
        second = risk_coverage_curve(*other)
        ax.plot(second.coverage, 100 * second.risk, color=GREY, lw=1.4, ls="--", label=other_label)
    ax.axhline(100 * curve.risk[-1], color=ORANGE, lw=1.2, label="in random order")
    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    legend_above(ax)
    return tidy(ax, "share of rows answered", "errors among them, %")


def class_probabilities(
    classes: ArrayLike,
    proba: ArrayLike,
    *,
    widths: ArrayLike | None = None,
    observed: Any = None,
    max_classes: int = 15,
    ax: "Axes | None" = None,
) -> "Axes":
    """Predicted probabilities of one row, the most probable class on top.

    Parameters
    ----------
    classes, proba : (n_classes,) each
    widths : (n_classes,), optional
        Interval widths (PIW) of the classes, written beside the bars.
    observed : the true class, optional; its bar has another colour
    """
    ax = axes(ax)
    labels, p = np.asarray(classes), np.asarray(proba, dtype=float)
    top = np.argsort(-p, kind="stable")[:max_classes][::-1]
    true = np.array([observed is not None and labels[i] == observed for i in top])
    ax.barh(np.arange(len(top)), p[top], color=np.where(true, VERMILION, BLUE).tolist(), height=0.7)
    ax.set_yticks(range(len(top)), [shorten(str(labels[i])) for i in top])
    if widths is not None:
        for at, i in enumerate(top):
            ax.text(p[i] + 0.01, at, f"PIW {np.asarray(widths)[i]:.2g}", va="center", color=GREY)
    if true.any():
        ax.barh([0], [0], color=VERMILION, label="observed")
        ax.legend(frameon=False, loc="lower right")
    ax.set_xlim(0, 1.15 if widths is not None else 1)
    ax.set_xticks(np.linspace(0, 1, 6))
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    return tidy(ax, "predicted probability", "")


def class_shares(
    proba: ArrayLike,
    classes: ArrayLike,
    *,
    labels: Sequence[str] | None = None,
    y: ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The predicted probabilities of several rows, a bar a row, the first on top.

    Classes beyond the five that matter most in these rows are drawn together. A dot marks the share of the
    true class y.
    """
    ax = axes(ax)
    p, names = np.asarray(proba, dtype=float), np.asarray(classes)
    n = len(p)
    order = np.argsort(-p.sum(axis=0), kind="stable")
    top, rest = order[:5], order[5:]
    at, left = np.arange(n)[::-1], np.zeros(n)
    for colour, i in zip((BLUE, ORANGE, GREEN, PURPLE, SKY), top, strict=False):
        ax.barh(at, p[:, i], left=left, color=colour, height=0.72, label=shorten(str(names[i]), 16))
        if y is not None:
            true = np.asarray(y) == names[i]
            ax.scatter((left + p[:, i] / 2)[true], at[true], s=26, color=INK, edgecolor="white", zorder=3)
        left = left + p[:, i]
    if len(rest):
        ax.barh(at, 1 - left, left=left, color=PALE, height=0.72, label="all others")
    ax.set_yticks(at, list(labels or map(str, range(n))))
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    legend_above(ax)
    return tidy(ax, "predicted probability", "row")


def widths_by_outcome(widths: ArrayLike, correct: ArrayLike, *, ax: "Axes | None" = None) -> "Axes":
    """Interval widths (PIW) of the predicted classes, of rows that were right and of rows that were wrong."""
    ax = axes(ax)
    widths, correct = np.asarray(widths, dtype=float), np.asarray(correct, dtype=bool)
    edges = np.linspace(0, float(widths.max()) or 1.0, 21)
    for rows, colour, label in ((correct, SKY, "right"), (~correct, VERMILION, "wrong")):
        if rows.any():
            weights = np.full(rows.sum(), 100 / rows.sum())
            ax.hist(widths[rows], bins=edges.tolist(), weights=weights, color=colour, alpha=0.6, label=label)
    legend_above(ax)
    return tidy(ax, "interval width of the predicted class", "% of the rows right, or wrong")
