"""Tables to files, in the formats that `card.files` reads.

Writing is all or nothing: a file appears under its name when it is complete. Strings that a spreadsheet
would run as a formula are written to CSV with a quote in front.
"""

import contextlib
import gzip
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pandas as pd

from card.files import LINES, TEXT, FileError, arrow, format_of

FORMULA = re.compile(
    r"^\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]"
)  # full-width ones too: some programs run them


class Writer:
    """Write a table chunk by chunk; the file appears when the `with` block ends without an error.

    Parameters
    ----------
    path : where to write; the format follows the name
    force : whether an existing file may be replaced
    """

    def __init__(self, path: str | Path, force: bool = False):
        self.path = Path(path)
        self.suffix = format_of(self.path)
        require_free(self.path, force)
        self._sink: Any = None
        self._names: list[str] = []

    def __enter__(self) -> "Writer":
        self._atomic = atomic(self.path, force=True)
        self._part = self._atomic.__enter__()
        self._stack = contextlib.ExitStack()
        return self

    def write(self, frame: pd.DataFrame) -> None:
        """Append rows; every chunk has the columns of the first, or else the format must be JSON lines."""
        if self._sink is None:
            self._names = list(frame.columns)
            self._sink = self._stack.enter_context(self._open(frame))
        if self.suffix not in LINES:
            require_columns(frame, self._names, self.path)
        self._sink(frame)

    def _open(self, frame: pd.DataFrame) -> contextlib.AbstractContextManager:
        if self.suffix in TEXT:
            return _text_sink(self._part, self.path, TEXT[self.suffix], frame)
        return (
            _lines_sink(self._part, self.path)
            if self.suffix in LINES
            else _arrow_sink(self._part, self.path, self.suffix, frame)
        )

    def __exit__(self, *error: Any) -> None:
        try:
            self._stack.__exit__(*error)
        finally:
            self._atomic.__exit__(*error)


@contextlib.contextmanager
def atomic(path: str | Path, force: bool = False) -> Iterator[Path]:
    """A temporary neighbour of `path` to write to; it takes the name `path` only if all went well."""
    path = Path(path)
    require_free(path, force)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as e:
        raise FileError(f"{path} cannot be written: {e.strerror}") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def require_free(path: Path, force: bool) -> None:
    """Refuse a name that is taken, or whose folder is not there or read-only: now, not after the work."""
    if path.is_dir() or not path.parent.is_dir():
        raise FileError(
            f"{path} cannot be written: " + ("it is a folder" if path.is_dir() else "no such folder")
        )
    if not os.access(path.parent, os.W_OK):
        raise FileError(f"{path} cannot be written: its folder is read-only")
    if path.exists() and not force:
        raise FileError(f"{path} exists already; --force replaces it")


def require_columns(frame: pd.DataFrame, names: list[str], path: str | Path) -> None:
    """Refuse rows with columns other than those that the header names."""
    if list(frame.columns) != names:
        new = [str(c) for c in frame.columns if c not in names]
        raise FileError(f"{path}: a later row has a new column {new[0]!r}; only JSON lines can hold that")


def csv_text(frame: pd.DataFrame, header: bool = True, delimiter: str = ",") -> str:
    """Rows as CSV, safe to open in a spreadsheet.

    Examples
    --------
    >>> csv_text(pd.DataFrame({"mean": [-1.5], "note": ["=2+2"]}))
    "mean,note\\n-1.5,'=2+2\\n"
    """
    safe = frame.rename(columns=_defuse)
    for i, dtype in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            safe.isetitem(i, safe.iloc[:, i].map(_defuse))
    return safe.to_csv(index=False, header=header, sep=delimiter, lineterminator="\n")


def json_lines(frame: pd.DataFrame) -> str:
    """Rows as JSON, an object a line.

    >>> json_lines(pd.DataFrame({"mean": [1.5], "town": ["Köln"]}))
    '{"mean":1.5,"town":"Köln"}\\n'
    """
    return frame.to_json(
        orient="records", lines=True, date_format="iso", double_precision=15, force_ascii=False
    )


def _defuse(cell: Any) -> Any:
    if not isinstance(cell, str) or not FORMULA.match(cell):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell


@contextlib.contextmanager
def _text_sink(part: Path, path: Path, delimiter: str, frame: pd.DataFrame) -> Iterator[Any]:
    with _create(part, path) as out:
        out.write(csv_text(frame[:0], delimiter=delimiter))
        yield lambda chunk: out.write(csv_text(chunk, header=False, delimiter=delimiter))


@contextlib.contextmanager
def _lines_sink(part: Path, path: Path) -> Iterator[Any]:
    with _create(part, path) as out:
        yield lambda chunk: out.write(json_lines(chunk))


def _create(part: Path, path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(part, "wt", encoding="utf-8", newline="")
    return part.open("w", encoding="utf-8", newline="")


@contextlib.contextmanager
def _arrow_sink(part: Path, path: Path, suffix: str, frame: pd.DataFrame) -> Iterator[Any]:
    """Types are those of the first rows; a column that is empty there is taken for text.

    Categories are written as their values: later rows may have others.
    """
    pa = arrow(part)
    found = pa.Schema.from_pandas(frame, preserve_index=False)

    def lasting(kind: Any) -> Any:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.string() if pa.types.is_null(kind) else kind

    schema = pa.schema([f.with_type(lasting(f.type)) for f in found])
    if suffix in (".parquet", ".pq"):
        from pyarrow.parquet import ParquetWriter as Sink
    else:
        from pyarrow.ipc import new_file as Sink

    def write(chunk: pd.DataFrame) -> None:
        try:
            sink.write_table(pa.Table.from_pandas(chunk, schema, preserve_index=False))
        except (pa.ArrowException, TypeError) as e:
            raise FileError(f"{path}: later rows are of another type ({e.args[-1]}); write .jsonl") from None

    with Sink(str(part), schema) as sink:
        yield write


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
