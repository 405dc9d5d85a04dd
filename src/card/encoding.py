"""One column of a table <-> what was learned about it, and the numbers it becomes.

The rules themselves are told in `card.features`; here each kind of column has its formulas.
"""

import datetime as dt
import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from card.columns import Column, is_missing

Kind = Literal["number", "boolean", "category", "many", "date"]

MAX_LEVELS = 32  # above this a category is "many"
TOP_LEVELS = 16  # levels of a "many" that keep a column of their own
HASH_WIDTH = 8
LINEAR_STD = 16.0  # standardised values are linear up to here, logarithmic beyond
FAR_IQR = 1e4
GAP = "(missing)"
DAY = 86_400_000_000  # in microseconds
WHOLE = re.compile(r"-?\d+\.0+")
# How people write dates other than as 2024-05-31: what it looks like, and which orders that may be.
CUSTOMS = (
    (re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}"), ("%d.%m.%Y",)),
    (re.compile(r"\d{1,2}/\d{1,2}/\d{4}"), ("%d/%m/%Y", "%m/%d/%Y")),
    (re.compile(r"\d{1,2}-\d{1,2}-\d{4}"), ("%d-%m-%Y", "%m-%d-%Y")),
    (re.compile(r"\d{4}/\d{1,2}/\d{1,2}"), ("%Y/%m/%d",)),
)
CLOCKS = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True)
class Scale:
    """z = (v / unit - centre) * weight; `unit` keeps sums of huge or tiny values within float64."""

    median: float = 0.0
    unit: float = 1.0
    centre: float = 0.0
    weight: float = 0.0

    @classmethod
    def fit(cls, v: np.ndarray) -> "Scale":
        """From one column; a constant or empty one has weight 0."""
        v = v[~np.isnan(v)]
        if len(v) == 0:
            return cls()
        low, left, high = np.percentile(v, [25, 50, 75], method="lower")
        middle = left / 2 + np.percentile(v, 50, method="higher") / 2  # halves first: no overflow
        with np.errstate(over="ignore"):
            reach = FAR_IQR * (high - low)
            core = v[np.abs(v - middle) <= reach] if reach > 0 else v
        unit = _power_of_two(float(np.abs(core).max()))
        core = core / unit
        centre, std = float(core.mean()), float(core.std())
        noise = 10 * np.finfo(np.float64).eps * abs(centre)
        return cls(float(middle), unit, centre, 1 / std if std > noise else 0.0)


def _power_of_two(size: float) -> float:
    """The power of two just below: dividing by it rounds nothing."""
    return math.ldexp(1.0, math.frexp(size)[1] - 1) if size else 1.0


@dataclass(frozen=True)
class Encoder:
    """What was learned about one column of the table."""

    name: str
    kind: Kind
    gaps: bool = False
    scale: Scale = Scale()
    levels: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    clock: bool = False
    form: str = ""  # how dates were written, where not as 2024-05-31

    @property
    def names_out(self) -> list[str]:
        """Names of the columns it makes."""
        gap = [f"{self.name}={GAP}"] if self.gaps else []
        if self.kind in ("number", "boolean"):
            return [self.name, *gap]
        if self.kind == "category":
            return [f"{self.name}={level}" for level in self.levels] + gap
        if self.kind == "many":
            top = [f"{self.name}={level}" for level in self.levels[:TOP_LEVELS]]
            hashes = [f"{self.name}#{i}" for i in range(HASH_WIDTH)]
            return [*top, *gap, f"log count of {self.name}", *hashes]
        cycles = ["year", "week", "day"] if self.clock else ["year", "week"]
        return [self.name, *(f"{wave} {c} of {self.name}" for c in cycles for wave in ("sin", "cos")), *gap]


def standardise(v: np.ndarray, scales: Iterable[Scale]) -> np.ndarray:
    """(N, C) raw numbers, NaN where missing -> (N, C) finite standardised values.

    Examples
    --------
    >>> v = np.array([[1.0], [3.0], [np.nan]])
    >>> standardise(v, [Scale.fit(v[:, 0])]).ravel().tolist()
    [-1.0, 1.0, 0.0]
    """
    median, unit, centre, weight = np.array([(s.median, s.unit, s.centre, s.weight) for s in scales]).T
    v = np.where(np.isnan(v), median, v)
    with np.errstate(over="ignore"):
        z = np.clip(v / unit - centre, -1e300, 1e300) * weight
    far = np.maximum(np.abs(np.clip(z, -1e300, 1e300)) - LINEAR_STD, 0.0)
    return np.clip(z, -LINEAR_STD, LINEAR_STD) + np.sign(z) * np.log1p(far)


