"""What the table holds, column by column."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from card.columns import is_missing, read_table
from card.encoding import learn
from card.report import html

MOST = 40


def data_section(X: pd.DataFrame, targets: dict[str, np.ndarray], kinds: Mapping[str, str]) -> str:
    """Rows, columns, kinds (as the model sees them, where it knows), gaps and ranges."""
    names = [str(c) for c in X.columns][:MOST]
    frame = X.iloc[:, :MOST].set_axis(names, axis=1)
    rows = [(name, "response", *_describe(pd.Series(y))) for name, y in targets.items()]
    for name in names:
        kind, missing, values = _column(name, frame)
        rows.append((name, kinds.get(name, kind), missing, values))
    more = X.shape[1] - len(names)
    return html.text(
        f"{len(X):,} rows with a known response, {X.shape[1]:,} columns to predict from."
        + (f" The first {MOST} are listed." if more > 0 else "")
    ) + html.table(["column", "kind", "missing", "values"], rows, numeric=[2])


def _column(name: str, frame: pd.DataFrame) -> tuple[str, str, str]:
    column = read_table(frame[[name]]).columns[0]
    numbers = _as_numbers(column.values)
    if numbers is not None:
        return ("number", *_describe(pd.Series(numbers)))
    e = learn(name, column, declared=False)
    cells = pd.Series(column.values)
    missing = is_missing(column.values)
    if e.kind in ("category", "many"):
        counts = cells[~missing].astype(str).value_counts()
        few = ", ".join(f"{_cut(v)} ({n})" for v, n in counts.head(3).items())
        return e.kind, _share(missing), f"{len(counts)} levels: {few}"
    present = cells[~missing]
    return e.kind, _share(missing), f"{present.min()} to {present.max()}" if len(present) else "none"


def _as_numbers(values: np.ndarray) -> np.ndarray | None:
    """Numbers, also where a file gave them as text."""
    if values.dtype.kind == "f":
        return values
    if values.dtype != object:
        return None
    gaps = is_missing(values)
    if not all(isinstance(v, str) for v in values[~gaps]):
        return None
    numbers = pd.to_numeric(pd.Series(np.where(gaps, np.nan, values)), errors="coerce").to_numpy(dtype=float)
    return numbers if gaps.sum() == np.isnan(numbers).sum() and not gaps.all() else None


def _describe(values: pd.Series) -> tuple[str, str]:
    missing = is_missing(values.to_numpy())
    present = values[~missing]
    if not len(present):
        return _share(missing), "none"
    if not pd.api.types.is_numeric_dtype(present):
        counts = present.astype(str).value_counts()
        return _share(missing), ", ".join(f"{_cut(v)} ({n})" for v, n in counts.head(5).items())
    low, middle, high = present.min(), present.median(), present.max()
    return _share(missing), (
        f"{html.number(low)} to {html.number(high)}, "
        f"median {html.number(middle)}, mean {html.number(present.mean())}"
    )


def _share(missing: np.ndarray) -> str:
    return f"{100 * missing.mean():.1f} %" if missing.any() else "none"


def _cut(value: object, most: int = 24) -> str:
    value = str(value)
    return value if len(value) <= most else value[: most - 1] + "…"
