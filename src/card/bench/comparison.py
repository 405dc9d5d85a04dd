"""One method against all others, as functions of reports: wins and losses, and average ranks.

*Wins and losses.* On each data set two methods are compared by the differences d_i of a metric over the k
splits that both have run. Splits share training rows, so the plain t-test finds differences that are not
there; with the correction of Nadeau and Bengio (2003),

    t = mean(d) / sqrt((1/k + n_test/n_train) var(d)),

Student with k - 1 degrees of freedom. Below the 5 % limit it is a draw; fewer than two splits are no
comparison. An infinite score loses to a finite one.

*Ranks.* On the data sets that every method has run, methods are ranked by their means over the splits that
all have run; average ranks that differ by less than the critical difference of Nemenyi (Demšar 2006) cannot
be told apart, nor any of them if Friedman's test does not reject that all are alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, t

from card.bench.kinds import UCI
from card.bench.render import Table
from card.bench.reports import Report
from card.bench.summary import group, label, of
from card.bench.tables import NOT_RUN, Metric, density_notes

METRICS = (Metric("crps", "CRPS"), Metric("nll", "exact NLL"), Metric("rmse", "RMSE"))
ALPHA = 0.05
REFERENCE = "card modern"

Methods = Mapping[str, Sequence[Report]]


def comparison(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """Wins and losses of the default recipe against each other method, then average ranks."""
    methods = {label(*key): found for key, found in group(reports, "method", "recipe").items()}
    if not methods:
        return [Table("Comparison: nothing has been run", ("method",), ())]
    reference = REFERENCE if REFERENCE in methods else next(iter(methods))
    return [_score_table(reference, methods), *(_rank_table(metric, methods) for metric in METRICS)]


def wins(reports: Sequence[Report], missing: Collection[str] = ()) -> list[Table]:
    """The first part of `comparison`, for a page with little room."""
    return comparison(reports, missing)[:1]


def verdict(ours: Sequence[Report], theirs: Sequence[Report], metric: str) -> int | None:
    """1 if the first is better on this data set, -1 if worse, 0 for a draw; None: too few splits."""
    pairs = _shared(ours, theirs, metric)
    if len(pairs) < 2:
        return None
    mine, others = np.array(pairs).T
    if not (np.isfinite(mine).all() and np.isfinite(others).all()):
        return int(np.isfinite(mine).all()) - int(np.isfinite(others).all())
    d = others - mine
    spread = math.sqrt((1 / len(d) + _test_share(ours)) * d.var(ddof=1))
    if abs(d.mean()) <= t.ppf(1 - ALPHA / 2, len(d) - 1) * spread:
        return 0
    return 1 if d.mean() > 0 else -1


def _shared(ours: Sequence[Report], theirs: Sequence[Report], metric: str) -> list[tuple[float, float]]:
    """The scores of both on each split that both have."""
    mine, others = _scores(ours, metric), _scores(theirs, metric)
    return [(mine[split], others[split]) for split in mine if split in others]


def _scores(reports: Sequence[Report], metric: str) -> dict[Any, float]:
    """The score of each split that has one; what is not finite is None in a report."""
    found = {r.get("split", r.get("seed")): r["metrics"][metric] for r in reports if metric in r["metrics"]}
    return {split: math.inf if value is None else value for split, value in found.items()}


def _test_share(reports: Sequence[Report]) -> float:
    """n_test / n_train; a ninth, that of the UCI splits, where a report does not say."""
    n_train, n_test = reports[0].get("config", {}).get("rows", (9, 1))
    return n_test / n_train


def _score_table(reference: str, methods: Methods) -> Table:
    columns = (f"{reference} against", "data sets", *(f"{metric.title}: W-D-L" for metric in METRICS))
    rows = []
    for name, theirs in methods.items():
        if name == reference:
            continue
        scores = [_score(methods[reference], theirs, metric.key) for metric in METRICS]
        n = max(sum(score) for score in scores)
        rows.append((name, str(n), *("-".join(map(str, score)) if n else NOT_RUN for score in scores)))
    note = "W-D-L: data sets won, drawn, lost at 5 %, by the corrected t-test over the splits both have run."
    return Table(f"{reference} against each other method", columns, tuple(rows), notes=(note,))


def _score(ours: Sequence[Report], theirs: Sequence[Report], metric: str) -> tuple[int, int, int]:
    """Data sets won, drawn and lost."""
    found = [verdict(of(ours, name), of(theirs, name), metric) for name in UCI if of(ours, name)]
    return found.count(1), found.count(0), found.count(-1)


def ranks(methods: Methods, metric: str) -> tuple[list[str], np.ndarray]:
    """Data sets that every method has run, and the ranks of the methods on each, (n data sets, n methods).

    Means are over the splits that all have run.
    """
    names, rows = [], []
    for dataset in UCI:
        scores = [_scores(of(found, dataset), metric) for found in methods.values()]
        common = set.intersection(*(set(score) for score in scores))
        if common:
            names.append(dataset)
            rows.append(rankdata([np.mean([score[split] for split in common]) for score in scores]))
    return names, np.array(rows).reshape(len(rows), len(methods))


def critical_difference(n_methods: int, n_datasets: int) -> float:
    """Of average ranks, at 5 % (Nemenyi).

    >>> round(critical_difference(4, 14), 2)  # Demšar's example
    1.25
    """
    q = studentized_range.ppf(1 - ALPHA, n_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets)))


def _rank_table(metric: Metric, methods: Methods) -> Table:
    methods, few = _widely_run(methods)
    datasets, found = ranks(methods, metric.key)
    title = f"Average ranks by {metric.title}, 1 is best"
    if not datasets:
        return Table(title, ("method", "rank"), (), notes=("No data set has been run by every method.",))
    average = found.mean(0)
    order = np.argsort(average, kind="stable")
    names = list(methods)
    rows = tuple((names[i], f"{average[i]:.2f}") for i in order)
    notes = density_notes(names) if metric.key == "nll" else ()
    left_out = (f"Not ranked, for they have been run on few data sets: {', '.join(few)}.",) if few else ()
    return Table(title, ("method", "rank"), rows, notes=(*_rank_notes(datasets, found), *left_out, *notes))


def _widely_run(methods: Methods) -> tuple[Methods, list[str]]:
    """The methods that have run more than half as many data sets as the busiest, and the names of the others.

    Ranks are over what all have run: one that has run little would leave little to rank.
    """
    counts = {name: len({report["dataset"] for report in found}) for name, found in methods.items()}
    few = [name for name, n in counts.items() if 2 * n <= max(counts.values())]
    return {name: found for name, found in methods.items() if name not in few}, few


def _rank_notes(datasets: Sequence[str], found: np.ndarray) -> tuple[str, ...]:
    n_datasets, n_methods = found.shape
    notes = [f"On {', '.join(datasets)}, over the splits that every method here has run."]
    if n_methods > 1:
        limit = critical_difference(n_methods, n_datasets)
        notes.append(f"Ranks that differ by less than {limit:.2f} cannot be told apart (Nemenyi, 5 %).")
    if n_methods > 2 and n_datasets > 1 and np.ptp(found, axis=1).any():
        p = friedmanchisquare(*found.T).pvalue
        notes.append(f"Friedman's test that all are alike: p = {p:.2g}.")
    return tuple(notes)


__all__ = ["comparison", "critical_difference", "ranks", "verdict", "wins"]
