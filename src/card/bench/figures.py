"""The paper's figures, drawn from reports and from the arrays kept beside them.

The functions that draw take arrays and give a matplotlib Figure; `draw` finds the arrays and
writes PNG and SVG. Truth is dark and prediction coloured, by hues that differ in lightness
too, so that the figures survive print and colour blindness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from card.bench import arrays
from card.bench.catalog import read_files
from card.bench.errors import BenchError
from card.bench.kinds import TOYS
from card.bench.reports import Report
from card.plots import BLUE, GREY, INK, PALE, SKY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = Mapping[str, np.ndarray]
MULTIMODAL = ("inverse_sinusoidal", "eight_gaussians", "full_circle")
ROUND = ("eight_gaussians", "full_circle")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "card",
}


@dataclass(frozen=True)
class FigureEntry:
    """A named figure: the report file it starts from, what to run for it, how it is drawn."""

    title: str
    files: tuple[str, ...]
    command: str
    make: Callable[[Sequence[tuple[Report, Arrays]]], Mapping[str, Figure]]
    needs_arrays: bool = True


def panels(n: int, columns: int, width: float = 2.6, height: float = 2.2) -> tuple[Figure, list[Axes]]:
    """A figure with n panels; those left over in the last row are not drawn."""
    from matplotlib.figure import Figure

    rows = -(-n // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for extra in axes[n:]:
        extra.set_axis_off()
    return figure, axes[:n]


def toy_scatter(toys: Mapping[str, Arrays]) -> Figure:
    """Test rows and one draw for each; the central 95 % where the law has one mode."""
    figure, axes = panels(len(toys), 4)
    for ax, (name, a) in zip(axes, toys.items(), strict=True):
        _mixed_points(ax, a["x"], {"y": a["y"], "draw": a["draw"]})
        if name not in MULTIMODAL:
            order = np.argsort(a["x"])
            x, lower, upper = (values[:: max(1, len(order) // 200)] for values in _interval(a, order))
            ax.fill_between(x, lower, upper, color=SKY, alpha=0.3, lw=0, zorder=0)
            for side in (lower, upper):
                ax.plot(x, side, color=BLUE, lw=1.0)
        elif name in ROUND:
            ax.set_aspect("equal", adjustable="datalim")
        ax.set_title(TOYS.get(name, name))
    _outer_labels(axes, 4, "x", "y")
    _legend(figure, {"test rows": INK, "one draw each": VERMILION, "central 95 % of the draws": BLUE})
    return figure


def _interval(a: Arrays, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, and the smooth borders of the interval, in this order of rows."""
    return a["x"][order], _smooth(a["lower"][order]), _smooth(a["upper"][order])


def _outer_labels(axes: Sequence[Axes], columns: int, x: str, y: str) -> None:
    """Names of the axes, on the panels of the first column and of the last row."""
    for i, ax in enumerate(axes):
        if i + columns >= len(axes):
            ax.set_xlabel(x)
        if i % columns == 0:
            ax.set_ylabel(y)


def _mixed_points(ax: Axes, x: np.ndarray, kinds: Mapping[str, np.ndarray], most: int = 1000) -> None:
    """Two clouds drawn point by point in turn, so that neither hides the other."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(x))[:most]
    colours = np.repeat([INK, VERMILION], len(rows))
    both = np.concatenate([values[rows] for values in kinds.values()])
    order = rng.permutation(len(both))
    ax.scatter(
        np.tile(x[rows], 2)[order], both[order], s=3.5, c=colours[order], alpha=0.7, lw=0, rasterized=True
    )


def _legend(figure: Figure, entries: Mapping[str, str]) -> None:
    """Names of colours: dots for points, a line where the name speaks of draws as a whole."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], color=colour, lw=2 if "central" in name else 0, marker="" if "central" in name else "o"
        )
        for name, colour in entries.items()
    ]
    figure.legend(handles, list(entries), loc="outside lower center", ncols=len(entries), markerscale=0.7)


def _smooth(values: np.ndarray, window: int = 9) -> np.ndarray:
    """A running median: the border of an interval is smooth, its estimate in one row is not."""
    padded = np.pad(values, window // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1)


def _shared_legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=4)


def coverage_bins(toys: Mapping[str, Arrays]) -> Figure:
    """Share of test rows in each of ten quantile intervals; even bars at 0.1 are perfect."""
    figure, axes = panels(len(toys), 4, height=1.9)
    for ax, (name, a) in zip(axes, toys.items(), strict=True):
        shares = a["shares"]
        noise = 1.96 * np.sqrt(0.1 * 0.9 / len(a["y"]))
        ax.axhspan(0.1 - noise, 0.1 + noise, color=PALE, lw=0, label="95 % of perfect forecasters")
        ax.bar(np.arange(1, 11), shares, color=BLUE, width=0.8, label="share of rows")
        ax.axhline(0.1, color=INK, lw=0.8, ls="--")
        ax.set(xticks=[1, 5, 10], ylim=(0, max(0.17, 1.2 * shares.max())))
        ax.set_title(TOYS.get(name, name))
        text = f"QICE {100 * np.abs(shares - 0.1).mean():.2f} %"
        ax.text(0.98, 0.97, text, transform=ax.transAxes, ha="right", va="top", fontsize=8)
    _outer_labels(axes, 4, "quantile interval", "share of test rows")
    _shared_legend(figure, axes[0])
    return figure


