"""The paper's cells, one by one: does the same method, run here, give the same figure?

A cell is *reproduced* where our mean lies within one standard deviation of the paper's; where the paper
prints a deviation of 0.00, or none, within half its last digit. Outside it is *better* or *not*. NLL is by
the paper's rule (`nll_paper`) for every method.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from card.bench.kinds import TOYS, UCI
from card.bench.render import Table
from card.bench.reports import Report
from card.bench.summary import Cell, group, of, paper, quoted, rescored, scale_of, summarise
from card.bench.tables import (
    NOT_RUN,
    PRIORS,
    TOY_METRICS,
    TOY_RUNS,
    UCI_METRICS,
    Y_1,
    Metric,
    ablation_variant,
)

METHODS = {
    "card": "CARD",
    "pbp": "PBP",
    "mc-dropout": "MC Dropout",
    "deep-ensembles": "Deep Ensembles",
    "gcds": "GCDS",
}
"""Names here -> the paper's."""
WHOLE = ("card: UCI", "card: toys", "card: Boston ablation, y_1")
WHOLE_TITLE = "card: all, the ablation at y_1"
HALF_A_DIGIT = 0.005
ROUNDING = 1e-9
REPRODUCED, BETTER, NOT = "reproduced", "better", "not"
RULE = (
    "Reproduced: our mean is within one standard deviation of the paper's; where that is printed as 0.00, or "
    "not at all, within 0.005. Better: outside, on the better side."
)


@dataclass(frozen=True)
class Comparison:
    """One cell of the paper beside ours; `full` is how many splits or runs the paper has."""

    part: str
    place: str
    metric: Metric
    ours: Cell
    theirs: Cell
    full: int

    @property
    def verdict(self) -> str:
        allowed = max(self.theirs.std or 0.0, HALF_A_DIGIT) + ROUNDING
        if abs(self.ours.mean - self.theirs.mean) <= allowed:
            return REPRODUCED
        return BETTER if self.metric.cost(self.ours.mean) < self.metric.cost(self.theirs.mean) else NOT

    def row(self) -> tuple[str, ...]:
        return self.place, self.metric.title, self.ours.text(2, self.full), self.theirs.text(), self.verdict


