"""Reports in groups, and a metric over a group: mean and population standard deviation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from card.bench.reports import Report

TIMES_100 = ("kin8nm", "naval")
"""Data sets whose RMSE, and what else is in units of y, is printed times 100, as in the paper."""


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation over n splits or seeds (n = 0: quoted from the paper)."""

    mean: float
    std: float | None = None
    n: int = 0

    def scaled(self, factor: float) -> Cell:
        return Cell(self.mean * factor, None if self.std is None else self.std * factor, self.n)

    def text(self, digits: int = 2, full: int | None = None) -> str:
        """Such as "2.61 ± 0.63"; with "(5)" behind where `full` splits were wanted and 5 are there.

        >>> Cell(2.614, 0.628, 5).text(full=20)
        '2.61 ± 0.63 (5)'
        """
        words = [f"{self.mean:.{digits}f}"]
        if self.std is not None and self.n != 1:
            words.append(f"± {self.std:.{digits}f}")
        if full is not None and 0 < self.n < full:
            words.append(f"({self.n})")
        return " ".join(words)


@cache
def paper() -> dict[str, Any]:
    """The paper's own figures."""
    text = resources.files("card.bench").joinpath("data/paper.json").read_text()
    return json.loads(text)


def quoted(pair: Any) -> Cell | None:
    """A cell of the paper: [mean, deviation], a bare number, or nothing."""
    if pair is None:
        return None
    mean, std = pair if isinstance(pair, list) else (pair, None)
    return Cell(mean, std)


def group(reports: Iterable[Report], *keys: str) -> dict[tuple[Any, ...], list[Report]]:
    """Reports by the values of some fields, in the order of their first appearance."""
    groups: dict[tuple[Any, ...], list[Report]] = {}
    for report in reports:
        groups.setdefault(tuple(report.get(key, "") for key in keys), []).append(report)
    return groups


def of(reports: Iterable[Report], dataset: str) -> list[Report]:
    """The reports of one data set."""
    return [report for report in reports if report["dataset"] == dataset]


def covered(methods: dict[tuple[Any, ...], list[Report]], datasets: Iterable[str]) -> list[str]:
    """Those of the data sets that some report is of."""
    named = {report["dataset"] for found in methods.values() for report in found}
    return [dataset for dataset in datasets if dataset in named]


def rescored(reports: Iterable[Report], name: str) -> list[Report]:
    """The reports as they would be with these settings of the prediction; no metrics where there are none."""
    return [{**report, **report.get("rescored", {}).get(name, {"metrics": {}})} for report in reports]


def summarise(reports: Sequence[Report], metric: str, block: str = "metrics") -> Cell | None:
    """A metric over reports; None if none of them has it, infinite if one of them is."""
    found = [report[block][metric] for report in reports if metric in report.get(block, {})]
    if not found:
        return None
    values = np.array([math.inf if value is None else value for value in found])
    if not np.isfinite(values).all():
        return Cell(math.inf, None, len(values))
    return Cell(float(values.mean()), float(values.std()), len(values))


def winners(cells: Sequence[Cell | None], cost: Callable[[float], float], digits: int = 2) -> set[int]:
    """Positions of the cells whose printed mean costs least; ties share."""
    costs = [None if cell is None else cost(round(cell.mean, digits)) for cell in cells]
    known = [value for value in costs if value is not None]
    if not known:
        return set()
    return {i for i, value in enumerate(costs) if value is not None and value <= min(known) + 1e-12}


def scale_of(dataset: str, metric: str) -> float:
    """The factor by which tables print a metric of a data set."""
    return 100.0 if dataset in TIMES_100 and metric in ("rmse", "crps", "piw") else 1.0


def label(method: str, recipe: str) -> str:
    """A column's name: the method, and its recipe where it has a choice.

    >>> label("card", "modern"), label("pbp", "default")
    ('card modern', 'pbp')
    """
    return method if recipe in ("", "default") else f"{method} {recipe}"
