"""Work off a queue of units: skip what is reported, run the rest, report each as it finishes.

Workers (processes here, or machines of a Dask cluster) only compute; this process alone writes. If
it is killed, what was under way is lost and nothing else: the same command goes on from there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import joblib
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from card.bench import arrays, reports
from card.bench.errors import BenchError
from card.bench.execute import Outcome, execute, execute_all
from card.bench.kinds import KINDS
from card.bench.methods import find_method
from card.bench.spec import Experiment, Unit

CHECKPOINTS = "checkpoints"
"""Folder, beside the reports, of fits under way in this machine's own processes."""
BACKENDS = ("processes", "dask")


@dataclass
class Summary:
    """What a run did."""

    path: Path
    done_before: int = 0
    ran: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)


def run(
    experiment: Experiment,
    results: Path,
    *,
    jobs: int = 1,
    backend: str = "processes",
    address: str | None = None,
    together: int = 1,
    show: Callable[[str], None] = print,
) -> Summary:
    """Run the units of an experiment that its report file does not hold yet.

    Parameters
    ----------
    results : folder of the report files.
    jobs : worker processes, each of one thread (a Dask cluster has as many as it has).
    backend, address : "dask" and a scheduler's address carry the units to a cluster.
    together : fit up to so many units of one data set in one batched run.
    show : told what a person should know, a line at a time.
    """
    path = results / experiment.report_name
    damage = reports.repair(path)
    if damage:
        show(damage)
    todo = pending(experiment.units(), reports.read(path), path)
    summary = Summary(path, done_before=len(experiment.units()) - len(todo))
    tasks = batches(todo, together)
    with _progress(experiment.name, todo) as advance:
        for outcome in _outcomes(tasks, jobs, backend, address, results / CHECKPOINTS):
            _settle(outcome, summary, results)
            advance(outcome.unit)
    return summary


def pending(units: Iterable[Unit], done: Sequence[reports.Report], path: Path) -> list[Unit]:
    """The units without a report. One that was run with other settings is an error, not a match."""
    overrides = {reports.identity(r): r.get("config", {}).get("overrides", {}) for r in done}
    todo = []
    for unit in units:
        key = reports.identity(unit.identity())
        if key not in overrides:
            todo.append(unit)
        elif _thawed(dict(unit.overrides)) != overrides[key]:
            raise BenchError(
                f"{path} holds {unit} with other settings ({overrides[key] or 'none'}); "
                "choose another folder with --results, or delete that line"
            )
    return todo


def _thawed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thawed(item) for key, item in value.items()}
    return [_thawed(item) for item in value] if isinstance(value, tuple | list) else value


def batches(units: Sequence[Unit], together: int) -> list[tuple[Unit, ...]]:
    """Groups of at most `together` units that differ in nothing but split or seed."""
    groups: dict[Any, list[Unit]] = {}
    for unit in units:
        size = together if find_method(unit.method).fit_together else 1
        key = (unit.dataset, unit.method, unit.recipe, unit.variant, unit.overrides, size)
        groups.setdefault(key, []).append(unit)
    return [part for (*_, size), group in groups.items() for part in _chunks(group, size)]


def _chunks(group: Sequence[Unit], size: int) -> Iterator[tuple[Unit, ...]]:
    rest = iter(group)
    while part := tuple(islice(rest, max(1, size))):
        yield part


def _outcomes(
    tasks: Sequence[tuple[Unit, ...]], jobs: int, backend: str, address: str | None, checkpoints: Path
) -> Iterator[Outcome]:
    if backend == "processes" and (jobs == 1 or len(tasks) == 1):
        for task in tasks:
            yield from execute(task, checkpoints)
        return
    with _cluster(address) if backend == "dask" else joblib.parallel_config("loky", n_jobs=jobs):
        folder = None if backend == "dask" else checkpoints
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
        for outcomes in parallel(joblib.delayed(execute_all)(task, folder) for task in tasks):
            yield from outcomes


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """joblib on the Dask cluster at this address."""
    if not address:
        raise BenchError("--backend dask needs --address HOST:PORT, the address of a Dask scheduler")
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise BenchError(
            "--backend dask needs the package distributed: pip install 'card-diffusion[cluster]'"
        ) from None
    try:
        client = distributed.Client(address, timeout="20s", set_as_default=True)
    except (OSError, TimeoutError, ValueError) as error:
        raise BenchError(f"no Dask scheduler answers at {address}: {error}") from None
    with client, joblib.parallel_config("dask", wait_for_workers_timeout=60):
        yield


def _settle(outcome: Outcome, summary: Summary, results: Path) -> None:
    if outcome.report is not None:
        if outcome.arrays:
            arrays.save(arrays.array_path(results, outcome.report, summary.path.stem), outcome.arrays)
        reports.append(summary.path, [outcome.report])
        summary.ran += 1
    elif outcome.missing:
        summary.missing[outcome.missing] = summary.missing.get(outcome.missing, 0) + 1
    else:
        summary.failures.append(outcome)


@contextmanager
def _progress(name: str, todo: Sequence[Unit]) -> Iterator[Callable[[Unit], None]]:
    """A bar over the whole queue with the time left, units weighted by their rows; silent off a terminal."""
    if not sys.stderr.isatty() or not todo:
        yield lambda unit: None
        return
    columns = ("{task.description}", BarColumn(), "{task.fields[done]} of {task.fields[units]}, left:")
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))

    def weight(unit: Unit) -> int:
        return KINDS[unit.kind].rows(unit.dataset)

    with bar:
        task = bar.add_task(name, total=sum(map(weight, todo)), done=0, units=len(todo))

        def advance(unit: Unit) -> None:
            done = bar.tasks[0].fields["done"] + 1
            bar.update(task, advance=weight(unit), done=done, description=f"{name}: {unit}")

        yield advance


def left(experiment: Experiment, results: Path) -> list[Unit]:
    """The units of an experiment without a report, whatever the settings of those that have one."""
    done = {reports.identity(report) for report in reports.read(results / experiment.report_name)}
    return [unit for unit in experiment.units() if reports.identity(unit.identity()) not in done]
