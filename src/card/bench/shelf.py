"""Fits beside the reports: under way, or done and not yet scored, so that a killed run loses little.

In the folder of checkpoints are, for the units of a task (several where they are fitted together):

    <task>/             the estimator's own checkpoint of the fit under way
    <task>.clock        how many processor seconds it has taken so far
    <unit>.card, .json  a fitted model, and how it was fitted, until its report is written

A name is a digest of the units and of the library's version: what is found under it fits no others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from card import persist
from card.bench import environment
from card.bench.score import processor_seconds
from card.bench.spec import Unit
from card.checkpoint import write_atomically

LONG = 20.0  # seconds: a single fit that took less is as well repeated


def digest(units: Sequence[Unit]) -> str:
    """A name for these units under this version of the library."""
    return hashlib.sha256(repr((environment.version(), tuple(units))).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Fitted:
    """A fitted estimator, its share of the seconds, and how many were fitted with it."""

    estimator: Any
    seconds: float
    together: int

    @property
    def is_worth_keeping(self) -> bool:
        return hasattr(self.estimator, "save") and (self.together > 1 or self.seconds >= LONG)


@dataclass(frozen=True)
class Shelf:
    """Fitted models whose reports are not written yet."""

    folder: Path

    def path(self, unit: Unit) -> Path:
        return self.folder / f"{digest([unit])}.card"

    def put(self, unit: Unit, fitted: Fitted) -> None:
        if not fitted.is_worth_keeping:
            return
        path = self.path(unit)
        how = {"seconds": fitted.seconds, "together": fitted.together}
        write_atomically(path.with_suffix(".json"), json.dumps(how).encode())
        fitted.estimator.save(path)

    def get(self, unit: Unit) -> Fitted | None:
        path = self.path(unit)
        if not path.exists():
            return None
        how = json.loads(path.with_suffix(".json").read_text())
        return Fitted(persist.load(path), **how)

    def drop(self, unit: Unit) -> None:
        for path in (self.path(unit), self.path(unit).with_suffix(".json")):
            path.unlink(missing_ok=True)


class Clock:
    """Processor seconds of a fit over all the processes that had a part in it, written down as they pass."""

    def __init__(self, folder: Path, every: float = 2.0) -> None:
        """`folder` is that of the fit's own checkpoints."""
        self.path, self.every = folder.with_suffix(".clock"), every

    @contextmanager
    def running(self) -> Iterator[float]:
        """Within, this process counts; given are the seconds of those before it."""
        before = json.loads(self.path.read_text()) if self.path.exists() else 0.0
        start, done = processor_seconds(), Event()

        def write() -> None:
            while not done.wait(self.every):
                write_atomically(self.path, json.dumps(before + processor_seconds() - start).encode())

        writer = Thread(target=write, daemon=True)
        writer.start()
        try:
            yield before
        finally:
            done.set()
            writer.join()

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
