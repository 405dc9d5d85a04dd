"""Fits beside the reports: under way, or done and not yet scored, so that a killed run loses little.

In the folder of checkpoints are, for the units of a task (several where they are fitted together):

    <task>/             the estimator's own checkpoint of the fit under way
    <task>.clock        how long it has taken in processes that are no more
    <unit>.card, .json  a fitted model, and how it was fitted, until its report is written

A name is a digest of the units and of the library's version: what is found under it fits no others.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from card import persist
from card.bench import environment
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


@dataclass(frozen=True)
class Clock:
    """Seconds of a fit over all the processes that had a part in it, up to their last checkpoints."""

    folder: Path
    """Of the fit's own checkpoints."""

    @property
    def path(self) -> Path:
        return self.folder.with_suffix(".clock")

    def start(self) -> float:
        """Seconds spent before; from now on this process counts."""
        spent = 0.0
        if self.path.exists():
            spent, started = json.loads(self.path.read_text())
            last = max((file.stat().st_mtime for file in self.folder.glob("*")), default=started)
            spent += max(0.0, last - started)
        write_atomically(self.path, json.dumps([spent, time.time()]).encode())
        return spent

    def stop(self) -> None:
        self.path.unlink(missing_ok=True)
