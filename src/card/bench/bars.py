"""Cells against the paper: is the default recipe at least as good?

A calibration figure of a finite test set has a floor that no forecaster gets below, so QICE
counts as met at 1.15 times the floor of a perfect forecaster, and PICP within two standard errors
of one (splits overlap, which the errors account for).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from card.bench.kinds import UCI
from card.bench.render import Table
from card.bench.reports import Report
from card.bench.summary import Cell, group, label, of, paper, scale_of, summarise
from card.bench.tables import PAPER_METHODS, UCI_METRICS, Metric

N_BINS = 10
SLACK = 1.15
N_TEST = {
    "boston": 51,
    "concrete": 103,
    "energy": 77,
    "kin8nm": 819,
    "naval": 1193,
    "power": 957,
    "protein": 4573,
    "wine": 160,
    "yacht": 31,
}
PICP_TWO_ERRORS = {
    "boston": 2.3,
    "concrete": 1.6,
    "energy": 1.9,
    "kin8nm": 0.56,
    "naval": 0.47,
    "power": 0.50,
    "protein": 0.38,
    "wine": 1.4,
    "yacht": 3.0,
}
EXACT_NLL = {
    "boston": 2.32,
    "concrete": 2.72,
    "energy": 0.25,
    "kin8nm": -1.42,
    "naval": -7.7,
    "power": 2.52,
    "protein": 2.20,
    "yacht": 0.00,
}
RMSE = {
    "boston": 2.55,
    "concrete": 4.25,
    "energy": 0.40,
    "kin8nm": 6.15,
    "naval": 0.013,
    "power": 3.15,
    "protein": 3.50,
    "wine": 0.58,
    "yacht": 0.52,
}
CELLS_AS_GOOD, CELLS_BETTER = 34, 30
HOURS = 6.0


def qice_floor(n: int, n_bins: int = N_BINS) -> float:
    """Expected QICE, percent, of a perfect forecaster on n rows: E|k/n - 1/M| for k ~ Binomial(n, 1/M).

    >>> [round(qice_floor(n), 2) for n in (31, 51, 103, 819)]
    [4.25, 3.33, 2.37, 0.84]
    """
    k = np.arange(n + 1)
    return float(100 * np.abs(k / n - 1 / n_bins) @ binom.pmf(k, n, 1 / n_bins))


@dataclass(frozen=True)
class Verdict:
    """One cell: ours, the paper's CARD, the best of its five methods, and what counts as met anyway."""

    dataset: str
    metric: Metric
    ours: Cell
    card: Cell
    best: Cell
    allowance: float | None

    @property
    def met(self) -> bool:
        return self.allowance is not None and self.metric.cost(self.ours.mean) <= self.allowance

    @property
    def as_good(self) -> bool:
        return self.met or self.metric.cost(self.ours.mean) <= self.metric.cost(self.card.mean)

    @property
    def better(self) -> bool:
        return self.met or self.metric.cost(self.ours.mean) < self.metric.cost(self.best.mean)


def verdicts(reports: Sequence[Report]) -> list[Verdict]:
    """One for each data set and metric that the reports of one method cover."""
    found = []
    for dataset in N_TEST:
        mine = of(reports, dataset)
        for metric in UCI_METRICS:
            cell = summarise(mine, metric.field)
            if cell is not None:
                found.append(_verdict(dataset, metric, cell.scaled(scale_of(dataset, metric.field))))
    return found


def _verdict(dataset: str, metric: Metric, ours: Cell) -> Verdict:
    row = paper()["uci"][metric.key][dataset]
    cells = [Cell(*row[name]) for name in PAPER_METHODS]
    best = min(cells, key=lambda cell: metric.cost(cell.mean))
    allowances = {"qice": SLACK * qice_floor(N_TEST[dataset]), "picp": PICP_TWO_ERRORS[dataset]}
    return Verdict(dataset, metric, ours, cells[-1], best, allowances.get(metric.key))


def bars(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """What the default recipe set out to reach, and whether it has; other recipes if asked for."""
    tables = []
    for key, found in group(reports, "method", "recipe").items():
        name = label(*key)
        tables += [_cells_table(name, verdicts(found)), _limits_table(name, found), _gain_table(name, found)]
    return tables


def _yes(met: bool) -> str:
    return "yes" if met else "no"


def _cells_table(name: str, cells: Sequence[Verdict]) -> Table:
    rows = [
        (
            verdict.dataset,
            verdict.metric.key,
            verdict.ours.text(3, UCI[verdict.dataset][1]),
            verdict.card.text(),
            verdict.best.text(),
            "" if verdict.allowance is None else f"{verdict.allowance:.2f}",
            _yes(verdict.as_good),
            _yes(verdict.better),
        )
        for verdict in cells
    ]
    as_good, better = sum(v.as_good for v in cells), sum(v.better for v in cells)
    notes = (
        f"At least as good as the paper's CARD: {as_good} of {len(cells)} (wanted: {CELLS_AS_GOOD} of 36).",
        f"Better than the best of its five: {better} of {len(cells)} (wanted: {CELLS_BETTER} of 36).",
        "Met anyway: QICE at 1.15 times a perfect forecaster's, PICP within two standard errors of 95.",
    )
    columns = ("data set", "metric", name, "CARD (paper)", "best of five", "met anyway", "as good", "better")
    return Table(f"{name} against the paper, cell by cell", columns, tuple(rows), notes=notes)


def _limits_table(name: str, reports: Sequence[Report]) -> Table:
    rows = []
    for title, metric, limits in (("exact NLL", "nll", EXACT_NLL), ("RMSE", "rmse", RMSE)):
        for dataset, limit in limits.items():
            cell = summarise(of(reports, dataset), metric)
            if cell is not None:
                cell = cell.scaled(scale_of(dataset, metric))
                text = cell.text(4, UCI[dataset][1])
                rows.append((title, dataset, text, f"{limit:g}", _yes(cell.mean <= limit)))
    hours = sum(r["seconds_fit"] + r["seconds_predict"] for r in reports) / 3600
    rows.append(("hours in all", "", f"{hours:.2f}", f"{HOURS:g}", _yes(hours <= HOURS)))
    note = "RMSE of Kin8nm and Naval times 100, their NLL in raw units."
    columns = ("figure", "data set", name, "at most", "met")
    return Table(f"{name} against fixed limits", columns, tuple(rows), notes=(note,))


def _gain_table(name: str, reports: Sequence[Report]) -> Table:
    """What the diffusion adds to f: CRPS not above f's, RMSE not more than half a percent above f's."""
    rows = []
    for dataset in N_TEST:
        mine = of(reports, dataset)
        values = [summarise(mine, m, block) for m in ("crps", "rmse") for block in ("metrics", "mean_model")]
        if any(value is None for value in values):
            continue
        crps, f_crps, rmse, f_rmse = (value.mean for value in values if value is not None)
        met = crps <= f_crps and rmse <= 1.005 * f_rmse
        gains = [f"{100 * (ours / f - 1):+.1f} %" for ours, f in ((crps, f_crps), (rmse, f_rmse))]
        rows.append((dataset, *gains, _yes(met)))
    return Table(f"{name} against f alone", ("data set", "CRPS", "RMSE", "met"), tuple(rows))
