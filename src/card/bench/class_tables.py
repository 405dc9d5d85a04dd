"""The paper's classification tables: accuracy and NLL, PIW and t-test by class, priors, sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from card.bench.kinds import IMAGES, KINDS
from card.bench.render import Table
from card.bench.reports import Report
from card.bench.summary import Cell, group, label, of, paper, quoted, summarise
from card.bench.tables import NO_DATA, NOT_RUN

COLUMNS = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "pavpu": "PAvPU",
    "ece": "ECE",
    "piw_correct": "PIW correct",
    "piw_incorrect": "PIW incorrect",
    "narrowest_piw_accuracy": "narrowest PIW",
    "rejected_accuracy": "rejected",
    "not_rejected_accuracy": "not rejected",
    "not_rejected_count": "count",
    "aurc": "AURC",
}
F_ALONE = {"accuracy": "f_accuracy", "nll": "f_nll", "ece": "f_ece", "aurc": "f_aurc"}
TIMES_100 = ("piw_correct", "piw_incorrect")
DIGITS = {"aurc": 4, "not_rejected_count": 0}
RUNS = 10
V1 = ("", "V1")
PAPER_NAMES = {
    "card": ("f", "CARD"),
    "map": ("MAP",),
    "mc-dropout": ("MC Dropout", "MC - Bernoulli"),
    "gaussian-dropout": ("MC - Gaussian",),
    "concrete-dropout": ("Concrete",),
    "bayes-by-backprop": ("Bayes by Backprop", "MF-VI"),
    "contextual-gating": ("Contextual Gating",),
    "contextual-gating-dropout": ("Contextual Gating + Dropout",),
    "contextual-dropout": ("Bernoulli Contextual",),
    "contextual-dropout-gaussian": ("Gaussian Contextual",),
}
"""Method -> its names in the paper's tables."""
NOTES = (
    "Accuracies, PAvPU and ECE in percent; PIW times 100. Rows with (paper) are quoted from it.",
    f"The paper averages {RUNS} runs; a number in brackets says how many were run here.",
)
MORE_NOTES = {
    "noisy_mnist": (
        "NLL quoted for methods but CARD is from a paper whose code takes the softmax of probabilities.",
    ),
}


