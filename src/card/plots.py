"""Pictures of one prediction and of many, drawn on a matplotlib Axes.

Every function takes arrays, or an object with `quantile` and `pdf` such as the library's predicted
distributions; none takes a model. Each draws on `ax`, or on a new figure, and returns the Axes. Colours
are Okabe and Ito's, told apart by colour-blind readers, and lightness differs too, for print.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from card.metrics import calibration_bins
from card.metrics import risk_coverage as risk_coverage_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
INK, GREY, PALE = "#222222", "#8a8f98", "#e6e8eb"


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
    ax = _axes(ax)
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
    return _tidy(ax, "x", "response")


def density(
    distribution: Any,
    row: int = 0,
    y: float | None = None,
    *,
    coverage: float = 0.9,
    ax: "Axes | None" = None,
) -> "Axes":
    """The predicted density of one row, its central interval shaded, its mean and the observed y marked."""
    ax = _axes(ax)
    one = distribution[row : row + 1]
    t, p = density_curves(one, span=[] if y is None else [y])
    lower, upper = one.quantile([(1 - coverage) / 2, (1 + coverage) / 2])[0]
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
    _legend_above(ax)
    return _tidy(ax, "response", "predicted density")


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
    ax = _axes(ax)
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
        _legend_above(ax)
    return _tidy(ax, "response", "row")


def pit(values: ArrayLike, *, n_bins: int = 20, ax: "Axes | None" = None) -> "Axes":
    """Histogram of the probability integral transform, flat for an honest forecaster.

    The band holds each bar of an honest forecaster with probability 95 %. A hump in the middle: intervals too
    wide. Heaps at the ends: too narrow. A slope: predictions too high or too low.
    """
    ax = _axes(ax)
    values = np.asarray(values, dtype=float)
    ax.hist(values, bins=np.linspace(0, 1, n_bins + 1).tolist(), color=SKY, edgecolor="white", lw=0.8)
    _honest_bars(ax, 1 / n_bins, len(values), unit=1.0)
    ax.axhline(len(values) / n_bins, color=VERMILION, lw=1.5, label="ideal")
    ax.set_xlim(0, 1)
    _legend_above(ax)
    return _tidy(ax, "where the observed value fell (PIT)", "rows")


def coverage_curve(values: ArrayLike, *, ax: "Axes | None" = None) -> "Axes":
    """Share of rows inside the central interval, against the share promised; from PIT values.

    Below the diagonal the intervals are too narrow, above it too wide.
    """
    ax = _axes(ax)
    reach = np.sort(np.abs(2 * np.asarray(values, dtype=float) - 1))
    nominal = np.linspace(0, 1, 101)
    observed = np.searchsorted(reach, nominal, side="right") / len(reach)
    low, high = binom.ppf([[0.025], [0.975]], len(reach), nominal) / len(reach)
    ax.fill_between(nominal, low, high, color=ORANGE, alpha=0.25, lw=0, label="honest forecaster, 95 %")
    ax.plot([0, 1], [0, 1], color=ORANGE, lw=1.2)
    ax.plot(nominal, observed, color=BLUE, lw=2, label="observed")
    _percent(ax)
    _legend_above(ax)
    return _tidy(ax, "promised coverage", "observed coverage")


def qice_bars(shares: ArrayLike, *, n_rows: int | None = None, ax: "Axes | None" = None) -> "Axes":
    """Share of rows in each of M predicted quantile bins; QICE is the mean distance from 1 / M.

    Parameters
    ----------
    shares : (M,), fractions that sum to 1
    n_rows : how many rows they come from; draws the band of an honest forecaster
    """
    ax = _axes(ax)
    shares = np.asarray(shares, dtype=float)
    m = len(shares)
    ax.bar(np.arange(1, m + 1), 100 * shares, color=SKY, width=0.86)
    if n_rows:
        _honest_bars(ax, 1 / m, n_rows, unit=100 / n_rows)
    ax.axhline(100 / m, color=VERMILION, lw=1.5, label=f"ideal, {100 / m:g} %")
    ax.set_xticks(range(1, m + 1))
    _legend_above(ax)
    return _tidy(ax, f"predicted quantile bin (of {m})", "rows in the bin, %")


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
    ax = _axes(ax)
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
    _legend_above(ax)
    return _tidy(ax, "rows, by predicted mean", "response")


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
    ax = _axes(ax)
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
    _percent(ax)
    _legend_above(ax, markerscale=0.5)
    return _tidy(ax, "confidence", "accuracy")


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
    ax = _axes(ax)
    curve = risk_coverage_curve(correct, confidence)
    ax.plot(curve.coverage, 100 * curve.risk, color=BLUE, lw=2, label="most confident first")
    if other is not None:
        second = risk_coverage_curve(*other)
        ax.plot(second.coverage, 100 * second.risk, color=GREY, lw=1.4, ls="--", label=other_label)
    ax.axhline(100 * curve.risk[-1], color=ORANGE, lw=1.2, label="in random order")
    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    _legend_above(ax)
    return _tidy(ax, "share of rows answered", "errors among them, %")


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
    ax = _axes(ax)
    p, names = np.asarray(proba, dtype=float), np.asarray(classes)
    n = len(p)
    order = np.argsort(-p.sum(axis=0), kind="stable")
    top, rest = order[:5], order[5:]
    at, left = np.arange(n)[::-1], np.zeros(n)
    for colour, i in zip((BLUE, ORANGE, GREEN, PURPLE, SKY), top, strict=False):
        ax.barh(at, p[:, i], left=left, color=colour, height=0.72, label=_shorten(str(names[i]), 16))
        if y is not None:
            true = np.asarray(y) == names[i]
            ax.scatter((left + p[:, i] / 2)[true], at[true], s=26, color=INK, edgecolor="white", zorder=3)
        left = left + p[:, i]
    if len(rest):
        ax.barh(at, 1 - left, left=left, color=PALE, height=0.72, label="all others")
    ax.set_yticks(at, list(labels or map(str, range(n))))
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    _legend_above(ax)
    return _tidy(ax, "predicted probability", "row")


def widths_by_outcome(widths: ArrayLike, correct: ArrayLike, *, ax: "Axes | None" = None) -> "Axes":
    """Interval widths (PIW) of the predicted classes, of rows that were right and of rows that were wrong."""
    ax = _axes(ax)
    widths, correct = np.asarray(widths, dtype=float), np.asarray(correct, dtype=bool)
    edges = np.linspace(0, float(widths.max()) or 1.0, 21)
    for rows, colour, label in ((correct, SKY, "right"), (~correct, VERMILION, "wrong")):
        if rows.any():
            weights = np.full(rows.sum(), 100 / rows.sum())
            ax.hist(widths[rows], bins=edges.tolist(), weights=weights, color=colour, alpha=0.6, label=label)
    _legend_above(ax)
    return _tidy(ax, "interval width of the predicted class", "% of the rows right, or wrong")


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
    ax = _axes(ax)
    labels, p = np.asarray(classes), np.asarray(proba, dtype=float)
    top = np.argsort(-p, kind="stable")[:max_classes][::-1]
    true = np.array([observed is not None and labels[i] == observed for i in top])
    ax.barh(np.arange(len(top)), p[top], color=np.where(true, VERMILION, BLUE).tolist(), height=0.7)
    ax.set_yticks(range(len(top)), [_shorten(str(labels[i])) for i in top])
    if widths is not None:
        for at, i in enumerate(top):
            ax.text(p[i] + 0.01, at, f"PIW {np.asarray(widths)[i]:.2g}", va="center", color=GREY)
    if true.any():
        ax.barh([0], [0], color=VERMILION, label="observed")
        ax.legend(frameon=False, loc="lower right")
    ax.set_xlim(0, 1.15 if widths is not None else 1)
    ax.set_xticks(np.linspace(0, 1, 6))
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    return _tidy(ax, "predicted probability", "")


def uncertainty_parts(
    aleatoric: ArrayLike, epistemic: ArrayLike, *, entropy: bool = False, ax: "Axes | None" = None
) -> "Axes":
    """Noise that no more data would remove, against doubt that more data would; one point a row.

    Variances are drawn as standard deviations; with `entropy`, nats are drawn as they are.
    """
    ax = _axes(ax)
    a, e = (np.asarray(part, dtype=float) for part in (aleatoric, epistemic))
    a, e = (a, e) if entropy else (np.sqrt(a), np.sqrt(e))
    ax.scatter(a, e, s=16, color=BLUE, alpha=0.5, lw=0)
    top = 1.05 * float(max(a.max(), e.max())) or 1.0
    ax.plot([0, top], [0, top], color=GREY, lw=1, ls=":", label="equal parts")
    ax.set_xlim(0, 1.05 * float(a.max()) or 1.0)
    ax.set_ylim(0, 1.15 * float(e.max()) or 1.0)
    _legend_above(ax)
    unit = "nats" if entropy else "std"
    return _tidy(ax, f"noise in the data (aleatoric {unit})", f"doubt of the model (epistemic {unit})")


def column_effects(
    names: Sequence[str], effects: ArrayLike, *, label: str = "effect", ax: "Axes | None" = None
) -> "Axes":
    """Horizontal bars, the largest effect on top."""
    ax = _axes(ax)
    effects = np.asarray(effects, dtype=float)
    order = np.argsort(effects, kind="stable")
    ax.barh(range(len(order)), effects[order], color=BLUE, height=0.7 if len(order) > 2 else 0.4)
    ax.set_yticks(range(len(order)), [_shorten(names[i]) for i in order])
    ax.set_ylim(-0.6, len(order) - 0.4)
    return _tidy(ax, label, "")


def density_curves(
    distribution: Any, n_points: int = 400, span: ArrayLike = ()
) -> tuple[np.ndarray, np.ndarray]:
    """(points, density of every row at them), over the range of the predictions and of `span`.

    A response on a grid (counts, ordinal levels) has no density; its mass is spread over the points.
    """
    ends = np.concatenate([np.ravel(distribution.quantile([0.002, 0.998])), np.asarray(span, dtype=float)])
    margin = 0.04 * (np.ptp(ends) or 1.0)
    t = np.linspace(ends.min() - margin, ends.max() + margin, n_points)
    p = np.asarray(distribution.pdf(np.tile(t, (len(distribution), 1))), dtype=float)
    lost = p.sum(axis=1) * (t[1] - t[0]) < 0.5
    if lost.any():
        edges = np.tile(np.append(t, t[-1] + t[1] - t[0]), (len(distribution), 1))
        mass = np.diff(np.asarray(distribution.cdf(edges), dtype=float), axis=1) / (t[1] - t[0])
        p = np.where(lost[:, None], mass, p)
    return t, p


def new_figure(width: float = 6.4, height: float = 4.0) -> Any:
    """An empty figure of so many inches, or the advice to install matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'card-diffusion[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _axes(ax: "Axes | None") -> "Axes":
    return new_figure().add_subplot() if ax is None else ax


