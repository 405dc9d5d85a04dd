"""Any table -> named columns of numpy arrays.

A table is a pandas, polars or Arrow frame (read through narwhals), a two-dimensional array, a list of
rows, or a list of dicts. Each column comes out as one of four arrays, whatever library it came from:

    float64          numbers, NaN where a value is missing
    bool             truth values, none missing
    datetime64[us]   moments, in UTC and without a zone, NaT where missing
    object           everything else: strings, mixed cells, `None` where missing

Columns only knows *types*; what a column means for a model is learned in `card.features`.
"""

import datetime as dt
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

# Strings that stand for a missing value, in files and frames alike, so that CSV and Parquet agree: those
# that pandas knows, and the question mark of many public data sets.
MISSING_WORDS = frozenset({"", "?", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A"}) | {
    *("NaN", "nan", "-NaN", "-nan", "NaT", "NULL", "null", "None"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
}


@dataclass(frozen=True)
class Column:
    """One column: its values, and whether its own type already says that it is categorical."""

    values: np.ndarray
    categorical: bool = False


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    `named` tells a frame, whose names mean something, from an array, whose columns are only counted;
    `records` tells a list of dicts, where a name may be absent from any row.
    """

    names: list[str]
    columns: list[Column]
    n_rows: int
    named: bool
    records: bool = False


def is_table(X: Any) -> bool:
    """Whether X is a frame, a list of dicts, or rows with cells other than numbers.

    False for numeric arrays and nested lists of numbers, which scikit-learn can validate itself.
    """
    if _is_frame(X) or is_records(X):
        return True
    if hasattr(X, "toarray"):
        return False
    cells = np.asarray(X)
    kind = cells.dtype.kind
    return cells.ndim == 2 and (kind in "UMm" or (kind == "O" and not _all_numbers(cells.ravel())))


def read_table(X: Any) -> Table:
    """The columns of any table.

    Examples
    --------
    >>> table = read_table([{"size": 3, "town": "Ulm"}, {"size": 4}])
    >>> table.names, table.columns[1].values.tolist()
    (['size', 'town'], ['Ulm', None])
    """
    if is_records(X):
        return _from_records(X)
    frame = nw.from_native(X, eager_only=True, pass_through=True) if _is_frame(X) else X
    return _from_frame(frame) if isinstance(frame, nw.DataFrame) else _from_array(X)


def is_missing(values: np.ndarray) -> np.ndarray:
    """Where an array of any type has no value: None, NaN, NaT, or a word that stands for them."""
    gaps = np.asarray(pd.isna(values))
    if values.dtype == object:
        gaps |= np.fromiter((type(v) is str and is_gap(v) for v in values), bool, len(values))
    return gaps


def is_gap(cell: str) -> bool:
    """Whether text stands for a missing value.

    >>> [is_gap(cell) for cell in (" ", "NA", "Nadine")]
    [True, True, False]
    """
    return cell.strip() in MISSING_WORDS


def _is_frame(X: Any) -> bool:
    native = nw.from_native(X, pass_through=True, allow_series=False)
    if isinstance(native, nw.LazyFrame):
        raise TypeError("X is a lazy frame; collect it first: X.collect()")
    return isinstance(native, nw.DataFrame)


def is_records(X: Any) -> bool:
    """Whether X is a list of dicts."""
    return isinstance(X, Sequence) and len(X) > 0 and all(isinstance(row, dict) for row in X)


def frame_of_records(rows: Sequence[dict], names: Sequence[str] | None = None) -> pd.DataFrame:
    """A list of dicts as a frame: a name absent from a dict is a gap.

    With `names`, these columns come first and in this order; other names found follow.

    >>> frame_of_records([{"b": 1, "a": 2}], ["a", "b", "c"]).columns.tolist()
    ['a', 'b', 'c']
    """
    found = dict.fromkeys(str(name) for row in rows for name in row)
    order = [*(names if names is not None else []), *found]
    return pd.DataFrame({name: [row.get(name) for row in rows] for name in dict.fromkeys(order)})


def _from_records(rows: Sequence[dict]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_named(name, _tidy, _objects([row.get(name) for row in rows])) for name in names]
    return Table([str(name) for name in names], columns, len(rows), named=True, records=True)


def _from_array(X: Any) -> Table:
    array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=None if _all_numeric(X) else object)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data either using "
            "array.reshape(-1, 1) if it has a single feature or array.reshape(1, -1) if it is a single row."
        )
    if array.dtype.kind in "US":
        array = array.astype(object)
    return Table(
        [f"x{i}" for i in range(array.shape[1])], [_tidy(c) for c in array.T], len(array), named=False
    )


def _from_frame(frame: nw.DataFrame) -> Table:
    native = frame.to_native()
    named = True
    if isinstance(native, pd.DataFrame) and not all(isinstance(name, str) for name in native.columns):
        named = False  # as in scikit-learn: names that are not strings do not count as names
        native = native.set_axis([f"x{i}" for i in range(native.shape[1])], axis=1)
        frame = nw.from_native(native, eager_only=True)
    if isinstance(native, pd.DataFrame):
        columns = [_named(name, _from_pandas, series) for name, series in native.items()]
    else:
        columns = [_named(name, _from_series, frame[name]) for name in frame.columns]
    return Table(list(frame.columns), columns, frame.shape[0], named)


def _named(name: Any, read: Callable[[Any], Column], values: Any) -> Column:
    """A column read; an error says which."""
    try:
        return read(values)
    except (TypeError, ValueError) as e:
        raise type(e)(f"column {str(name)!r}: {e}") from None


def _from_pandas(series: pd.Series) -> Column:
    """Columns that are numpy arrays already need no more reading; wide frames have thousands."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufbO":
        return _tidy(series.to_numpy())
    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    return _from_series(nw.from_native(series, series_only=True))


def _from_series(s: nw.Series) -> Column:
    dtype = s.dtype
    if dtype.is_numeric():
        return Column(np.asarray(s.cast(nw.Float64()).fill_null(np.nan).to_numpy(), dtype=np.float64))
    if dtype == nw.Boolean and not s.is_null().any():
        return Column(s.to_numpy().astype(bool))
    if dtype == nw.Date:
        return Column(_moments(s.cast(nw.Datetime("us")).to_numpy()))
    if isinstance(dtype, nw.Datetime):
        s = s.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if dtype.time_zone else s
        return Column(_moments(s.to_numpy()))
    if dtype == nw.Duration:
        return _tidy(s.to_numpy())
    values = _objects(s.to_list())
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return Column(values, categorical=True)
    return _tidy(values)


def _tidy(values: np.ndarray) -> Column:
    """One of the four arrays, from an array of any type."""
    kind = values.dtype.kind
    if kind == "c":
        raise ValueError("Complex data not supported: a column of X holds complex numbers")
    if kind in "iuf":
        return Column(values.astype(np.float64))
    if kind == "b":
        return Column(values)
    if kind == "m":
        return Column(np.where(np.isnat(values), np.nan, values / np.timedelta64(1, "s")))
    if kind == "M":
        return Column(_moments(values))
    return Column(_narrow(values))


def _narrow(values: np.ndarray) -> np.ndarray:
    """An object array as numbers, truth values or moments when all of its cells are such."""
    present = values[~is_missing(values)]
    types = set(map(type, present.tolist()))
    if any(issubclass(t, complex | np.complexfloating) for t in types):
        raise ValueError("Complex data not supported: a column of X holds complex numbers")
    for t in types:
        if not issubclass(t, _CELLS):
            raise TypeError(f"a cell of X: argument must be a string or a number, not {t.__name__!r}")
    if types and all(issubclass(t, bool | np.bool_) for t in types):
        return values.astype(bool) if len(present) == len(values) else values
    if all(issubclass(t, numbers.Number | np.bool_) for t in types):
        return _numbers(values)
    if all(issubclass(t, dt.date | np.datetime64) for t in types):
        moments = pd.to_datetime(pd.Series(values), utc=True).dt.tz_localize(None)
        return _moments(moments.to_numpy())
    return values


_CELLS = (str, numbers.Number, np.bool_, dt.date, dt.time, dt.timedelta, np.datetime64, bytes)


def _numbers(values: np.ndarray) -> np.ndarray:
    out = np.full(len(values), np.nan)
    present = ~is_missing(values)
    out[present] = values[present].astype(np.float64)
    return out


def _moments(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).astype("datetime64[us]")


def _objects(cells: list) -> np.ndarray:
    out = np.empty(len(cells), dtype=object)
    out[:] = cells
    return out


def _all_numbers(cells: np.ndarray) -> bool:
    return all(
        issubclass(t, numbers.Number | np.bool_) for t in set(map(type, cells.tolist())) - {type(None)}
    )


def _all_numeric(X: Any) -> bool:
    """Whether nested lists hold numbers only; mixed rows must not be turned into strings by numpy."""
    try:
        return all(isinstance(cell, numbers.Number | np.bool_) for row in X for cell in row)
    except TypeError:
        return True