def chain_samples(a: Arrays, title: str) -> Figure:
    """q (top) and p (bottom) through time, from the response to noise.

    Against x where there is one covariate; against the number of the test row otherwise, in the
    order of the responses, which are then drawn over the first panel of p.
    """
    times = a["times"]
    figure, axes = panels(2 * len(times), len(times), width=1.9, height=1.9)
    x, every = _places(a), np.concatenate([a["q"].ravel(), a["p"].ravel()])
    size = 2.2 if _is_toy(a) else 5.0
    low, high = np.quantile(every, [0.001, 0.999])
    for j, t in enumerate(times):
        top, bottom = axes[j], axes[len(times) + j]
        _points(top, x, a["q"][j], INK, size, 0.6)
        _points(bottom, np.broadcast_to(x, a["p"][j].shape).ravel(), a["p"][j].ravel(), VERMILION, 2.0, 0.5)
        if j == 0 and not _is_toy(a):
            _points(bottom, x, a["y"], INK, size, 1.0)
        top.set_title(f"t = {t}")
        for ax in (top, bottom):
            ax.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
            ax.tick_params(labelleft=j == 0, labelbottom=ax is bottom)
    figure.supxlabel("x" if _is_toy(a) else "test rows in the order of their responses", fontsize=9)
    axes[0].set_ylabel("q, forward \u2192")
    axes[len(times)].set_ylabel("p, reverse \u2190")
    figure.suptitle(title if _is_toy(a) else f"{title} (black over p: the responses)")
    return figure


def _points(ax: Axes, x: np.ndarray, y: np.ndarray, colour: str, size: float, alpha: float) -> None:
    ax.plot(x, y, ".", ms=size, mew=0, color=colour, alpha=alpha, rasterized=True)


def _is_toy(a: Arrays) -> bool:
    """Whether the first column of X says it all."""
    return len(a["y"]) > 1000


def _places(a: Arrays) -> np.ndarray:
    if _is_toy(a):
        return a["x"]
    places = np.empty(len(a["y"]))
    places[np.argsort(a["y"], kind="stable")] = np.arange(len(places))
    return places


def reverse_metrics(splits: Sequence[Arrays]) -> Figure:
    """RMSE, NLL, QICE and PICP as the chain runs from noise (left) to the response (right)."""
    figure, axes = panels(4, 4, height=2.3)
    times = splits[0]["metric_times"]
    titles = {"rmse": "RMSE", "nll": "NLL", "qice": "QICE, %", "picp": "PICP, %"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        values = np.stack([split[name] for split in splits])
        for split in values:
            ax.plot(times, split, color=GREY, lw=0.6, alpha=0.6)
        ax.plot(times, values.mean(axis=0), color=BLUE, lw=1.8)
        if name == "picp":
            ax.axhline(95, color=INK, lw=0.8, ls="--")
        ax.set(xlim=(times.max(), 0), xlabel="t", title=title)
    figure.suptitle(f"Boston, mean of {len(splits)} splits (thin lines: each split; dashed: 95 %)")
    return figure


def t_test_qq(rows: np.ndarray, title: str) -> Figure:
    """Standardised differences between the two leading classes over draws, a panel for each test row."""
    figure, axes = panels(len(rows), 8, width=1.15, height=1.25)
    levels = norm.ppf((np.arange(rows.shape[1]) + 0.5) / rows.shape[1])
    for ax, row in zip(axes, rows, strict=True):
        ordered = np.sort((row - row.mean()) / (row.std() or 1.0))
        ax.plot([-3.2, 3.2], [-3.2, 3.2], color=INK, lw=0.8, ls="--")
        _points(ax, levels, ordered, BLUE, 4.0, 0.8)
        ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), xticks=[-2, 0, 2], yticks=[-2, 0, 2])
        ax.tick_params(labelsize=7)
        ax.label_outer()
    figure.supxlabel("quantile of a Gaussian", fontsize=9)
    figure.supylabel("difference, standardised", fontsize=9)
    figure.suptitle(f"{title}: probability of the first class less the second, over draws", fontsize=10)
    return figure


def efficiency(curves: Mapping[str, np.ndarray], title: str) -> Figure:
    """Accuracy of one draw against epochs, for the two priors; a curve is (points, 2)."""
    figure, (ax,) = panels(1, 1, width=4.2, height=3.0)
    styles = zip((BLUE, VERMILION), "os", ("-", "--"), strict=True)
    for (name, curve), (colour, mark, line) in zip(curves.items(), styles, strict=False):
        ax.plot(curve[:, 0], curve[:, 1], color=colour, marker=mark, ms=5, ls=line, label=name)
    ax.set(xlabel="epochs", ylabel="accuracy of one draw, %", title=title)
    ax.set_xlim(left=0)
    ax.legend()
    return figure


