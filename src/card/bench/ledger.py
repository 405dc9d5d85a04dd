"""What a run writes: the line of each finished unit and its arrays; and which units it has laid hands on.

Several processes may work off one experiment: each takes what no other is at, and nothing is reported
twice. A claim is a lock on one byte of a file, which ends with its process, however that dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from card.bench import arrays, reports
from card.bench.execute import Outcome
from card.bench.shelf import digest
from card.bench.spec import Unit

try:
    import fcntl
except ImportError:  # Windows: every process works for itself
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Ledger:
    """A results folder and the report file of an experiment in it."""

    results: Path
    name: str

    @property
    def path(self) -> Path:
        return self.results / self.name

    @property
    def checkpoints(self) -> Path:
        """Folder, beside the reports, of fits under way in this machine's own processes."""
        return self.results / "checkpoints"

    def record(self, outcome: Outcome) -> None:
        """Write what came out, arrays first: a line says that all of it is there."""
        if outcome.report is None:
            return
        if outcome.arrays:
            arrays.save(arrays.array_path(self.results, outcome.report, self.path.stem), outcome.arrays)
        reports.append(self.path, [outcome.report])

    def left(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """Those of the units that have no report, whatever the settings of those that have one."""
        done = {reports.identity(report) for report in reports.read(self.path)}
        return tuple(unit for unit in units if reports.identity(unit.identity()) not in done)

    @contextmanager
    def claim(self, task: Sequence[Unit], wait: bool = True) -> Iterator[bool]:
        """Whether the task is this process's own; with `wait` it will be, once the other one is done."""
        if fcntl is None:
            yield True
            return
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.checkpoints / "claims", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            yield _lock_byte(descriptor, int(digest(task), 16) % 2**31, wait)
        finally:
            os.close(descriptor)  # which also gives the lock back


def _lock_byte(descriptor: int, byte: int, wait: bool) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True
