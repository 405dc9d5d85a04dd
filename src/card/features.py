"""The user's table -> numbers, by rules learned once at fit and stored with the model.

A network wants columns of comparable size without gaps. Each column of the table becomes one or more
columns of float32, according to its kind:

    number    (v - mean) / std over the training rows (population std); gaps take the training median,
              and a column that had gaps at fit gains a 0/1 column that marks them
    boolean   a number that is 0 or 1
    category  up to 32 levels: one 0/1 column a level, all levels kept, gaps a level of their own;
              a level never seen at fit is all zeros, so it cannot be mistaken for a known one
    many      more than 32 levels: the 16 most frequent as above; the log of how often the level occurred;
              and 8 columns of +-1 taken from a hash of its name. Levels seen once say nothing
              that can be learned: like unseen ones they are zeros. The response is never
              looked at, so nothing can leak
    date      days since 1970 as a number, the phase of the year and of the week as sine and cosine,
              and of the day where clock times occur. Text is a date if all of it is written as 2024-05-31, or
              in one other way that can be read in one order only, as 31.12.2024 or 12/31/2024

Where that was asked for, numbers that are all positive and reach over a factor of 10 are followed, after all
columns, by their logarithms, standardised alike: among these, power laws are straight lines.

Values far outside what was seen stay tame: beyond 16 std the standardised value grows like a logarithm,
so that 1e308 is a number to float32 and to a network. Values more than 10,000 interquartile ranges from the
median are left out of mean and std. A column that never varied is zero for ever: what it could mean was
never seen.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from card.columns import Column, Table, is_table, read_table
from card.encoding import Encoder, Kind, Scale, categories, dates, learn, logarithms, numbers, standardise

__all__ = ["Features", "is_table"]

WIDE = 10.0  # largest by smallest value of a column of which the logarithm tells more


@dataclass(frozen=True, eq=False)
class Features:
    """A fitted encoding of tables.

    Attributes
    ----------
    encoders : tuple of Encoder
        What was learned, a column of the table each.
    named : bool
        Whether the table at fit had column names (a frame) or only positions (an array).
    logs : dict of int to Scale
        The columns, by position, of which the logarithm is a column too.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 3.0, None], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> features = Features.fit(frame)
    >>> features.names_out
    ['size', 'size=(missing)', 'town=Bonn', 'town=Ulm']
    >>> features.transform(frame).tolist()
    [[-1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
    """

    encoders: tuple[Encoder, ...]
    named: bool
    logs: dict[int, Scale] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        X: Any,
        categorical: Literal["auto"] | Iterable[str | int] | None = "auto",
        with_logs: bool = False,
    ) -> "Features":
        """Learn the encoding of a table.

        Parameters
        ----------
        X : frame, array, list of rows or list of dicts
        categorical : "auto", None, or names or positions of columns
            Columns of numbers that are codes of categories. Columns of strings, and columns whose
            own type is categorical, are categories in any case.
        with_logs : bool
            Whether columns of positive numbers are followed by their logarithms.
        """
        table = read_table(X)
        _require_cells(table)
        declared = _declared(table.names, categorical)
        encoders = tuple(
            learn(name, column, name in declared)
            for name, column in zip(table.names, table.columns, strict=True)
        )
        return cls(encoders, table.named, _logs(encoders, table) if with_logs else {})

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns (x0, x1, ... for arrays)."""
        return [e.name for e in self.encoders]

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each column of the table."""
        return {e.name: e.kind for e in self.encoders}

    @property
    def names_out(self) -> list[str]:
        """Names of the encoded columns."""
        logs = [f"log of {self.encoders[i].name}" for i in self.logs]
        return [*(name for e in self.encoders for name in e.names_out), *logs]

    @property
    def sources(self) -> np.ndarray:
        """For each encoded column, the position of the table's column it came from."""
        own = np.repeat(np.arange(len(self.encoders)), [len(e.names_out) for e in self.encoders])
        return np.append(own, np.fromiter(self.logs, int))

    def transform(self, X: Any) -> np.ndarray:
        """Encode a table: (N, D) float32 without gaps, a row depending on no other row."""
        table = self._match(read_table(X))
        slots = np.cumsum([0, *(len(e.names_out) for e in self.encoders)])
        out = np.zeros((table.n_rows, slots[-1] + len(self.logs)), dtype=np.float32)
        plain, values = [], []
        for e, column, slot in zip(self.encoders, table.columns, slots, strict=False):
            if e.kind in ("number", "boolean"):
                v = numbers(e, column)
                if e.gaps:
                    out[:, slot + 1] = np.isnan(v)
            elif e.kind == "date":
                v = dates(e, column, out[:, slot + 1 : slot + len(e.names_out)])
            else:
                categories(e, column, out[:, slot : slot + len(e.names_out)])
                continue
            plain.append((e.scale, slot))
            values.append(v)
        if plain:
            scales, where = zip(*plain, strict=True)
            out[:, list(where)] = standardise(np.stack(values, axis=1), scales)
        for j, (i, scale) in enumerate(self.logs.items()):
            log = logarithms(self.encoders[i], table.columns[i])
            out[:, slots[-1] + j] = standardise(log[:, None], [scale])[:, 0]
        return out

    def _match(self, table: Table) -> Table:
        """The table with the columns of fit, in the order of fit; scikit-learn's errors otherwise."""
        if table.records and self.named:
            return _reorder(table, self.columns)
        if table.named and self.named and table.names != self.columns:
            raise ValueError(_mismatch(table.names, self.columns))
        if len(table.columns) != len(self.encoders):
            raise ValueError(
                f"X has {len(table.columns)} features, but {len(self.encoders)} are expected as input"
            )
        return table

    def to_state(self) -> tuple[dict, dict[str, np.ndarray]]:
        """All that was learned, as (what JSON can hold, arrays): no pickle needed."""
        columns = []
        for e in self.encoders:
            item = asdict(e)
            del item["scale"]
            columns.append({k: v for k, v in item.items() if v not in (False, (), "")})
        scales = np.array([tuple(asdict(e.scale).values()) for e in self.encoders])
        arrays = {"scales": scales}
        if self.logs:
            arrays["logs"] = np.array([(i, *asdict(scale).values()) for i, scale in self.logs.items()])
        return {"named": self.named, "columns": columns}, arrays

    @classmethod
    def from_state(cls, state: dict, arrays: dict[str, np.ndarray]) -> "Features":
        """The inverse of `to_state`, also after a round through JSON."""
        encoders = []
        for item, scale in zip(state["columns"], arrays["scales"], strict=True):
            lists = {k: tuple(item[k]) for k in ("levels", "counts") if k in item}
            encoders.append(Encoder(**{**item, **lists}, scale=Scale(*map(float, scale))))
        logs = {int(i): Scale(*map(float, scale)) for i, *scale in arrays.get("logs", ())}
        return cls(tuple(encoders), bool(state["named"]), logs)


def _logs(encoders: tuple[Encoder, ...], table: Table) -> dict[int, Scale]:
    """Scales of the logarithms of columns of positive numbers, by position."""
    found = {}
    for i, (e, column) in enumerate(zip(encoders, table.columns, strict=True)):
        v = numbers(e, column) if e.kind == "number" else np.zeros(0)
        v = v[~np.isnan(v)]
        if len(v) and v.min() > 0 and v.max() / WIDE > v.min():
            found[i] = Scale.fit(logarithms(e, column))
    return found


def _declared(names: list[str], categorical: Any) -> set[str]:
    if categorical is None or (isinstance(categorical, str) and categorical == "auto"):
        return set()
    if isinstance(categorical, str):
        raise ValueError(f'categorical must be "auto" or a list of columns; got {categorical!r}')
    chosen = set()
    for c in np.flatnonzero(categorical) if _is_mask(categorical, len(names)) else categorical:
        if isinstance(c, str) and c in names:
            chosen.add(c)
        elif isinstance(c, int | np.integer) and -len(names) <= c < len(names):
            chosen.add(names[c])
        else:
            raise ValueError(f"categorical names column {c!r}, which X does not have")
    return chosen


def _is_mask(categorical: Any, n: int) -> bool:
    items = list(categorical)
    return len(items) == n and all(isinstance(c, bool | np.bool_) for c in items)


def _require_cells(table: Table) -> None:
    shape = (table.n_rows, len(table.columns))
    for what, n in (("sample(s)", shape[0]), ("feature(s)", shape[1])):
        if n == 0:
            raise ValueError(f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required.")


def _reorder(table: Table, names: list[str]) -> Table:
    """Records by name: any order, absent names are gaps."""
    extra = [n for n in table.names if n not in names]
    if extra:
        raise ValueError(_mismatch([*names, *extra], names))
    have = dict(zip(table.names, table.columns, strict=True))
    gap = Column(np.full(table.n_rows, np.nan))
    return replace(table, names=names, columns=[have.get(name, gap) for name in names])


def _mismatch(now: list[str], then: list[str]) -> str:
    """Scikit-learn's words for names that differ from those at fit."""
    unseen = sorted(set(now) - set(then))
    absent = sorted(set(then) - set(now))
    message = "The feature names should match those that were passed during fit.\n"
    if unseen:
        message += "Feature names unseen at fit time:\n" + _listed(unseen)
    if absent:
        message += "Feature names seen at fit time, yet now missing:\n" + _listed(absent)
    if not unseen and not absent:
        message += "Feature names must be in the same order as they were in fit.\n"
    return message


def _listed(names: list[str], most: int = 5) -> str:
    return "".join(f"- {name}\n" for name in names[:most]) + ("- ...\n" if len(names) > most else "")
