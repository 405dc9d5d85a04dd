"""How far a queue of units is, and how long it will still take.

A unit weighs as much as those like it took; where nothing is done yet, as much as its data have rows. One
that is being fitted counts for a part of its fit, as far as the checkpoint tells. One that is reported counts
in full, whichever process reported it. On a terminal there is a bar; elsewhere a line now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress
from safetensors import SafetensorError, safe_open

from card.bench.execute import built
from card.bench.kinds import KINDS
from card.bench.ledger import Ledger
from card.bench.reports import Report
from card.bench.shelf import digest
from card.bench.spec import Unit
from card.bench.summary import group

BETWEEN_MOVES, BETWEEN_LINES = 3.0, 60.0  # seconds
LIKENESS = (
    ("method", "recipe", "dataset", "variant"),
    ("method", "recipe", "dataset"),
    ("method", "recipe"),
    (),
)
"""What a unit may have in common with those done, the most alike first."""


class Cost(NamedTuple):
    """Seconds of a fit, and of predicting and scoring after it."""

    fit: float
    rest: float


A_ROW = Cost(0.5, 0.5)  # where nothing is done yet, and only shares matter


def costs(units: Collection[Unit], done: Sequence[Report]) -> dict[Unit, Cost]:
    """What each unit will take, at the rate of those most like it among the done."""
    timed = [one for one in done if "seconds_fit" in one and one.get("config", {}).get("rows")]
    rates = {
        (keys, values): _a_row(alike) for keys in LIKENESS for values, alike in group(timed, *keys).items()
    }
    found = {}
    for unit in units:
        names = ((keys, tuple(getattr(unit, key) for key in keys)) for keys in LIKENESS)
        fit, rest = next((rates[name] for name in names if name in rates), A_ROW)
        rows = KINDS[unit.kind].rows(unit.dataset)
        found[unit] = Cost(rows * fit, rows * rest)
    return found


def _a_row(reports: Sequence[Report]) -> Cost:
    rows = sum(sum(report["config"]["rows"]) for report in reports)
    fit = sum(report["seconds_fit"] for report in reports)
    scored = [part for report in reports for part in (report, *report.get("rescored", {}).values())]
    return Cost(fit / rows, sum(part.get("seconds_predict", 0.0) for part in scored) / rows)


@dataclass
class Meter:
    """The units to run, the tasks in which they are fitted, and their costs."""

    name: str
    todo: Sequence[Unit]
    tasks: Sequence[tuple[Unit, ...]]
    ledger: Ledger
    costs: Mapping[Unit, Cost]
    clock: Callable[[], float] = time.monotonic
    over: set[Unit] = field(default_factory=set)
    """Those that this process has no more to do with, the failed ones too."""
    seen: dict[tuple[Unit, ...], float] = field(
        default_factory=dict, init=False
    )  # how far each task ever was
    first: float = field(default=1.0, init=False)  # the share at the start, known after the first look

    def __post_init__(self) -> None:
        self.started, (self.first, _) = self.clock(), self.look()

    def look(self) -> tuple[float, str]:
        """The share of the work that is done; and a line about it, with the time left at the pace so far."""
        done = self.over | set(self.todo).difference(self.ledger.left(self.todo))  # whoever reported it
        share = self._share(done)
        words = f"{self.name}: {len(done)} of {len(self.todo)} done, {100 * share:.0f} %"
        if share <= self.first:
            return share, words
        left = (self.clock() - self.started) * (1 - share) / (share - self.first)
        return share, f"{words}, {duration(left)} left"

    def _share(self, done: Collection[Unit]) -> float:
        total = sum(sum(self.costs[unit]) for unit in self.todo)
        spent = sum(sum(self.costs[unit]) for unit in done)
        spent += sum(self._under_way(task, done) for task in self.tasks)
        return spent / total if total else 1.0

    def _under_way(self, task: tuple[Unit, ...], done: Collection[Unit]) -> float:
        wanted = [unit for unit in task if unit in self.costs]
        left = [unit for unit in wanted if unit not in done]
        now = 1.0 if len(left) < len(wanted) else fitted_share(left, self.ledger.checkpoints)
        fitted = self.seen[task] = max(now, self.seen.get(task, 0.0))  # checkpoints go when the fit is done
        return fitted * sum(self.costs[unit].fit for unit in left)


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
        yield meter.over.add
        return
    with _bar(meter) if sys.stderr.isatty() else _lines(meter, show):
        yield meter.over.add


@contextmanager
def _bar(meter: Meter) -> Iterator[None]:
    with Progress(BarColumn(), "{task.description}", console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0)

        def update() -> None:
            share, line = meter.look()
            bar.update(task, completed=share, description=line)

        update()
        with _every(BETWEEN_MOVES, update):
            yield
        update()


@contextmanager
def _lines(meter: Meter, show: Callable[[str], None]) -> Iterator[None]:
    with _every(BETWEEN_LINES, lambda: show(meter.look()[1])):
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
