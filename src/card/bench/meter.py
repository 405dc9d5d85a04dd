"""How far a queue of units is, and how long it will still take.

Units weigh as much as their data have rows. One that is being fitted counts for a part of its weight, as far
as the checkpoint of the fit tells; once it is reported it counts in full. How much of a unit is its fit, and
how much its prediction, is told by those that are done. On a terminal there is a bar; elsewhere, in a log, a
line now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress
from safetensors import SafetensorError, safe_open

from card.bench.execute import built
from card.bench.kinds import KINDS
from card.bench.reports import Report
from card.bench.shelf import digest
from card.bench.spec import Unit

FITTING = 0.5  # of a unit's weight, where none is done yet; the rest is prediction
BETWEEN_LINES = 60.0  # seconds


def weight(unit: Unit) -> int:
    return KINDS[unit.kind].rows(unit.dataset)


@dataclass
class Meter:
    """The units to run, in the tasks in which they are fitted, and those that are done."""

    name: str
    todo: Sequence[Unit]
    tasks: Sequence[tuple[Unit, ...]]
    checkpoints: Path
    fitting: float = FITTING
    clock: Callable[[], float] = time.monotonic
    done: set[Unit] = field(default_factory=set)
    seen: dict[tuple[Unit, ...], float] = field(default_factory=dict)  # how far each task has ever been

    def __post_init__(self) -> None:
        self.started, self.first = self.clock(), self.share()

    def share(self) -> float:
        """Of the work that is done."""
        total = sum(map(weight, self.todo))
        done = sum(map(weight, self.done))
        return (done + sum(map(self._under_way, self.tasks))) / total if total else 1.0

    def _under_way(self, task: tuple[Unit, ...]) -> float:
        wanted = [unit for unit in task if unit in self.todo]
        left = [unit for unit in wanted if unit not in self.done]
        now = 1.0 if len(left) < len(wanted) else fitted_share(left, self.checkpoints)
        fitted = self.seen[task] = max(now, self.seen.get(task, 0.0))  # checkpoints go when the fit is done
        return self.fitting * fitted * sum(map(weight, left))

    def seconds_left(self) -> float | None:
        """At the pace so far; None before there is any."""
        share = self.share()
        if share <= self.first:
            return None
        return (self.clock() - self.started) * (1 - share) / (share - self.first)

    def line(self) -> str:
        left = self.seconds_left()
        words = f"{self.name}: {len(self.done)} of {len(self.todo)} done, {100 * self.share():.0f} %"
        return words if left is None else f"{words}, {duration(left)} left"


def share_of_fits(done: Sequence[Report]) -> float:
    """Of the seconds that units took, those of their fits; the rest are of predicting and scoring again."""
    fits = sum(report.get("seconds_fit", 0.0) for report in done)
    parts = [part for report in done for part in (report, *report.get("rescored", {}).values())]
    all_seconds = fits + sum(part.get("seconds_predict", 0.0) for part in parts)
    return fits / all_seconds if all_seconds else FITTING


def fitted_share(task: Sequence[Unit], checkpoints: Path) -> float:
    """How far the fit of a task is, by its last checkpoints; denoisers may learn one after the other."""
    files = (checkpoints / digest(task)).glob("*denoiser*.safetensors")
    epoch = max(map(_epoch, files), default=0)
    epochs = built(task[0]).get_params().get("epochs") if epoch else None
    return min(1.0, epoch / epochs) if epochs else 0.0


def _epoch(path: Path) -> int:
    """That a checkpoint has come to; 0 where it cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(file.get_tensor("epoch"))
    except (OSError, SafetensorError):
        return 0


def duration(seconds: float) -> str:
    """For a person.

    >>> duration(42), duration(600), duration(8000)
    ('42 s', '10 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def shown(meter: Meter, show: Callable[[str], None]) -> Iterator[Callable[[Unit], None]]:
    """What to call with each unit that is done; meanwhile a bar moves, or lines are told."""
    if not meter.todo:
        yield meter.done.add
        return
    with _bar(meter) if sys.stderr.isatty() else _lines(meter, show):
        yield meter.done.add


@contextmanager
def _bar(meter: Meter) -> Iterator[None]:
    columns = (BarColumn(), "{task.description}")
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(meter.line(), total=1.0)
        update = lambda: bar.update(task, completed=meter.share(), description=meter.line())  # noqa: E731
        with _every(2.0, update):
            yield
        update()


@contextmanager
def _lines(meter: Meter, show: Callable[[str], None]) -> Iterator[None]:
    with _every(BETWEEN_LINES, lambda: show(meter.line())):
        yield


@contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Act in a thread of its own, again and again, until left."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
