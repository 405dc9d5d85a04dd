"""What the commands share: their errors, the model, the columns it needs, and how they print."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from card.columns import is_missing
from card.facts import is_classifier, n_targets, target_names
from card.files import LINES, format_of, read_chunks

LARGEST = 1e100  # responses beyond it could not be squared, summed and compared in double precision


class Problem(Exception):
    """What went wrong, in one line for the person at the keyboard."""


@dataclass
class Terminal:
    """Where results, notes and warnings go.

    Results go to standard output, as text or, with `json`, for machines. Notes and progress go to standard
    error, and only if a person is watching; warnings always do.
    """

    json: bool = False
    out: Console = field(default_factory=lambda: Console(highlight=False, width=_width()))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    @property
    def watched(self) -> bool:
        return self.err.is_terminal

    def note(self, text: str) -> None:
        if self.watched:
            self.err.print(text, markup=False, style="dim")

    def warn(self, text: str) -> None:
        self.err.print(f"warning: {text}", markup=False, style="yellow", soft_wrap=True)

    def result(self, text: Any, data: dict) -> None:
        """Show a result: `text` (anything Rich can print) to people, `data` to machines."""
        if self.json:
            self.out.print_json(data=_plain(data), indent=None if not self.out.is_terminal else 2)
        else:
            self.out.print(text, soft_wrap=isinstance(text, str), markup=not isinstance(text, str))


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], left: int, title: str) -> Group:
    """A table to print below its title, its first `left` columns flush left; brackets are no markup."""
    out = Table(box=None, pad_edge=False)
    for i, heading in enumerate(headings):
        out.add_column(Text(heading), justify="left" if i < left else "right")
    for row in rows:
        out.add_row(*(Text(str(cell)) for cell in row))
    return Group(Text(title, style="italic"), out)


def _width() -> int | None:
    """That of the terminal; of a file or pipe, wide enough that no table is folded."""
    return None if sys.stdout.isatty() else 160


def _plain(value: Any) -> Any:
    """Numbers that JSON can hold; what is not finite becomes null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def counted(terminal: Terminal, label: str, total: float | None) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, moved by the function it gives; nothing if nobody watches."""
    if not terminal.watched:
        yield lambda n: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal.err, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda n: progress.advance(task, n)


def load_model(path: Path) -> Any:
    """The fitted estimator in a model file."""
    import card

    if not path.is_file():
        raise Problem(f"{path}: " + ("this is a folder" if path.is_dir() else "no such model file"))
    return card.load(path)


def require_other(out: Path | None, *inputs: Path) -> None:
    """Refuse to write over what is read, even with --force."""
    for path in inputs:
        if out is not None and out.exists() and path.exists() and out.samefile(path):
            raise Problem(f"--out {out} is a file that this command reads; give another name")


@contextmanager
def rows_of(path: Path, first: int, n: int) -> Iterator[None]:
    """What is wrong with cells is told with the rows it is in, counted from 1."""
    try:
        yield
    except ValueError as e:
        raise Problem(f"{path}, rows {first + 1} to {first + n}: {e}") from e


@dataclass(frozen=True)
class Columns:
    """Finds a model's columns in a table by name, whatever their order."""

    model: Any

    @property
    def names(self) -> list[str] | None:
        names = getattr(self.model, "feature_names_in_", None)
        return None if names is None else [str(n) for n in names]

    def features(self, frame: pd.DataFrame, path: Path, but: Sequence[str] = ()) -> Any:
        """The columns of fit in the order of fit; a model of nameless columns takes all, in order."""
        if self.names is None:
            rest = frame.drop(columns=[c for c in but if c in frame])
            if rest.shape[1] != self.model.n_features_in_:
                raise Problem(
                    f"{path} has {rest.shape[1]} columns; the model was fitted to "
                    f"{self.model.n_features_in_} columns without names"
                )
            return rest.set_axis(range(rest.shape[1]), axis=1)
        absent = [name for name in self.names if name not in frame]
        sparse = format_of(path) in LINES and len(absent) < len(self.names)  # they may leave gaps out
        if absent and not sparse:
            raise Problem(
                f"{path} lacks {listed(absent)}, which the model was fitted to; it has {listed(list(frame))}"
            )
        return frame.reindex(columns=self.names) if absent else frame[self.names]

    def extra(self, frame: pd.DataFrame) -> list[str]:
        known = set(self.names or frame.columns) | set(target_names(self.model) or [])
        return [str(c) for c in frame.columns if c not in known]

    def targets(self, frame: pd.DataFrame, path: Path, given: list[str]) -> list[str]:
        """The columns of the observed responses: as given, as at fit, or the only one left."""
        names = given or target_names(self.model) or self.extra(frame)
        wanted = n_targets(self.model) or 1
        if len(names) != wanted:
            raise Problem(f"which column of {path} holds the observed values? say --target")
        absent = [name for name in names if name not in frame]
        if absent:
            raise Problem(f"{path} has no column {listed(absent)}")
        if used := [name for name in names if name in (self.names or [])]:
            raise Problem(f"{listed(used)}: the model predicts from this column; it cannot be the --target")
        return names


