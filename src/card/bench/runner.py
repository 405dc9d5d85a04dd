"""Work off a queue of units: skip what is reported, run the rest, report each as it finishes.

Workers on this machine write the reports of what they have finished themselves; those of a cluster send them
back. If all are killed, what was under way is lost and nothing else: the same command goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import joblib

from card.bench import reports
from card.bench.cluster import CLUSTERS, n_workers, run_away
from card.bench.errors import BenchError
from card.bench.execute import Outcome, execute
from card.bench.kinds import KINDS
from card.bench.ledger import Ledger
from card.bench.meter import Meter, costs, shown
from card.bench.methods import find_method
from card.bench.spec import Experiment, Unit

HERE = "processes"
BACKENDS = (HERE, *CLUSTERS)


@dataclass
class Summary:
    """What a run did."""

    path: Path
    done_before: int = 0
    ran: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)
    elsewhere: int = 0
    """Units that another process finished meanwhile."""

    def add(self, outcome: Outcome) -> None:
        if outcome.report is not None:
            self.ran += 1
        elif outcome.missing:
            self.missing[outcome.missing] = self.missing.get(outcome.missing, 0) + 1
        else:
            self.failures.append(outcome)


def run(
    experiment: Experiment,
    results: Path,
    *,
    jobs: int = 1,
    backend: str = HERE,
    address: str | None = None,
    together: int | None = None,
    show: Callable[[str], None] = print,
) -> Summary:
    """Run the units of an experiment that its report file does not hold yet.

    Parameters
    ----------
    results : folder of the report files.
    jobs : worker processes, each of one thread (a cluster has as many as it has).
    backend, address : "dask" or "ray" and a scheduler's address carry the units to a cluster.
    together : fit up to so many units of equal settings in one batched run; None leaves it to the method.
    show : told what a person should know, a line at a time.
    """
    ledger, units = Ledger(results, experiment.report_name), experiment.units()
    damage = reports.repair(ledger.path)
    if damage:
        show(damage)
    done = reports.read(ledger.path)
    todo = pending(units, done, ledger.path)
    summary = Summary(ledger.path, done_before=len(units) - len(todo))
    if backend != HERE:
        jobs = n_workers(backend, address)
    tasks = [task for task in batches(units, together, jobs) if not set(todo).isdisjoint(task)]
    with shown(Meter(experiment.name, todo, tasks, ledger, costs(todo, done)), show) as over:
        for outcome in _outcomes(tasks, ledger, jobs, backend, address):
            summary.add(outcome)
            over(outcome.unit)
    summary.elsewhere = len(todo) - summary.ran - len(summary.failures) - sum(summary.missing.values())
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


def batches(units: Sequence[Unit], together: int | None = None, jobs: int = 1) -> list[tuple[Unit, ...]]:
    """Tasks: units of equal settings and data of one shape, or variants on the same data, fitted in one run.

    They are made of all units of an experiment, done or not, so that a resumed run finds the fits that were
    under way; and such a group is divided among the workers.
    """
    groups: dict[Any, list[Unit]] = {}
    for unit in units:
        joins, method = KINDS[unit.kind].joins, find_method(unit.method)
        size = method.at_once(unit.recipe, together, joins == "variants")
        alike: tuple[Any, ...] = (unit.variant, unit.overrides)
        if joins == "variants":
            alike = (unit.index, tuple(item for item in unit.overrides if item[0] not in method.variants))
        dataset = "" if joins == "data sets" else unit.dataset
        groups.setdefault((dataset, unit.method, unit.recipe, alike, size), []).append(unit)
    return [part for (*_, size), group in groups.items() for part in _chunks(group, size, jobs)]


def _chunks(group: Sequence[Unit], size: int, jobs: int) -> Iterator[tuple[Unit, ...]]:
    rest = iter(group)
    size = min(size, -(-len(group) // jobs))
    while part := tuple(islice(rest, size)):
        yield part


def _outcomes(
    tasks: Sequence[tuple[Unit, ...]], ledger: Ledger, jobs: int, backend: str, address: str | None
) -> Iterator[Outcome]:
    if backend != HERE:
        for outcome in run_away(backend, address, [ledger.left(task) for task in tasks]):
            ledger.record(outcome)
            yield outcome
    elif jobs == 1 or len(tasks) == 1:
        yield from _one_by_one(tasks, ledger)
    else:
        with joblib.parallel_config("loky", n_jobs=jobs):
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
            for outcomes in parallel(joblib.delayed(_in_a_worker)(task, ledger) for task in tasks):
                yield from outcomes


def _one_by_one(tasks: Sequence[tuple[Unit, ...]], ledger: Ledger) -> Iterator[Outcome]:
    """First what no other process is at; then what the others have left, once they are done with it."""
    taken, absent = [], set[str]()
    for task in tasks:
        with ledger.claim(task, wait=False) as ours:
            if not ours:
                taken.append(task)
            elif absent.isdisjoint(unit.dataset for unit in task):
                for outcome in _recorded(task, ledger):
                    absent |= {outcome.missing} - {""}
                    yield outcome
            else:  # data that could not be had a moment ago are not asked for again
                yield from (Outcome(unit, missing=unit.dataset) for unit in ledger.left(task))
    for task in taken:
        with ledger.claim(task):
            yield from _recorded(task, ledger)


def _recorded(task: Sequence[Unit], ledger: Ledger) -> Iterator[Outcome]:
    """Run what is still left of a task, each unit reported as it finishes."""
    left = ledger.left(task)
    if not left:
        return
    for outcome in execute(left, ledger.checkpoints):
        ledger.record(outcome)
        yield outcome


def _in_a_worker(task: Sequence[Unit], ledger: Ledger) -> list[Outcome]:
    """In another process on this machine."""
    with ledger.claim(task):
        return [replace(outcome, arrays={}) for outcome in _recorded(task, ledger)]


def left(experiment: Experiment, results: Path) -> list[Unit]:
    """The units of an experiment without a report, whatever the settings of those that have one."""
    return list(Ledger(results, experiment.report_name).left(experiment.units()))