def reproduction(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """How many cells of each method are reproduced, then each of them."""
    found = comparisons(reports)
    parts = list(dict.fromkeys(one.part for one in found))
    cells = {part: [one for one in found if one.part == part] for part in parts}
    return [_shares(cells), *(_cells(part, ones) for part, ones in cells.items())]


def comparisons(reports: Sequence[Report]) -> list[Comparison]:
    """Every cell that the reports have something to say about, method by method."""
    found = []
    for method, title in METHODS.items():
        mine = [r for r in reports if r["method"] == method and r["recipe"] in ("paper", "default")]
        ours = [r for r in mine if not r.get("variant")]
        found += _of_uci(f"{method}: UCI", title, ours)
        if method == "card":
            found += [*_of_toys(ours), *_of_ablation("card: Boston ablation", mine)]
            found += _of_ablation("card: Boston ablation, y_1", rescored(mine, Y_1))
    return found


def _of_uci(part: str, title: str, reports: Sequence[Report]) -> list[Comparison]:
    found = []
    for dataset, (_, splits) in UCI.items():
        for metric in UCI_METRICS:
            ours = summarise(of(reports, dataset), metric.field)
            theirs = quoted(paper()["uci"][metric.key][dataset].get(title))
            if ours is not None and theirs is not None:
                ours = ours.scaled(scale_of(dataset, metric.field))
                found.append(Comparison(part, dataset, _short(metric), ours, theirs, splits))
    return found


def _of_toys(reports: Sequence[Report]) -> list[Comparison]:
    found = []
    for dataset, title in TOYS.items():
        for metric in TOY_METRICS:
            ours = summarise(of(reports, dataset), metric.field)
            theirs = quoted(paper()["toy"][title][metric.key])
            if ours is not None and theirs is not None:
                found.append(Comparison("card: toys", title, metric, ours, theirs, TOY_RUNS))
    return found


def _of_ablation(part: str, reports: Sequence[Report]) -> list[Comparison]:
    found, variants = [], group(reports, "variant")
    for entry in paper()["boston_prior_ablation"]:
        mine = variants.get((ablation_variant(entry["T"], entry["prior"]),), [])
        place = f"T = {entry['T']}, {PRIORS[entry['prior']]}"
        for metric in UCI_METRICS:
            ours = summarise(mine, metric.field)
            if ours is not None:
                theirs = Cell(*entry[metric.key])
                found.append(Comparison(part, place, _short(metric), ours, theirs, 20))
    return found


def _short(metric: Metric) -> Metric:
    return Metric(metric.key, metric.key.upper(), metric.cost, metric.ours)


def _shares(cells: Mapping[str, Sequence[Comparison]]) -> Table:
    rows = []
    whole = [one for part in WHOLE for one in cells.get(part, ())]
    mine = {part: ones for part, ones in cells.items() if part.startswith("card")}
    for part, ones in {**mine, **({WHOLE_TITLE: whole} if whole else {}), **cells}.items():
        verdicts = [one.verdict for one in ones]
        counts = [verdicts.count(verdict) for verdict in (REPRODUCED, BETTER, NOT)]
        shares = [100 * n / len(ones) for n in (counts[0], counts[0] + counts[1])]
        rows.append((part, str(len(ones)), *map(str, counts), *(f"{share:.0f} %" for share in shares)))
    columns = ("cells of", "run", REPRODUCED, BETTER, NOT, "share reproduced", "or better")
    notes = (RULE,) if rows else ("Nothing of it has been run yet.",)
    return Table("The paper's figures, made again here", columns, tuple(rows), notes=notes)


def _cells(part: str, ones: Sequence[Comparison]) -> Table:
    notes = ["A number in brackets says how many splits or seeds were run, where the paper has more."]
    if part.endswith("UCI"):
        notes.append("RMSE of kin8nm and naval times 100; NLL by the paper's rule; QICE and PICP in percent.")
    columns = ("data", "metric", "here", "paper", "verdict")
    return Table(part, columns, tuple(one.row() for one in ones), notes=tuple(notes))


def samplers(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """Fits scored by more than one sampler: the cells of each, and whether the verdict is the same."""
    scored = [r for r in reports if r.get("rescored") and r["method"] == "card" and r["recipe"] == "paper"]
    tables = [_samplers(dataset, of(scored, dataset)) for dataset in UCI if of(scored, dataset)]
    columns = ("metric", "the chain")
    return tables or [Table("Samplers: no fit has been scored by more than one", columns, ())]


def _samplers(dataset: str, reports: Sequence[Report]) -> Table:
    names = list(dict.fromkeys(name for report in reports for name in report["rescored"]))
    by_sampler = {"the chain": list(reports), **{name: rescored(reports, name) for name in names}}
    rows = []
    for metric in UCI_METRICS:
        theirs = quoted(paper()["uci"][metric.key][dataset]["CARD"])
        cells = [summarise(found, metric.field) for found in by_sampler.values()]
        cells = [cell.scaled(scale_of(dataset, metric.field)) if cell else None for cell in cells]
        rows.append((metric.key.upper(), *map(_text, cells), _text(theirs), _same(metric, cells, theirs)))
    seconds = [_mean_seconds(found) for found in by_sampler.values()]
    rows.append(("seconds a split", *(f"{value:.1f}" for value in seconds), "", ""))
    columns = ("metric", *by_sampler, "CARD (paper)", "verdicts")
    note = f"The same {len(reports)} fits, each scored by every sampler."
    return Table(f"{dataset}: what stands in for the chain", columns, tuple(rows), notes=(note,))


def _text(cell: Cell | None) -> str:
    return NOT_RUN if cell is None else cell.text(3 if cell.n else 2)


def _same(metric: Metric, cells: Sequence[Cell | None], theirs: Cell | None) -> str:
    if theirs is None:
        return ""
    known = [cell for cell in cells if cell is not None]
    verdicts = {Comparison("", "", metric, cell, theirs, 0).verdict for cell in known}
    return f"all {verdicts.pop()}" if len(verdicts) == 1 else "differ"


def _mean_seconds(reports: Sequence[Mapping[str, Any]]) -> float:
    return sum(report["seconds_predict"] for report in reports) / len(reports)