def _tidy(ax: "Axes", x: str, y: str) -> "Axes":
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _legend_above(ax: "Axes", **options: Any) -> None:
    """Outside, where it hides no data; as many entries beside each other as fit."""
    handles, labels = ax.get_legend_handles_labels()
    figure: Any = ax.get_figure()
    room = ax.get_position().width * figure.get_size_inches()[0]
    ncols = next((n for n in range(len(labels), 1, -1) if _legend_width(labels, n) < room), 1)
    ax.legend(
        handles,
        labels,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.1,
        ncols=ncols,
        columnspacing=1.2,
        handlelength=1.4,
        **options,
    )


def _legend_width(labels: Sequence[str], ncols: int) -> float:
    """About how many inches a legend of so many columns takes."""
    return sum(0.5 + 0.08 * max(map(len, column)) for column in np.array_split(labels, ncols))


def _honest_bars(ax: "Axes", share: float, n_rows: int, unit: float) -> None:
    """Where the bar of an honest forecaster lies with probability 95 %: a band, its edges over the bars."""
    low, high = unit * binom.ppf([0.025, 0.975], n_rows, share)
    ax.axhspan(low, high, color=ORANGE, alpha=0.25, lw=0, zorder=0, label="honest forecaster, 95 %")
    for edge in (low, high):
        ax.axhline(edge, color=ORANGE, lw=1, ls="--")


def _percent(ax: "Axes") -> None:
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda v, _: f"{v:.0%}")


def _shorten(name: str, most: int = 24) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
