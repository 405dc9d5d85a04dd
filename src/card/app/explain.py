"""card explain: the predicted distribution of one row, in the terminal and as a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from card.app.common import Columns, Problem, Terminal, load_model, require_other, rows_of
from card.app.predict import probability_name
from card.evaluation import match_labels
from card.facts import is_classifier, n_targets, target_names
from card.files import read_chunks
from card.plots import class_probabilities, density, density_curves, new_figure
from card.writing import atomic, require_free

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 64  # characters of a sketch
MOST_CLASSES = 15  # in the terminal and in the picture


@dataclass(frozen=True)
class ExplainOptions:
    """What the person asked for; rows are counted from 1, without the header."""

    model: Path
    data: Path
    row: int
    out: Path
    encoding: str = "utf-8"
    force: bool = False


@dataclass(frozen=True)
class Shown:
    """A row explained: lines for people, facts for machines, and the Axes that were drawn on."""

    lines: list[str]
    facts: dict[str, Any]
    figure: Any


def explain(options: ExplainOptions, terminal: Terminal) -> None:
    """Find the row, predict it, draw it."""
    require_other(options.out, options.data, options.model)
    require_free(options.out, options.force)
    model = load_model(options.model)
    row = find_row(options)
    X = Columns(model).features(row, options.data, target_names(model) or [])
    title = f"row {options.row} of {options.data.name}"
    with rows_of(options.data, options.row - 1, 1):
        shown = (_classes if is_classifier(model) else _numbers)(model, X, row, title)
    with atomic(options.out, options.force) as part:
        shown.figure.savefig(part, format="png", dpi=150)
    facts = shown.facts | {"picture": str(options.out)}
    terminal.result("\n".join([*shown.lines, f"picture in {options.out}"]), facts)


def find_row(options: ExplainOptions) -> pd.DataFrame:
    """The row as a table of one row."""
    first = 0
    for chunk in read_chunks(options.data, encoding=options.encoding):
        if options.row <= first + len(chunk):
            return chunk.iloc[options.row - 1 - first : options.row - first]
        first += len(chunk)
    raise Problem(f"{options.data} has {first} rows; there is no row {options.row}")


def sketch(distribution: Any, width: int = WIDTH, height: int = 8) -> list[str]:
    """The density of one row in block characters, with its scale below.

    A column of the sketch is the mean density over its share of the axis.
    """
    t, p = density_curves(distribution, n_points=4 * width)
    bars = p[0].reshape(width, 4).mean(axis=1)
    eighths = np.round(bars / bars.max() * height * 8).astype(int)
    rows = [
        "".join(BLOCKS[int(np.clip(e - 8 * level, 0, 8))] for e in eighths)
        for level in reversed(range(height))
    ]
    low, middle, high = f"{t[0]:.4g}", f"{(t[0] + t[-1]) / 2:.4g}", f"{t[-1]:.4g}"
    gap = width - len(low) - len(middle) - len(high)
    return [*rows, low + " " * (gap // 2) + middle + " " * (gap - gap // 2) + high]


def _numbers(model: Any, X: Any, row: pd.DataFrame, title: str) -> Shown:
    """The density of each target."""
    whole, k = model.predict_distribution(X), n_targets(model)
    names = target_names(model) or ["response" if k is None else f"y{i}" for i in range(k or 1)]
    figure = _figure(title, 3.6 * len(names))
    axes = np.atleast_1d(figure.subplots(len(names), 1))
    lines, facts = [], {}
    for i, (name, ax) in enumerate(zip(names, axes, strict=True)):
        one = whole if k is None else whole.marginal(i)
        observed = _observed(row, name)
        density(one, y=observed, ax=ax).set_xlabel(name)
        facts[name] = _facts(one, observed)
        said = [f"{fact:>12}  {value:.6g}" for fact, value in facts[name].items()]
        lines += [*([name] if k is not None else []), *sketch(one), "", *said]
    return Shown(lines, facts if k is not None else facts[names[0]], figure)


def _facts(one: Any, observed: float | None) -> dict[str, float]:
    parts = one.decompose()
    facts = {"mean": float(one.mean()[0]), "std": float(one.std()[0])}
    facts |= {f"q{q:g}": float(one.quantile(q)[0]) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
    facts |= {
        "aleatoric": float(np.sqrt(parts.aleatoric[0])),
        "epistemic": float(np.sqrt(parts.epistemic[0])),
    }
    if observed is not None:
        facts |= {"observed": observed, "P(below)": float(one.cdf(np.array([observed]))[0])}
    return facts


def _observed(row: pd.DataFrame, target: str) -> float | None:
    if target not in row:
        return None
    value = pd.to_numeric(row[target], errors="coerce").iloc[0]
    return None if pd.isna(value) else float(value)


def _classes(model: Any, X: Any, row: pd.DataFrame, title: str) -> Shown:
    """The probability of each class, how far its draws spread, and what the t-test says."""
    classes, p, details = model.classes_, model.predict_proba(X)[0], model.assess(X).iloc[0]
    widths = np.array([details[f"piw_{c}"] for c in classes])
    observed = _observed_label(row, target_names(model), classes)
    facts: dict[str, Any] = {"label": classes[p.argmax()]}
    facts |= {probability_name(c): float(v) for c, v in zip(classes, p, strict=True)}
    facts |= {f"piw_{c}": float(v) for c, v in zip(classes, widths, strict=True)}
    facts |= {"p_value": float(details["p_value"]), "certain": bool(details["certain"])}
    facts |= {} if observed is None else {"observed": observed}
    order = np.argsort(-p, kind="stable")[:MOST_CLASSES]
    names = [probability_name(classes[i]) for i in order]
    length = max(map(len, names))
    lines = [
        f"{name:>{length}}  {_bar(p[i], WIDTH // 2)}  {p[i]:.4f}   piw {widths[i]:.4f}"
        for name, i in zip(names, order, strict=True)
    ]
    if len(classes) > len(order):
        lines.append(f"and {len(classes) - len(order)} more classes, {1 - p[order].sum():.4f} together")
    test = f"p-value of the t-test {facts['p_value']:.3g}: {'' if facts['certain'] else 'not '}certain"
    said = [f"predicted {facts['label']}", *([] if observed is None else [f"observed {observed}"]), test]
    title = f"{title}: {'certain' if facts['certain'] else 'not certain'}"
    figure = _figure(title, 1.4 + 0.35 * len(order))
    class_probabilities(
        classes, p, widths=widths, observed=observed, max_classes=MOST_CLASSES, ax=figure.add_subplot()
    )
    return Shown([*lines, "", "; ".join(said)], facts, figure)


def _observed_label(row: pd.DataFrame, target: list[str] | None, classes: np.ndarray) -> Any:
    if not target or target[0] not in row or row[target[0]].isna().any():
        return None
    try:
        return match_labels(row[target[0]].to_numpy(dtype=object), classes)[0]
    except ValueError:  # a label the model does not know is nobody's bar
        return row[target[0]].iloc[0]


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return ("█" * (eighths // 8) + BLOCKS_ACROSS[eighths % 8]).ljust(width)


BLOCKS_ACROSS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"]


def _figure(title: str, height: float) -> Any:
    figure = new_figure(height=height)
    figure.suptitle(title, x=0.01, ha="left")
    return figure