def classification(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """One table per data set: what was run here, each method with the paper's row; then its other rows."""
    return [_dataset_table(name, of(reports, name), name in missing) for name in IMAGES]


def images(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """The default recipe beside its f and the paper's CARD, means only: one small table."""
    ours = [r for r in reports if (r["method"], r["recipe"]) == ("card", "modern") and r.get("variant") in V1]
    rows = []
    for dataset in (name for name in IMAGES if of(ours, name)):
        found, entries = of(ours, dataset), paper()["classification"][dataset]
        theirs = entries[0] if isinstance(entries, list) else entries
        row = [dataset, str(len(found))]
        for metric in ("accuracy", "nll"):
            cells = [_cell(found, metric), _cell(found, f"f_{metric}"), quoted(theirs.get(metric))]
            row += [NOT_RUN if cell is None else f"{cell.mean:.2f}" for cell in cells]
        widths = ("piw_incorrect", "piw_correct")
        for wrong, right in ([_cell(found, w) for w in widths], [quoted(theirs.get(w)) for w in widths]):
            row.append(f"{wrong.mean / right.mean:.1f}" if wrong and right else NOT_RUN)
        rows.append(tuple(row))
    columns = ("data set", "seeds", "accuracy", "f alone", "paper", "NLL", "f alone", "paper", "PIW", "paper")
    note = "Accuracy in percent; PIW: how many times wider intervals are where the vote is wrong."
    return [Table("The default recipe beside f and the paper's CARD", columns, tuple(rows), notes=(note,))]


def _dataset_table(dataset: str, reports: Sequence[Report], missing: bool) -> Table:
    ours = [report for report in reports if report.get("variant", "") in V1]
    rows = [] if ours else [("card", NO_DATA if missing else NOT_RUN, *[""] * (len(COLUMNS) - 1))]
    quoted_rows = _paper_rows(dataset)
    for key, found in sorted(group(ours, "method", "recipe").items(), key=_place):
        if _cell(found, "f_accuracy"):
            rows.append(_row(f"f of {label(*key)}", found, F_ALONE))
        rows.append(_row(label(*key), found, {key: key for key in COLUMNS}))
        same = [name for name in quoted_rows if name in PAPER_NAMES.get(key[0], ())]
        rows += [row for name in same for row in quoted_rows.pop(name)]
    rows += [row for left in quoted_rows.values() for row in left]
    notes = NOTES + MORE_NOTES.get(dataset, ())
    return Table(f"{dataset}: classification", ("method", *COLUMNS.values()), tuple(rows), notes=notes)


def _place(item: tuple[tuple[Any, ...], list[Report]]) -> int:
    """Methods in the order of the paper, others behind them."""
    (method, _), _ = item
    return list(PAPER_NAMES).index(method) if method in PAPER_NAMES else len(PAPER_NAMES)


def _row(name: str, reports: Sequence[Report], fields: dict[str, str]) -> tuple[str, ...]:
    cells = []
    for column in COLUMNS:
        cell = _cell(reports, fields[column]) if column in fields else None
        if cell is None:
            cells.append(NOT_RUN)
            continue
        cell = cell.scaled(100.0) if column in TIMES_100 else cell
        cells.append(cell.text(DIGITS.get(column, 2), RUNS))
    return (name, *cells)


def _cell(reports: Sequence[Report], metric: str) -> Cell | None:
    """Over the reports that have the metric: null says that there was nothing to take it of."""
    return summarise([r for r in reports if r["metrics"].get(metric) is not None], metric)


def _paper_rows(dataset: str) -> dict[str, list[tuple[str, ...]]]:
    """f alone, CARD, and the methods that the paper sets beside it, by their names there."""
    entries = paper()["classification"][dataset]
    rows: dict[str, list[tuple[str, ...]]] = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        f_alone = {"accuracy": entry["f_phi_accuracy"]}
        for name, cells in {"f": f_alone, "CARD": entry, **_others(entry)}.items():
            rows.setdefault(name, []).append(_quoted_row(f"{name} (paper)", cells))
    return rows


def _others(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    others = entry.get("others", {})
    if not others.keys() <= COLUMNS.keys():
        return others
    names = {name: None for by_name in others.values() for name in by_name}  # {"accuracy": {"MAP": ...}}
    return {name: {metric: others[metric].get(name) for metric in others} for name in names}


def _quoted_row(name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    def text(column: str) -> str:
        cell: Cell | None = quoted(entry.get(column))
        return NOT_RUN if cell is None else cell.text(DIGITS.get(column, 2))

    return (name, *map(text, COLUMNS))


def by_class(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """Accuracy, PIW and t-test by class, of the first seed run here, beside the paper's run."""
    tables = []
    for dataset in IMAGES:
        entry = paper()["classification"][dataset]
        theirs = entry.get("by_class") if isinstance(entry, dict) else None
        ours = [r for r in of(reports, dataset) if r.get("by_class") and r.get("variant", "") in V1]
        if theirs or ours:
            ours.sort(key=lambda report: report["method"] != "card")
            tables.append(_by_class(dataset, ours[0] if ours else None, theirs, dataset in missing))
    return tables


CLASS_COLUMNS = (
    "accuracy",
    "piw_correct",
    "piw_incorrect",
    "rejected_accuracy",
    "not_rejected_accuracy",
    "not_rejected_count",
)


def _by_class(dataset: str, ours: Report | None, theirs: dict[str, Any] | None, missing: bool) -> Table:
    rows: list[tuple[str, ...]] = []
    if ours is not None:
        total = {**ours["metrics"], "class": "All"}
        rows += [_class_row("here", entry, 100.0) for entry in [total, *ours["by_class"]]]
    else:
        rows.append(("here", NO_DATA if missing else NOT_RUN, *[""] * len(CLASS_COLUMNS)))
    if theirs is not None:
        entries = [dict(zip(theirs["columns"], row, strict=True)) for row in theirs["rows"]]
        rows += [_class_row("paper", entry, 1.0) for entry in entries]
    columns = ("run", "class", *(COLUMNS[name] for name in CLASS_COLUMNS))
    note = "Classes are numbered from 0 here, and from 1 in the paper."
    return Table(f"{dataset}: PIW (times 100) and t-test by class", columns, tuple(rows), notes=(note,))


def _class_row(run: str, entry: dict[str, Any], piw_factor: float) -> tuple[str, ...]:
    def text(column: str) -> str:
        value = entry.get(column)
        if value is None:
            return NOT_RUN
        if column == "not_rejected_count":
            return f"{value:.0f}"
        return f"{value * (piw_factor if column in TIMES_100 else 1.0):.2f}"

    return (run, str(entry["class"]), *map(text, CLASS_COLUMNS))


def cifar10_ablation(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """The two priors, f as an input of the network or not."""
    absent = NO_DATA if "cifar10" in missing else NOT_RUN
    rows = []
    for name, entry in paper()["cifar10_parameterization_ablation"].items():
        mine = [report for report in of(reports, "cifar10") if report.get("variant") == name]
        prior = "N(f(x), I)" if entry["prior"] == "f_phi" else "N(0, I)"
        for recipe, found in group(mine, "recipe").items() or [(("",), [])]:
            row = [name, prior, str(entry["f_phi_input"]), *recipe]
            for metric in ("accuracy", "pavpu"):
                cell = summarise(found, metric)
                row += [Cell(*entry[metric]).text(), cell.text(2, RUNS) if cell else absent]
            rows.append(tuple(row))
    columns = (
        "variant",
        "prior",
        "f as input",
        "recipe",
        "accuracy (paper)",
        "accuracy",
        "PAvPU (paper)",
        "PAvPU",
    )
    return [Table("CIFAR-10: prior and network input", columns, tuple(rows))]


SIZE_GROUPS = {
    "toy": tuple(KINDS["toy"].datasets),
    "uci": tuple(KINDS["uci"].datasets),
    "noisy_mnist": ("noisy_mnist",),
    "fashion_mnist": ("fashion_mnist",),
    "cifar": ("cifar10", "cifar100"),
    "imagenet": ("imagenet100", "imagenet"),
}


def sizes(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """Learned numbers of the largest model, and rows predicted a second, each a whole distribution."""
    rows = []
    for name, datasets in SIZE_GROUPS.items():
        mine = [report for report in reports if report["dataset"] in datasets]
        for key, found in group(mine, "method", "recipe").items():
            rows.append((name, label(*key), _parameters(found), _throughput(found)))
        for model, (millions, rate) in paper()["complexity"].get(name, {}).items():
            rows.append((name, f"{model} (paper, on a GPU)", f"{millions:.4g} M", f"{rate:.0f}"))
    note = "Here: whole predicted distributions a second on one CPU thread; the paper counts single passes."
    columns = ("data", "model", "parameters", "rows a second")
    return [Table("Model size and throughput", columns, tuple(rows), notes=(note,))]


def _parameters(reports: Sequence[Report]) -> str:
    found = [report["config"]["size"] for report in reports if report.get("config", {}).get("size")]
    return f"{max(found) / 1e6:.4g} M" if found else NOT_RUN


def _throughput(reports: Sequence[Report]) -> str:
    timed = [r for r in reports if r.get("seconds_predict") and r.get("config", {}).get("rows")]
    seconds = sum(report["seconds_predict"] for report in timed)
    return f"{sum(report['config']['rows'][1] for report in timed) / seconds:.0f}" if timed else NOT_RUN
