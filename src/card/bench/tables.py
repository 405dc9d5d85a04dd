"""The paper's tables, each a pure function of reports, beside the paper's own figures.

Cells are means with population standard deviations over splits or seeds; a number in brackets
says how many there were, where there were fewer than the paper has. An asterisk (bold in
Markdown and LaTeX) marks the best of a row by its printed value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from card.bench.kinds import TOYS, UCI
from card.bench.render import Table
from card.bench.reports import Report
from card.bench.summary import (
    Cell,
    covered,
    group,
    label,
    of,
    paper,
    quoted,
    rescored,
    scale_of,
    summarise,
    winners,
)

PAPER_METHODS = ("PBP", "MC Dropout", "Deep Ensembles", "GCDS", "CARD")
NO_DATA = "data not available"
NOT_RUN = "—"
TOY_RUNS = 10
FROM_QUANTILES = (
    "card paper",
    "gcds",
    "quantile-forest",
    "lightgbm-quantile",
    "conformal-gbm",
    "treeffuser",
    "tabpfn",
    "tabicl",
)
"""Methods that predict draws or quantiles: their density is made from these."""


@dataclass(frozen=True)
class Metric:
    """How a metric is named, found and judged; `cost` is what should be small."""

    key: str
    title: str
    cost: Callable[[float], float] = float
    ours: str = ""
    digits: int = 2

    @property
    def field(self) -> str:
        return self.ours or self.key


def off_nominal(picp: float) -> float:
    return abs(picp - 95)


UCI_METRICS = (
    Metric("rmse", "RMSE (Kin8nm and Naval times 100)"),
    Metric("nll", "NLL by the paper's rule (a kernel as wide as the draws)", ours="nll_paper"),
    Metric("qice", "QICE, percent"),
    Metric("picp", "PICP of the 95 % interval, percent", cost=off_nominal),
)
EXACT_METRICS = (
    Metric("nll", "Exact NLL, raw units of y", digits=3),
    Metric("crps", "CRPS (Kin8nm and Naval times 100)", digits=4),
)


def uci(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """RMSE, NLL, QICE and PICP beside the paper's five methods; then exact NLL and CRPS beside f alone."""
    methods = group(reports, "method", "recipe")
    tables = [_uci_table(metric, methods, missing) for metric in UCI_METRICS]
    if reports:
        tables += [_exact_table(metric, methods) for metric in EXACT_METRICS]
        tables.append(_seconds_table(methods))
    return tables


def _uci_table(metric: Metric, methods: dict, missing: Collection[str]) -> Table:
    columns = [f"{name} (paper)" for name in PAPER_METHODS] + [label(*key) for key in methods]
    rows, best = [], set()
    for i, (dataset, (_, splits)) in enumerate(UCI.items()):
        theirs = [quoted(paper()["uci"][metric.key][dataset].get(name)) for name in PAPER_METHODS]
        ours = [_uci_cell(found, dataset, metric) for found in methods.values()]
        cells = [*theirs, *ours]
        absent = NO_DATA if dataset in missing else NOT_RUN
        rows.append((dataset, *(c.text(metric.digits, splits) if c else absent for c in cells)))
        best |= {(i, j + 1) for j in winners(cells, metric.cost, metric.digits)}
    counts = [str(sum(j == column + 1 for _, j in best)) for column in range(len(columns))]
    rows.append(("best cells", *counts))
    return Table(metric.title, ("data set", *columns), tuple(rows), frozenset(best))


def _uci_cell(reports: Sequence[Report], dataset: str, metric: Metric, block: str = "metrics") -> Cell | None:
    cell = summarise(of(reports, dataset), metric.field, block)
    return cell.scaled(scale_of(dataset, metric.field)) if cell else None


def _exact_table(metric: Metric, methods: dict) -> Table:
    """Our methods alone, each with a mean model beside its f."""
    columns, picks = [], []
    for key, found in methods.items():
        columns.append(label(*key))
        picks.append((found, "metrics"))
        if any("mean_model" in report for report in found):
            columns.append(f"f of {label(*key)}")
            picks.append((found, "mean_model"))
    rows, best = [], set()
    for i, dataset in enumerate(covered(methods, UCI)):
        cells = [_uci_cell(found, dataset, metric, block) for found, block in picks]
        rows.append((dataset, *(c.text(metric.digits, UCI[dataset][1]) if c else NOT_RUN for c in cells)))
        best |= {(i, j + 1) for j in winners(cells, metric.cost, metric.digits)}
    notes = density_notes(columns) if metric.key == "nll" else ()
    return Table(metric.title, ("data set", *columns), tuple(rows), frozenset(best), notes)


def density_notes(columns: Collection[str]) -> tuple[str, ...]:
    """A word on the methods shown whose density is not their own."""
    made = [name for name in FROM_QUANTILES if name in columns]
    return (f"Made from draws or quantiles, so not exact: {', '.join(made)}.",) if made else ()