def learn(name: str, column: Column, declared: bool) -> Encoder:
    values, gaps = column.values, bool(is_missing(column.values).any())
    kind = "category" if declared or column.categorical else kind_of(values)
    e = Encoder(name, kind, gaps)
    if kind in ("number", "boolean"):
        return replace(e, scale=Scale.fit(numbers(e, column)))
    if kind == "date":
        e = replace(e, form=_form(values))
        moments = read_moments(e, values)
        present = moments[~np.isnat(moments)]
        clock = bool((present.astype(np.int64) % DAY != 0).any())
        return replace(e, scale=Scale.fit(_days(moments)), clock=clock)
    return _learn_levels(e, values)


def _learn_levels(e: Encoder, values: np.ndarray) -> Encoder:
    codes, levels = _levels(values)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    if len(levels) <= MAX_LEVELS:
        return replace(e, levels=tuple(sorted(levels)))
    kept = sorted((int(-c), level) for c, level in zip(counts, levels, strict=True) if c > 1)
    e = replace(e, kind="many", levels=tuple(level for _, level in kept), counts=tuple(-c for c, _ in kept))
    return replace(e, scale=Scale.fit(_log_counts(e, _positions(e, codes, levels))))


def kind_of(values: np.ndarray) -> Kind:
    """What a column is, by its values alone."""
    kind = {"f": "number", "b": "boolean", "M": "date"}.get(values.dtype.kind)
    if kind:
        return kind  # type: ignore[return-value]
    present = values[~is_missing(values)]
    types = set(map(type, present.tolist()))
    if types and all(issubclass(t, bool | np.bool_) for t in types):
        return "boolean"
    return "date" if types == {str} and (_is_iso(present) or custom_form(present)) else "category"


def _is_iso(strings: np.ndarray) -> bool:
    """Whether all strings are dates written as 2024-05-31, with or without a clock time."""
    if not all(len(s) >= 10 and s[4] == s[7] == "-" and s[:4].isdigit() for s in strings):
        return False
    return not np.isnat(_parse(strings)).any()


def custom_form(strings: np.ndarray) -> str:
    """How dates are written, as for `strptime`; nothing if they are no dates, or more than one reading fits.

    >>> custom_form(np.array(["31.12.2024", "1.1.2025"])), custom_form(np.array(["03/04/2024"]))
    ('%d.%m.%Y', '')
    """
    for looks, orders in CUSTOMS:
        if looks.match(strings[0]):
            found = [
                form
                for form in (order + clock for order in orders for clock in CLOCKS)
                if not np.isnat(_parse(strings, form)).any()
            ]
            return found[0] if len(found) == 1 else ""
    return ""


def _form(values: np.ndarray) -> str:
    """That of a column of dates: nothing for moments, and for text whose first cell is like 2024-05-31."""
    if values.dtype != object:
        return ""
    present = values[~is_missing(values)]
    return "" if re.match(r"\d{4}-", present[0]) else custom_form(present)


def _parse(cells: np.ndarray, form: str = "ISO8601") -> np.ndarray:
    moments = pd.to_datetime(pd.Series(cells, dtype=object), utc=True, errors="coerce", format=form)
    return moments.dt.tz_localize(None).to_numpy().astype("datetime64[us]")


def numbers(e: Encoder, column: Column) -> np.ndarray:
    values = column.values
    if values.dtype.kind == "M":
        raise ValueError(f"column {e.name!r} holds dates; at fit it held numbers")
    if values.dtype == object:
        values = _parse_numbers(e, values)
    values = values.astype(np.float64)
    if np.isinf(values).any():
        raise ValueError(
            f"Input X contains infinity in column {e.name!r}; use finite values, or NaN for missing"
        )
    return values


def logarithms(e: Encoder, column: Column) -> np.ndarray:
    """Of a column whose numbers were positive at fit; of others the least that float64 knows."""
    return np.log(np.maximum(numbers(e, column), np.finfo(np.float64).tiny))


def _parse_numbers(e: Encoder, values: np.ndarray) -> np.ndarray:
    """Cells as numbers, strings included: the cells of a file are text."""
    present = ~is_missing(values)
    if e.gaps and not e.scale.weight:  # nothing was seen at fit, so nothing can be wrong now
        return np.where(present, 0.0, np.nan)
    cells = values[present]
    if e.kind == "boolean":
        cells = np.array([_TRUTH.get(str(cell).strip().lower(), cell) for cell in cells], dtype=object)
    out = np.full(len(values), np.nan)
    try:
        out[present] = cells.astype(np.float64)
    except (TypeError, ValueError):
        wrong = next(cell for cell in cells if not _is_number(cell))
        raise ValueError(f"column {e.name!r} held {e.kind}s at fit; now it holds {wrong!r}") from None
    return out


