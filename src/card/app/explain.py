"""card explain: the predicted density of one row, in the terminal and as a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from card.app.common import Columns, Problem, Terminal, load_model
from card.facts import is_classifier, n_targets, target_names
from card.files import read_chunks
from card.plots import density, density_curves
from card.writing import atomic, require_free

BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class ExplainOptions:
    """What the person asked for; rows are counted from 1, without the header."""

    model: Path
    data: Path
    row: int
    out: Path
    encoding: str = "utf-8"
    force: bool = False


def explain(options: ExplainOptions, terminal: Terminal) -> None:
    """Find the row, predict it, draw it."""
    require_free(options.out, options.force)
    model = load_model(options.model)
    chunk = find_row(options)
    targets = target_names(model) or []
    X = Columns(model).features(chunk, options.data, targets)
    if is_classifier(model) or n_targets(model) is not None:
        return _table_only(model, X, terminal)
    one = model.predict_distribution(X)
    observed = _observed(chunk, targets)
    with atomic(options.out, options.force) as part:
        ax = density(one, y=observed)
        ax.set_title(f"row {options.row} of {options.data.name}", loc="left")
        ax.set_xlabel(targets[0] if targets else "response")
        ax.get_figure(root=True).savefig(part, format="png", dpi=150)  # type: ignore[union-attr]
    facts = _facts(one, observed)
    lines = [f"{name:>12}  {value:.6g}" for name, value in facts.items()]
    terminal.result("\n".join([*sketch(one), "", *lines, f"picture in {options.out}"]), facts)
    return None


def find_row(options: ExplainOptions) -> pd.DataFrame:
    """The row as a table of one row."""
    first = 0
    for chunk in read_chunks(options.data, encoding=options.encoding):
        if options.row <= first + len(chunk):
            return chunk.iloc[options.row - 1 - first : options.row - first]
        first += len(chunk)
    raise Problem(f"{options.data} has {first} rows; there is no row {options.row}")


def sketch(distribution: Any, width: int = 64, height: int = 8) -> list[str]:
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


def _observed(chunk: pd.DataFrame, targets: list[str]) -> float | None:
    if not targets or targets[0] not in chunk:
        return None
    value = pd.to_numeric(chunk[targets[0]], errors="coerce").iloc[0]
    return None if pd.isna(value) else float(value)


def _table_only(model: Any, X: Any, terminal: Terminal) -> None:
    """Classes and vectors have no single density: their numbers are shown instead."""
    from card.app.predict import PredictOptions, predictions

    row = predictions(model, X, PredictOptions(Path(), Path(), interval=0.9)).iloc[0].to_dict()
    lines = [f"{k:>16}  {v:.6g}" if isinstance(v, float) else f"{k:>16}  {v}" for k, v in row.items()]
    terminal.result("\n".join(lines), row)