def glance(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """The default recipe beside the paper's CARD, means only: one small table."""
    ours = [report for report in reports if (report["method"], report["recipe"]) == ("card", "modern")]
    names = [metric.key.upper() for metric in UCI_METRICS]
    rows, best = [], set()
    for i, dataset in enumerate(name for name in UCI if of(ours, name)):
        splits = len(of(ours, dataset))
        row = [dataset, str(splits) if splits == UCI[dataset][1] else f"{splits} of {UCI[dataset][1]}"]
        for metric in UCI_METRICS:
            pair = [_uci_cell(ours, dataset, metric), quoted(paper()["uci"][metric.key][dataset]["CARD"])]
            best |= {(i, len(row) + j) for j in winners(pair, metric.cost, metric.digits)}
            row += [f"{cell.mean:.{metric.digits}f}" if cell else NOT_RUN for cell in pair]
        rows.append(tuple(row))
    columns = ("data set", "splits", *(part for name in names for part in (name, "paper")))
    title = "The default recipe beside the paper's CARD"
    note = (
        "NLL by the paper's rule; QICE, and PICP of the 95 % interval, in percent; "
        "RMSE of Kin8nm and Naval times 100."
    )
    return [Table(title, columns, tuple(rows), frozenset(best), (note,))]


def _seconds_table(methods: dict) -> Table:
    """Mean seconds of a fit and of a prediction of the test rows, and hours for all that was run."""
    rows = []
    for dataset in covered(methods, UCI):
        rows.append((dataset, *(_seconds(of(found, dataset)) for found in methods.values())))
    totals = [sum(r["seconds_fit"] + r["seconds_predict"] for r in found) for found in methods.values()]
    rows.append(("hours in all", *(f"{total / 3600:.2f}" for total in totals)))
    columns = ("data set", *(label(*key) for key in methods))
    return Table("Seconds a split: fit + predict, one thread", columns, tuple(rows))


def _seconds(reports: Sequence[Report]) -> str:
    if not reports:
        return NOT_RUN
    fit, predict = (sum(r[f"seconds_{what}"] for r in reports) / len(reports) for what in ("fit", "predict"))
    return f"{fit:.1f} + {predict:.1f}"


def toy(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """RMSE, QICE and PICP of the eight toys beside the paper's."""
    methods = group(reports, "method", "recipe")
    columns, rows = ["toy"], []
    for metric in TOY_METRICS:
        columns += [f"{metric.title}, paper", *(f"{metric.title}, {label(*key)}" for key in methods)]
    for name, title in TOYS.items():
        row = [title]
        for metric in TOY_METRICS:
            theirs = quoted(paper()["toy"][title][metric.key])
            ours = [summarise(of(found, name), metric.key) for found in methods.values()]
            if theirs is None:  # no single true mean: RMSE says nothing
                ours = [None] * len(ours)
            row += [c.text(2, TOY_RUNS) if c else NOT_RUN for c in [theirs, *ours]]
        rows.append(tuple(row))
    note = f"The paper averages {TOY_RUNS} runs; a number in brackets says how many were run here."
    title = "Toy problems: RMSE, QICE (percent), PICP (percent)"
    return [Table(title, tuple(columns), tuple(rows), notes=(note,))]


TOY_METRICS = (Metric("rmse", "RMSE"), Metric("qice", "QICE"), Metric("picp", "PICP", cost=off_nominal))


def boston_ablation(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """Five chain lengths, two priors, on Boston; the paper's own setting is that of the main experiment.

    Once for the draws, and once for the state y_1 one step before them, where that was scored too.
    """
    mine = [report for report in of(reports, "boston") if report["recipe"] == "paper"]
    note = "The paper prints an NLL of 2.65 in the first row, and 2.35 for the same model in its main table."
    tables = [_ablation("Boston: chain length and prior", mine, (note,))]
    if any(Y_1 in report.get("rescored", {}) for report in mine):
        tables.append(_ablation("The same fits, the chain left at y_1, one step early", rescored(mine, Y_1)))
    return tables


def _ablation(title: str, reports: Sequence[Report], notes: tuple[str, ...] = ()) -> Table:
    variants = group(reports, "variant")
    if ("",) in variants:
        variants.setdefault((ablation_variant(1000, "f_phi"),), variants[("",)])
    columns = ["T", "beta", "prior"]
    for metric in UCI_METRICS:
        columns += [f"{metric.key.upper()} (paper)", metric.key.upper()]
    rows = []
    for entry in paper()["boston_prior_ablation"]:
        row = [str(entry["T"]), "{:g} to {:g}".format(*entry["beta"]), PRIORS[entry["prior"]]]
        found = variants.get((ablation_variant(entry["T"], entry["prior"]),), [])
        for metric in UCI_METRICS:
            cells = (quoted(entry[metric.key]), summarise(found, metric.field))
            row += [c.text(2, 20) if c else NOT_RUN for c in cells]
        rows.append(tuple(row))
    return Table(title, tuple(columns), tuple(rows), notes=notes)


Y_1 = "y_1"
"""How the ablation's experiment names the chain that is left one step before its end."""
PRIORS = {"f_phi": "N(f(x), I)", "zero": "N(0, I)"}


def ablation_variant(n_steps: int, prior: str) -> str:
    """The name of a variant of the ablation on Boston.

    >>> ablation_variant(500, "zero")
    'T=500 prior=zero'
    """
    return f"T={n_steps} prior={'f' if prior == 'f_phi' else 'zero'}"