_TRUTH = {"true": 1.0, "false": 0.0}


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def read_moments(e: Encoder, values: np.ndarray) -> np.ndarray:
    """Dates as at fit, or as 2024-05-31; other text is an error, since a gap would hide it."""
    if values.dtype.kind == "M":
        return values
    if values.dtype != object:
        return np.full(len(values), "NaT", dtype="datetime64[us]")
    gaps = is_missing(values)
    cells = values.copy()
    cells[gaps] = None
    moments = _parse(cells)
    if e.form:
        moments = np.where(np.isnat(moments), _parse(cells, e.form), moments)
    wrong = np.isnat(moments) & ~gaps
    if wrong.any():
        shown = dt.date(2024, 5, 31).strftime(e.form or "%Y-%m-%d")
        raise ValueError(
            f"column {e.name!r} held dates such as {shown} at fit; now it holds {values[wrong][0]!r}"
        )
    return moments


def _days(moments: np.ndarray) -> np.ndarray:
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / DAY)


def dates(e: Encoder, column: Column, out: np.ndarray) -> np.ndarray:
    """Fill the cycles (and the mark of a gap) into `out`; return the days."""
    if column.values.dtype.kind in "fb" and not np.isnan(column.values.astype(float)).all():
        raise ValueError(f"column {e.name!r} held dates at fit; now it holds numbers")
    moments = read_moments(e, column.values)
    gap = np.isnat(moments)
    days = _days(moments)
    first = moments.astype("datetime64[Y]").astype("datetime64[us]")
    phases = [(moments - first) / np.timedelta64(1, "D") / 365.2425, (days + 3) / 7, days]
    for i, phase in enumerate(phases[: 3 if e.clock else 2]):
        angle = np.where(gap, 0.0, 2 * math.pi * np.nan_to_num(phase))
        out[:, 2 * i] = np.where(gap, 0.0, np.sin(angle))
        out[:, 2 * i + 1] = np.where(gap, 0.0, np.cos(angle))
    if e.gaps:
        out[:, -1] = gap
    return days


def categories(e: Encoder, column: Column, out: np.ndarray) -> None:
    codes, levels = _levels(column.values)
    position = _positions(e, codes, levels)
    top = e.levels if e.kind == "category" else e.levels[:TOP_LEVELS]
    rows = np.flatnonzero((position >= 0) & (position < len(top)))
    out[rows, position[rows]] = 1.0
    if e.gaps:
        out[codes < 0, len(top)] = 1.0
    if e.kind == "many":
        slot = len(top) + e.gaps
        out[:, slot] = standardise(_log_counts(e, position)[:, None], [e.scale])[:, 0]
        known = position >= 0
        table = {p: _signs(e.levels[p]) for p in set(position[known].tolist())}
        if table:
            out[known, slot + 1 :] = [table[p] for p in position[known].tolist()]


def _levels(values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """(code of each row, -1 for a gap; names of the levels), names written one way for every type."""
    cells = values.astype(object)
    cells[is_missing(values)] = None
    codes, cells = pd.factorize(cells)
    names, unique = pd.factorize(np.array([*map(level_name, cells), ""], dtype=object))
    return np.where(codes < 0, -1, names[codes]), list(unique[: len(set(names[:-1]))])


def level_name(cell: Any) -> str:
    """1, 1.0, "1" and "1.0" are one level: files do not keep the difference."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    if isinstance(cell, str) and WHOLE.fullmatch(cell):
        return cell.partition(".")[0]
    return cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)


def _positions(e: Encoder, codes: np.ndarray, levels: list[str]) -> np.ndarray:
    """The position of each row's level among those of fit; -1 for unseen levels and gaps."""
    known = {level: i for i, level in enumerate(e.levels)}
    return np.array([*(known.get(level, -1) for level in levels), -1])[codes]


def _log_counts(e: Encoder, position: np.ndarray) -> np.ndarray:
    return np.log(np.array([*e.counts, 1.0]))[position]


def _signs(level: str) -> np.ndarray:
    """HASH_WIDTH signs that belong to the name of a level, the same on every machine."""
    byte = np.frombuffer(hashlib.blake2b(level.encode(), digest_size=1).digest(), dtype=np.uint8)
    return np.unpackbits(byte) * 2.0 - 1.0