def _make_toys(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    toys = _by_toy(found)
    return {"toys": toy_scatter(toys)} if toys else {}


def _make_coverage(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    toys = _by_toy(found)
    return {"coverage": coverage_bins(toys)} if toys else {}


def _by_toy(found: Sequence[tuple[Report, Arrays]]) -> dict[str, Arrays]:
    by_name: dict[str, Arrays] = {}
    for report, kept in found:
        if "shares" in kept and report["dataset"] in TOYS:
            by_name.setdefault(report["dataset"], kept)
    return {name: by_name[name] for name in TOYS if name in by_name}


def _make_chains(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    first: dict[str, Arrays] = {}
    for report, kept in found:
        if "times" in kept:
            first.setdefault(report["dataset"], kept)
    return {
        f"chain-{name}": chain_samples(kept, TOYS.get(name, name.capitalize()))
        for name, kept in first.items()
    }


def _make_reverse(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    splits = [kept for report, kept in found if report["dataset"] == "boston" and "metric_times" in kept]
    return {"reverse": reverse_metrics(splits)} if splits else {}


def _make_qq(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    first: dict[str, np.ndarray] = {}
    for report, kept in found:
        if "differences" in kept and report.get("variant", "") in ("", "V1"):
            first.setdefault(report["dataset"], kept["differences"])
    return {f"qq-{name}": t_test_qq(rows, _image_title(name)) for name, rows in first.items()}


PRIOR_NAMES = {"V1": "prior N(f(x), I)", "V3": "prior N(0, I)"}


def _make_efficiency(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    """One figure for each data set, curves averaged over seeds."""
    runs: dict[str, dict[str, list[Any]]] = {}
    for report, _ in found:
        if report.get("curve") and report.get("variant") in PRIOR_NAMES:
            name = PRIOR_NAMES[report["variant"]]
            runs.setdefault(report["dataset"], {}).setdefault(name, []).append(report["curve"])
    return {
        f"efficiency-{dataset}": efficiency(
            {name: np.mean(np.array(by_prior[name], dtype=float), axis=0) for name in sorted(by_prior)[::-1]},
            _image_title(dataset),
        )
        for dataset, by_prior in runs.items()
    }


def _image_title(dataset: str) -> str:
    return IMAGE_TITLES.get(dataset, dataset)


IMAGE_TITLES = {
    "noisy_mnist": "Noisy MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet100": "ImageNet-100",
    "imagenet": "ImageNet",
}
FIGURES = {
    "toys": FigureEntry("the eight toy scatters", ("toy.jsonl",), "card bench run toy", _make_toys),
    "coverage": FigureEntry("coverage by bins, toys", ("toy.jsonl",), "card bench run toy", _make_coverage),
    "chains": FigureEntry(
        "q and p samples through time",
        ("toy.jsonl", "uci.jsonl"),
        "card bench run toy --recipe paper; card bench run uci --recipe paper --datasets boston",
        _make_chains,
    ),
    "reverse": FigureEntry(
        "metrics through the reverse process, Boston",
        ("uci.jsonl",),
        "card bench run uci --recipe paper --datasets boston",
        _make_reverse,
    ),
    "qq": FigureEntry(
        "Q-Q plots of t-test differences",
        ("classification.jsonl",),
        "card bench run classification",
        _make_qq,
    ),
    "efficiency": FigureEntry(
        "training efficiency of the two priors",
        ("priors.jsonl",),
        "card bench run priors",
        _make_efficiency,
        needs_arrays=False,
    ),
}


def draw(name: str, results: Path, out: Path, recipe: str = "") -> list[Path]:
    """Make a figure and write it as PNG and SVG; the paths written."""
    entry = FIGURES[name]
    try:
        import matplotlib
    except ImportError:
        raise BenchError("figures need matplotlib: pip install 'card-diffusion[plots]'") from None
    with matplotlib.rc_context(STYLE):
        made = entry.make(_found(entry, results, recipe))
        if not made:
            raise BenchError(f"nothing in {results} for figure {name!r} yet; run: {entry.command}")
        return [path for stem, figure in made.items() for path in _write(figure, out / stem)]


def _found(entry: FigureEntry, results: Path, recipe: str) -> list[tuple[Report, Arrays]]:
    """Reports with their arrays; of one recipe, the first that has any if none is asked for."""
    found: list[tuple[Report, Arrays]] = []
    for name in entry.files:
        for report in read_files(results, [name]):
            kept = arrays.load(arrays.array_path(results, report, Path(name).stem))
            if recipe in ("", report["recipe"]) and (kept is not None or not entry.needs_arrays):
                recipe = report["recipe"]
                found.append((report, kept or {}))
    return found


def _write(figure: Figure, stem: Path) -> list[Path]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
    for path in paths:
        figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
