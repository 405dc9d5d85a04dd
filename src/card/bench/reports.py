"""Reports: a file of JSON lines, one line per finished unit.

A line is written whole, in one call, under a lock on the file, so that many processes may
append to one file. A process that dies while writing can leave at most one unfinished last
line; the next writer notices it, says so, and cuts it off: the unit it belonged to runs again.
Readers never change a file.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from card.bench.errors import BenchError

IDENTITY = ("dataset", "split", "seed", "method", "recipe", "variant")
NEEDED = ("dataset", "method", "recipe", "metrics")
"""Without these a line is no report."""

Report = dict[str, Any]


class DamagedReportWarning(UserWarning):
    """The last line of a report file is unfinished."""


def identity(report: Report) -> tuple[Any, ...]:
    """What makes a report unique in its file; the seed counts where there is no split."""
    fields = [name for name in IDENTITY if not (name == "seed" and "split" in report)]
    return tuple((name, report[name]) for name in fields if report.get(name) not in (None, ""))


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """An open descriptor of the file (made if need be) under an exclusive lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)  # which also gives the lock back


try:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
except ImportError:  # Windows
    import msvcrt

    def _lock(descriptor: int) -> None:
        """Lock one byte far beyond the end; `locking` gives up after ten seconds, so ask again."""
        os.lseek(descriptor, 2**31 - 2, os.SEEK_SET)
        while True:
            try:
                return msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
            except OSError:
                continue


def parse(data: bytes, path: Path) -> tuple[list[Report], int]:
    """The reports in `data`, and how many of its bytes they take up.

    What is unreadable at the end is left out of both. An unreadable line with reports after it was not
    left by a dying writer, so it is an error.
    """
    reports: list[Report] = []
    good = read = bad = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        report = _parse_line(line)
        read += len(line) + 1
        if report is None:
            bad = bad or (number if line.strip() else 0)
            continue
        if bad:
            raise BenchError(
                f"{path}: line {bad} is not a report, and reports follow it; mend or delete that line by hand"
            )
        reports.append(report)
        good = min(read, len(data))
    return reports, good if bad else len(data)


def _parse_line(line: bytes) -> Report | None:
    try:
        report = json.loads(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) and all(name in report for name in NEEDED) else None


def read(path: Path) -> list[Report]:
    """All reports in a file; none if there is no file. An unfinished last line gives a warning."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    reports, good = parse(data, path)
    if good < len(data):
        warnings.warn(_damage(path, data[good:]), DamagedReportWarning, stacklevel=2)
    return reports


def _damage(path: Path, tail: bytes) -> str:
    start = tail[:60].decode(errors="replace").strip()
    return f"{path}: the last line is damaged ({len(tail)} bytes: {start}...)"


def repair(path: Path) -> str | None:
    """Cut off an unfinished last line; say what was cut, or None if the file was sound."""
    if not path.exists():
        return None
    with locked(path) as descriptor:
        return _repair(descriptor, path)[1]


def _repair(descriptor: int, path: Path) -> tuple[list[Report], str | None]:
    data = _contents(descriptor)
    reports, good = parse(data, path)
    message = None
    if good < len(data):
        os.ftruncate(descriptor, good)
        message = _damage(path, data[good:]) + "; removed it, its unit will run again"
    elif data and not data.endswith(b"\n"):
        os.write(descriptor, b"\n")
    return reports, message


def _contents(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


def append(path: Path, new: Iterable[Report]) -> int:
    """Add the reports that the file does not hold yet; how many were added.

    Two processes that finish the same unit leave one line, that of the first.
    """
    with locked(path) as descriptor:
        present, message = _repair(descriptor, path)
        if message:
            warnings.warn(message, DamagedReportWarning, stacklevel=2)
        seen = {identity(report) for report in present}
        fresh = [report for report in new if identity(report) not in seen]
        _write_all(descriptor, b"".join(_line(report) for report in fresh))
        os.fsync(descriptor)
    return len(fresh)


def _line(report: Report) -> bytes:
    return json.dumps(report, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
