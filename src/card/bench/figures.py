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
        if name not in MULTIMODAL:
            order = np.argsort(a["x"])
            lower, upper = (_smooth(a[side][order]) for side in ("lower", "upper"))
            ax.fill_between(a["x"][order], lower, upper, color=SKY, alpha=0.35, lw=0, label="95 % interval")
        ax.plot(a["x"], a["y"], ".", ms=2.2, color=INK, alpha=0.5, mew=0, label="test rows")
        ax.plot(a["x"], a["draw"], ".", ms=2.2, color=VERMILION, alpha=0.5, mew=0, label="one draw each")
        ax.set_title(TOYS.get(name, name))
    _shared_legend(figure, axes[0])
    return figure


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
        ax.set(xticks=[1, 5, 10], ylim=(0, max(0.16, 1.05 * shares.max())))
        ax.set_title(f"{TOYS.get(name, name)}, QICE {100 * np.abs(shares - 0.1).mean():.2f} %")
    axes[0].set(xlabel="quantile interval", ylabel="share of rows")
    _shared_legend(figure, axes[0])
    return figure


def chain_samples(a: Arrays, title: str) -> Figure:
    """q (top) and p (bottom) through time, from the response to noise.

    Against x where there is one covariate; against the number of the test row otherwise, in the
    order of the responses.
    """
    times = a["times"]
    figure, axes = panels(2 * len(times), len(times), width=1.9, height=1.9)
    x, every = _places(a), np.concatenate([a["q"].ravel(), a["p"].ravel()])
    size = 2.2 if _is_toy(a) else 5.0
    low, high = np.quantile(every, [0.001, 0.999])
    for j, t in enumerate(times):
        top, bottom = axes[j], axes[len(times) + j]
        top.plot(x, a["q"][j], ".", ms=size, mew=0, color=INK, alpha=0.6)
        if j == 0 and _is_toy(a):
            bottom.plot(x, a["y"], ".", ms=1.3 * size, mew=0, color=INK, alpha=0.8)
        places = np.broadcast_to(x, a["p"][j].shape)
        bottom.plot(places.ravel(), a["p"][j].ravel(), ".", ms=2.0, mew=0, color=VERMILION, alpha=0.4)
        if j == 0 and not _is_toy(a):  # few rows among many draws: on top of them
            bottom.plot(x, a["y"], ".", ms=size, mew=0, color=INK)
        top.set_title(f"t = {t}")
        for ax in (top, bottom):
            ax.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
            ax.tick_params(labelleft=j == 0, labelbottom=ax is bottom)
    if not _is_toy(a):
        axes[len(times)].set_xlabel("test rows by response")
    axes[0].set_ylabel("forward, q")
    axes[len(times)].set_ylabel("reverse, p")
    figure.suptitle(title)
    return figure


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
            ax.plot(times, split, color=GREY, lw=0.5, alpha=0.4)
        ax.plot(times, values.mean(axis=0), color=BLUE, lw=1.8)
        if name == "picp":
            ax.axhline(95, color=INK, lw=0.8, ls="--")
        ax.set(xlim=(times.max(), 0), xlabel="t", title=title)
    figure.suptitle(f"Boston, mean of {len(splits)} splits (thin lines: each split)")
    return figure


def t_test_qq(differences: Mapping[str, np.ndarray]) -> Figure:
    """Standardised differences between the two leading classes over draws, against a Gaussian's."""
    figure, axes = panels(len(differences), min(4, len(differences)))
    for ax, (name, rows) in zip(axes, differences.items(), strict=True):
        levels = norm.ppf((np.arange(rows.shape[1]) + 0.5) / rows.shape[1])
        for row in rows[:8]:
            spread = row.std() or 1.0
            ax.plot(levels, np.sort((row - row.mean()) / spread), ".", ms=2.5, mew=0, color=BLUE, alpha=0.5)
        ax.plot([-3, 3], [-3, 3], color=INK, lw=0.8, ls="--")
        ax.set(xlabel="Gaussian quantile", title=name)
    axes[0].set_ylabel("difference, standardised")
    return figure


def efficiency(curves: Mapping[str, np.ndarray]) -> Figure:
    """Accuracy of one draw against epochs, for the two priors; a curve is (points, 2)."""
    figure, (ax,) = panels(1, 1, width=4.2, height=3.0)
    for (name, curve), colour, mark in zip(curves.items(), (BLUE, VERMILION, GREY), "osv", strict=False):
        ax.plot(curve[:, 0], curve[:, 1], color=colour, marker=mark, ms=4, label=name)
    ax.set(xlabel="epochs", ylabel="accuracy of one draw, %")
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
    kept = {report["dataset"]: a["differences"] for report, a in found if "differences" in a}
    return {"qq": t_test_qq(kept)} if kept else {}


PRIOR_NAMES = {"V1": "prior N(f(x), I)", "V3": "prior N(0, I)"}


def _make_efficiency(found: Sequence[tuple[Report, Arrays]]) -> Mapping[str, Figure]:
    curves: dict[str, list[Any]] = {}
    for report, _ in found:
        if report.get("curve") and report.get("variant") in PRIOR_NAMES:
            curves.setdefault(PRIOR_NAMES[report["variant"]], []).append(report["curve"])
    mean = {name: np.mean(np.array(runs, dtype=float), axis=0) for name, runs in curves.items()}
    return {"efficiency": efficiency(mean)} if mean else {}


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
        ("classification.jsonl",),
        "card bench run classification",
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
