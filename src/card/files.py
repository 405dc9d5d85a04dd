"""Tables from files: CSV, TSV, JSON lines (each also .gz), Parquet and Feather, whole or in chunks.

The name "-" is standard input, as CSV.

A cell of a CSV file is text; what it means is not known from one chunk of the file. So chunks carry text as
it stands, and a fitted model, which knows its columns, reads numbers, dates and levels from it. Only
`read_frame`, which sees every row, gives columns of numbers their type. Writing is in `card.writing`.
"""

import contextlib
import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from card.columns import is_gap, is_missing

CHUNK_ROWS = 4096
TEXT = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
LINES = (".jsonl", ".ndjson")
BINARY = (".parquet", ".pq", ".feather", ".arrow")
STDIN = Path("-")
ADVICE = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), "spreadsheets come and go as CSV"),
    ".json": "write one object a line, as .jsonl",
    ".card": "a model is no table",
}
# How files begin that are no text, whatever their names say.
MAGIC = {
    b"PK": "is a zip or model file, not a table",
    b"\x1f\x8b": "is packed by gzip; let its name end in .gz",
    b"PAR1": "is a Parquet file; let its name end in .parquet",
    b"ARROW1": "is a Feather file; let its name end in .feather",
}
TRUTH = {"true": True, "false": False}
INTEGER = re.compile(r"^\s*[+-]?\d{1,15}\s*$")
LEADING_ZERO = re.compile(r"^\s*[+-]?0\d")
DECIMAL_COMMA = re.compile(r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?\s*$")


class FileError(ValueError):
    """A file that cannot be read or written; the message is one line for the person who gave it."""


def read_frame(path: str | Path, encoding: str = "utf-8") -> pd.DataFrame:
    """All rows of a file, with numbers and truth values recognised column by column.

    Text is a number column when every cell that is not missing is a number, and none is written
    with leading zeros, as postcodes and other codes are.
    """
    path = Path(path)
    chunks = list(read_chunks(path, encoding=encoding))
    frame = chunks[0] if len(chunks) == 1 else pd.concat(chunks, ignore_index=True)
    if format_of(path) in TEXT:
        return pd.DataFrame({name: typed(frame[name]) for name in frame}, copy=False)
    return frame


def read_chunks(path: str | Path, rows: int = CHUNK_ROWS, encoding: str = "utf-8") -> Iterator[pd.DataFrame]:
    """The rows of a file in order, at most `rows` at a time; cells of CSV files stay text.

    Raises
    ------
    FileError
        The file is absent, empty, has no rows, is not what its name says, or has rows of unequal length.
    """
    path = Path(path)
    if path != STDIN:
        if not path.is_file():
            raise FileError(f"{path}: " + ("this is a folder" if path.is_dir() else "no such file"))
        if path.stat().st_size == 0:
            raise FileError(f"{path} is empty")
    suffix = format_of(path)
    if suffix in TEXT:
        chunks = _read_text(path, TEXT[suffix], rows, encoding)
    elif suffix in LINES:
        chunks = _read_lines(path, rows, encoding)
    else:
        chunks = _read_arrow(path, suffix, rows)
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        raise FileError(f"{path} has a header but no rows" if suffix not in LINES else f"{path} has no rows")


def estimate_rows(path: str | Path) -> float | None:
    """About how many rows a file has, from its size and its first lines; None if there is no telling."""
    path = Path(path)
    if not path.is_file():
        return None
    suffix = format_of(path)
    if suffix in (".parquet", ".pq"):
        with contextlib.suppress(Exception):
            from pyarrow.parquet import read_metadata

            return float(read_metadata(path).num_rows)
    if suffix in BINARY or path.suffix.lower() == ".gz":
        return None
    with path.open("rb") as raw:
        head = raw.read(2**16)
    return path.stat().st_size * head.count(b"\n") / len(head) if head.count(b"\n") else None


def typed(text: pd.Series) -> pd.Series:
    """A column of text as numbers or truth values, if all of it is such; else as it was.

    Examples
    --------
    >>> typed(pd.Series(["1", "2.5", ""])).tolist()
    [1.0, 2.5, nan]
    >>> typed(pd.Series(["01067", "50667"])).tolist()
    ['01067', '50667']
    """
    cells = text.to_numpy(dtype=object)
    gaps = is_missing(cells)
    present = cells[~gaps]
    if len(present) and all(cell.lower() in TRUTH for cell in present):
        values = np.array(
            [None if gap else TRUTH[cell.lower()] for cell, gap in zip(cells, gaps, strict=True)]
        )
        return pd.Series(values, name=text.name)
    numbers = _numbers(present)
    if numbers is None:
        return text
    if len(numbers) == len(cells) and all(INTEGER.match(cell) for cell in present):
        return pd.Series(numbers.astype(np.int64), name=text.name)
    out = np.full(len(cells), np.nan)
    out[~gaps] = numbers
    return pd.Series(out, name=text.name)


def _numbers(cells: np.ndarray) -> np.ndarray | None:
    """Text as numbers; None if some of it is something else, or a code."""
    if any("_" in cell or LEADING_ZERO.match(cell) for cell in cells):
        return None
    try:
        return cells.astype(np.float64)
    except ValueError:
        return None


def format_of(path: Path) -> str:
    """The kind of a file by its name, as `.csv` of `t.csv.gz`."""
    if path == STDIN:
        return ".csv"
    suffixes = [s.lower() for s in path.suffixes]
    suffix = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if suffix not in (*TEXT, *LINES, *BINARY):
        advice = ADVICE.get(suffix, "use .csv, .tsv, .jsonl (also .gz), .parquet or .feather")
        raise FileError(f"{path}: unknown kind of file; {advice}")
    return suffix


@contextlib.contextmanager
def _open_text(path: Path, encoding: str) -> Iterator[IO[str]]:
    """The file as text, unpacked if need be; what is not text becomes a FileError."""
    with _open_bytes(path) as raw:
        try:
            head = raw.peek(8192)[:8192]
        except (OSError, EOFError):
            raise FileError(f"{path} is not a complete gzip file") from None
        if not head:
            raise FileError(f"{path} is empty")
        for magic, said in MAGIC.items():
            if head.startswith(magic):
                raise FileError(f"{path} {said}")
        if head[:2] in (b"\xff\xfe", b"\xfe\xff") and encoding == "utf-8":
            raise FileError(f"{path} is written in UTF-16; say --encoding utf-16")
        if b"\0" in head and not encoding.lower().startswith("utf-16"):
            raise FileError(f"{path} is a binary file, not text")
        try:
            text = io.TextIOWrapper(
                raw, encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline=""
            )
        except LookupError:
            raise FileError(f"there is no encoding named {encoding!r}") from None
        try:
            yield text
        except UnicodeError:
            raise FileError(
                f"{path} is not written in {encoding}; say --encoding, for instance latin-1"
            ) from None
        except (OSError, EOFError):
            raise FileError(f"{path} is not a complete gzip file") from None


def _open_bytes(path: Path) -> Any:
    if path == STDIN:
        return contextlib.nullcontext(io.BufferedReader(sys.stdin.buffer))  # type: ignore[type-var]
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _read_text(path: Path, delimiter: str, rows: int, encoding: str) -> Iterator[pd.DataFrame]:
    csv.field_size_limit(2**30)
    with _open_text(path, encoding) as text:
        first = text.readline()
        delimiter = _delimiter(first, delimiter)
        reader = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
        try:
            names = _header(path, next(reader, []))
            while chunk := _take(path, reader, rows, len(names)):
                columns = [_object(cells, delimiter == ";") for cells in zip(*chunk, strict=True)]
                yield pd.DataFrame(dict(zip(names, columns, strict=True)), dtype=object)
        except csv.Error as e:
            raise FileError(f"{path}, line {reader.line_num}: {e}") from None


def _delimiter(header: str, usual: str) -> str:
    """The usual one, unless the header does without it and has another."""
    others = [d for d in (";", "\t", ",", "|") if d in header]
    return usual if usual in header or not others else others[0]


def _header(path: Path, cells: list[str]) -> list[str]:
    names = [cell.strip() or f"column {i + 1}" for i, cell in enumerate(cells)]
    twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise FileError(f"{path}: these column names occur more than once: {', '.join(twice[:5])}")
    if not names:
        raise FileError(f"{path}: the first line must name the columns; it is empty")
    return names


def _take(path: Path, reader: Any, n: int, width: int) -> list[list[str]]:
    """The next n rows; blank lines are skipped, other lengths than the header's refused."""
    rows: list[list[str]] = []
    for row in reader:
        if len(row) != width:
            if not row:
                continue
            cells = f"{len(row)} cell{'' if len(row) == 1 else 's'}"
            raise FileError(f"{path}, line {reader.line_num}: {cells}, but the header has {width}")
        rows.append(row)
        if len(rows) == n:
            break
    return rows


def _object(cells: Sequence[str], decimal_commas: bool) -> np.ndarray:
    """Cells as they stand, gaps as None; between semicolons 1.234,5 is the number 1234.5."""
    out = np.empty(len(cells), dtype=object)
    out[:] = [None if is_gap(cell) else cell for cell in cells]
    if decimal_commas:
        out[:] = [_with_point(cell) if cell and DECIMAL_COMMA.match(cell) else cell for cell in out]
    return out


def _with_point(number: str) -> str:
    return number.replace(".", "").replace(",", ".")


def _read_lines(path: Path, rows: int, encoding: str) -> Iterator[pd.DataFrame]:
    """A name that was met once is a column of every later chunk; a row without it has a gap."""
    with _open_text(path, encoding) as text:
        names: dict[str, None] = {}
        lines = (_record(path, number, line) for number, line in enumerate(text, start=1) if line.strip())
        while records := list(islice(lines, rows)):
            names |= dict.fromkeys(name for record in records for name in record)
            yield pd.DataFrame({name: [record.get(name) for record in records] for name in names})


def _record(path: Path, number: int, line: str) -> dict:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise FileError(f"{path}, line {number}: not a JSON object")
    nested = [name for name, cell in record.items() if isinstance(cell, list | dict)]
    if nested:
        raise FileError(f"{path}, line {number}: {nested[0]!r} holds a list or an object, not one value")
    return record


def arrow(path: Path) -> Any:
    """The package pyarrow, or the advice to install it."""
    try:
        import pyarrow

        return pyarrow
    except ImportError:
        raise FileError(
            f"{path}: reading and writing this needs pip install 'card-diffusion[files]'"
        ) from None


def _read_arrow(path: Path, suffix: str, rows: int) -> Iterator[pd.DataFrame]:
    pa = arrow(path)
    try:
        for table in _regrouped(_batches(path, suffix, rows), rows):
            yield table.unify_dictionaries().to_pandas()
    except pa.ArrowException as e:
        raise FileError(f"{path} is not a {suffix[1:]} file: {str(e).splitlines()[0]}") from None


def _regrouped(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Batches of any length as tables of so many rows: how a file was written changes nothing."""
    from pyarrow import Table, concat_tables

    rest: Any = None
    for batch in batches:
        more = Table.from_batches([batch])
        rest = more if rest is None else concat_tables([rest, more])
        while rest.num_rows >= rows:
            yield rest.slice(0, rows)
            rest = rest.slice(rows)
    if rest is not None and rest.num_rows:
        yield rest


def _batches(path: Path, suffix: str, rows: int) -> Iterator[Any]:
    if suffix in (".parquet", ".pq"):
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path, memory_map=True) as file:
            yield from file.iter_batches(batch_size=rows)
    else:
        from pyarrow import ipc, memory_map

        with memory_map(str(path)) as source, ipc.open_file(source) as file:
            yield from (file.get_batch(i) for i in range(file.num_record_batches))
