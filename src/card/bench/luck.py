"""What the law of a toy scores on the very rows that forecasters of it were scored on.

A sample of 2048 rows is not its law: the truth itself covers 94 to 96 % of them. Toys whose responses are a
function plus noise draw this noise from the same numbers, so that a seed is kind or unkind to five at once.
The rows of the paper's ten runs are known, and so is what the law scores on all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

import numpy as np

from card import metrics
from card.bench.kinds import TOYS, toy_of
from card.bench.render import Table
from card.bench.reports import Report
from card.bench.score import DECILES, OUTER
from card.bench.summary import Cell, group, label, of, paper, quoted, summarise
from card.bench.tables import NOT_RUN

PAPERS_RUNS = range(10)
"""Seeds of the authors' runs, under the recipe of the paper."""


@cache
def scores_of_the_law(dataset: str, seed: int, recipe: str) -> dict[str, float]:
    """QICE and PICP of the true quantiles of a toy's test rows."""
    toy = toy_of(dataset, seed, recipe)
    rows = toy.split()
    lower, upper, *deciles = toy.law.quantile(rows.X_test, [*OUTER, *DECILES]).T
    return {
        "qice": metrics.qice(rows.y_test, np.stack(deciles, axis=1)),
        "picp": metrics.picp(rows.y_test, lower, upper),
    }


def toy_law(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """QICE and PICP of a method beside those of the law, on the same rows; and so the paper's CARD."""
    return [_table(label(*key), found) for key, found in group(reports, "method", "recipe").items()]


def _table(name: str, reports: Sequence[Report]) -> Table:
    authors = all(report["recipe"] == "paper" for report in reports)
    rows = []
    for dataset, title in TOYS.items():
        mine = of(reports, dataset)
        if mine:
            cells = [cell for metric in ("qice", "picp") for cell in _cells(mine, title, metric, authors)]
            rows.append((title, str(len(mine)), *(cell.text() if cell else NOT_RUN for cell in cells)))
    sources = (name, "the law", "CARD (paper)", *(["the law, the paper's ten runs"] if authors else []))
    columns = ("toy", "seeds", *(f"{metric}, {who}" for metric in ("QICE", "PICP") for who in sources))
    return Table(f"{name} beside the law itself, on the same test rows", columns, tuple(rows))


def _cells(reports: Sequence[Report], title: str, metric: str, authors: bool) -> list[Cell | None]:
    """Of the reports, of the law on their rows, of the paper, and of the law on the rows of the paper."""
    runs = [[(r["dataset"], r["seed"], r["recipe"]) for r in reports]]
    if authors:
        runs.append([(reports[0]["dataset"], seed, "paper") for seed in PAPERS_RUNS])
    law = [_spread([scores_of_the_law(*run)[metric] for run in some]) for some in runs]
    return [summarise(reports, metric), law[0], quoted(paper()["toy"][title][metric]), *law[1:]]


def _spread(values: Sequence[float]) -> Cell:
    return Cell(float(np.mean(values)), float(np.std(values)), len(values))
