"""What the table holds, in a sentence and column by column."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from card.columns import is_missing, read_table
from card.encoding import learn, level_name, read_moments
from card.plots.style import shorten
from card.report import html

MOST = 40


KINDS = {
    "number": "of numbers",
    "boolean": "of true or false",
    "category": "of categories",
    "many": "of categories with many levels",
    "date": "of dates",
}


def data_sentence(X: pd.DataFrame, kinds: Mapping[str, str]) -> str:
    """Rows, columns and gaps.

    >>> data_sentence(pd.DataFrame({"a": [1.0, None]}), {"a": "number"})
    '2 rows with a known response; 1 column to predict from (1 of numbers); 50 % of its cells are missing.'
    """
    n_rows, n_columns = X.shape
    counts = Counter(kinds.get(str(c)) for c in X.columns) if kinds else {}
    of = ", ".join(f"{counts[kind]:,} {words}" for kind, words in KINDS.items() if counts.get(kind))
    share = 100 * np.mean([is_missing(X.iloc[:, i].to_numpy(dtype=object)).mean() for i in range(n_columns)])
    gaps = (
        "no cell is" if share == 0 else f"{share:.2g} % of {'its' if n_columns == 1 else 'their'} cells are"
    )
    return (
        f"{n_rows:,} {_plural('row', n_rows)} with a known response; {n_columns:,} "
        f"{_plural('column', n_columns)} to predict from{f' ({of})' if of else ''}; {gaps} missing."
    )


def _plural(word: str, n: int) -> str:
    return word if n == 1 else word + "s"


def data_section(X: pd.DataFrame, targets: dict[str, np.ndarray], kinds: Mapping[str, str]) -> str:
    """Kinds (as the model sees them, where it knows), gaps and ranges."""
    names = [str(c) for c in X.columns][:MOST]
    frame = X.iloc[:, :MOST].set_axis(names, axis=1)
    rows = [(name, "response", *_describe(pd.Series(y))) for name, y in targets.items()]
    for name in names:
        kind, missing, values = _column(name, frame, kinds.get(name))
        rows.append((name, kinds.get(name, kind), missing, values))
    more = X.shape[1] - len(names)
    said = html.text(f"The first {MOST} of {X.shape[1]:,} columns.") if more > 0 else ""
    return said + html.table(["column", "kind", "missing", "values"], rows, numeric=[2], stack=True)


def _column(name: str, frame: pd.DataFrame, known: str | None) -> tuple[str, str, str]:
    """(kind, share missing, what it holds); numbers that the model knows for codes are counted as such."""
    column = read_table(frame[[name]]).columns[0]
    codes = known in ("category", "many")
    numbers = None if codes else _as_numbers(column.values)
    if numbers is not None:
        return ("number", *_describe(pd.Series(numbers)))
    e = learn(name, column, declared=codes)
    cells = pd.Series(column.values)
    missing = is_missing(column.values)
    if e.kind in ("category", "many"):
        counts = cells[~missing].map(level_name).value_counts()
        few = ", ".join(f"{shorten(str(v))} ({n})" for v, n in counts.head(3).items())
        return e.kind, _share(missing), f"{len(counts)} levels: {few}"
    present = read_moments(e, column.values)[~missing] if e.kind == "date" else cells[~missing]
    if not len(present):
        return e.kind, _share(missing), "none"
    if e.kind == "date" and not e.clock:
        present = present.astype("datetime64[D]")
    return e.kind, _share(missing), f"{_moment(present.min())} to {_moment(present.max())}"


def _moment(value: object) -> str:
    """A date, or the minute of a clock time; anything else as it is.

    >>> _moment(np.datetime64("2024-05-31T12:30:15.5")), _moment(True)
    ('2024-05-31 12:30', 'True')
    """
    return str(value)[:16].replace("T", " ") if isinstance(value, np.datetime64) else str(value)


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
        return _share(missing), ", ".join(f"{shorten(str(v))} ({n})" for v, n in counts.head(5).items())
    low, middle, high = present.min(), present.median(), present.max()
    return _share(missing), (
        f"{html.number(low)} to {html.number(high)}, "
        f"median {html.number(middle)}, mean {html.number(present.mean())}"
    )


def _share(missing: np.ndarray) -> str:
    return f"{100 * missing.mean():.1f} %" if missing.any() else "none"