def known_rows(
    model: Any, path: Path, given: list[str], encoding: str, terminal: Terminal
) -> Iterator[tuple[pd.DataFrame, Any, np.ndarray]]:
    """Chunks of (row numbers from 1, features, observed responses), rows without a response left out."""
    columns, first, lost = Columns(model), 0, 0
    for chunk in read_chunks(path, encoding=encoding):
        names = columns.targets(chunk, path, given)
        X = columns.features(chunk, path, names)
        if first == 0:
            warn_of_extra(columns, chunk.drop(columns=names), path, terminal)
        y = responses(chunk[names], is_classifier(model))
        keep = y.notna().all(axis=1).to_numpy()
        numbers = first + 1 + np.flatnonzero(keep)
        first, lost = first + len(chunk), lost + int((~keep).sum())
        if keep.any():
            values = y[keep].to_numpy()
            yield numbers, X[keep], values[:, 0] if n_targets(model) is None else values
    if lost == first:
        raise Problem(f"column {listed(names)} of {path} has no values at all")
    if lost:
        terminal.warn(f"{lost} of {first} rows have no {listed(names)} and were left out")


def warn_of_extra(columns: Columns, frame: pd.DataFrame, path: Path, terminal: Terminal) -> None:
    """Name the columns that are not used, and those that are missing so far but may come."""
    if columns.names is None:
        return
    if extra := columns.extra(frame):
        terminal.warn(f"{path}: columns the model does not know are ignored: {listed(extra)}")
    if absent := [name for name in columns.names if name not in frame]:
        terminal.warn(f"{path}: no row of the first {len(frame)} has {listed(absent)}: taken for gaps")


def responses(frame: pd.DataFrame, labels: bool) -> pd.DataFrame:
    """Observed responses: labels as they are, or numbers; a cell that is no number is a Problem."""
    out = {}
    for name in frame:
        cells = frame[name]
        if labels:
            out[name] = _labels(cells)
            continue
        numbers = pd.to_numeric(cells, errors="coerce").astype(float)
        wrong = numbers.isna() & ~is_missing(cells.to_numpy(dtype=object))
        if wrong.any():
            raise Problem(f"column {name!r} must hold numbers; it holds {cells[wrong].iloc[0]!r}")
        if np.isinf(numbers).any():
            raise Problem(f"column {name!r} holds an infinite value")
        if (numbers.abs() > LARGEST).any():
            far = numbers[numbers.abs() > LARGEST].iloc[0]
            raise Problem(f"column {name!r} holds {far:g}; leave such rows out, or choose a larger unit")
        out[name] = numbers
    return pd.DataFrame(out)


def _labels(cells: pd.Series) -> pd.Series:
    """Labels, None where there is none; whole numbers stay whole where gaps have made them floats."""
    gaps = is_missing(cells.to_numpy(dtype=object))
    if cells.dtype.kind == "f" and (cells[~gaps] % 1 == 0).all():
        cells = cells.fillna(0).astype(np.int64)
    return cells.astype(object).mask(gaps)


def listed(names: list[str], most: int = 5) -> str:
    """Names for a message, the first few.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    return ", ".join(f"'{n}'" for n in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
