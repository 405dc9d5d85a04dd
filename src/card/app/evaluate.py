"""card evaluate: every metric on rows whose response is known, beside the mean model alone."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from card.app.common import Terminal, counted, known_rows, load_model, rows_of, table
from card.evaluation import MEANING, Estimate, Rows, assess_rows, match_labels, score_classes, score_targets
from card.facts import is_classifier, n_targets, target_names
from card.files import estimate_rows

Scores = dict[str, dict[str, Estimate]]  # "card" and, where there is one, "f alone" -> metric -> value


@dataclass(frozen=True)
class EvaluateOptions:
    """What the person asked for."""

    model: Path
    data: Path
    target: list[str] = field(default_factory=list)
    encoding: str = "utf-8"


def evaluate(options: EvaluateOptions, terminal: Terminal) -> None:
    """Score a model on a file and print a table for each target."""
    model = load_model(options.model)
    n_rows, scores = scores_of_file(model, options, terminal)
    rows = [
        (name, metric, *(columns.get(c, {}).get(metric, "") for c in ("card", "f alone")))
        for name, columns in scores.items()
        for metric in columns["card"]
    ]
    terminal.result(
        table(("target", "metric", "CARD", "f alone"), rows, 2, f"{n_rows} rows of {options.data}"),
        {
            "rows": n_rows,
            "targets": {
                name: {c: {m: asdict(e) for m, e in es.items()} for c, es in columns.items()}
                for name, columns in scores.items()
            },
            "meaning": {m: MEANING[m] for columns in scores.values() for m in columns["card"]},
        },
    )


def scores_of_file(model: Any, options: EvaluateOptions, terminal: Terminal) -> tuple[int, dict[str, Scores]]:
    """(number of rows, scores by target), reading the file in chunks."""
    if is_classifier(model):
        return _classes(model, options, terminal)
    k = n_targets(model)
    targets: list[int | None] = [None] if k is None else list(range(k))
    names = options.target or target_names(model) or [f"y{i}" for i in range(k or 1)]
    chunks: dict[str, dict[str, list[Rows]]] = {}  # "card" and "f alone" -> target -> its rows
    with counted(terminal, "evaluating", estimate_rows(options.data)) as advance:
        for numbers, X, y in known_rows(model, options.data, options.target, options.encoding, terminal):
            with rows_of(options.data, numbers[0] - 1, len(numbers)):
                distributions = predicted(model, X)
            for column, distribution in distributions.items():
                for name, target in zip(names, targets, strict=True):
                    rows = assess_rows(y, distribution, target)
                    chunks.setdefault(column, {}).setdefault(name, []).append(rows)
            advance(len(y))
    found: dict[str, Scores] = {}
    for column, parts in chunks.items():
        rows_of_target = {name: Rows.join(of) for name, of in parts.items()}
        for name, scores in score_targets(rows_of_target).items():
            found.setdefault(name, {})[column] = scores
    return sum(map(len, chunks["card"][names[0]])), found


def predicted(model: Any, X: Any) -> dict[str, Any]:
    """The predicted distributions, and those of the mean model alone."""
    return {"card": model.predict_distribution(X), "f alone": model.predict_mean_model(X)}


def _classes(model: Any, options: EvaluateOptions, terminal: Terminal) -> tuple[int, dict[str, Scores]]:
    ys, probas, means, certain = [], [], [], []
    with counted(terminal, "evaluating", estimate_rows(options.data)) as advance:
        for numbers, X, y in known_rows(model, options.data, options.target, options.encoding, terminal):
            ys.append(match_labels(y, model.classes_))
            with rows_of(options.data, numbers[0] - 1, len(numbers)):
                probas.append(model.predict_proba(X))
                certain.append(model.assess(X)["certain"].to_numpy())
                if hasattr(model, "predict_mean_model"):
                    means.append(np.asarray(model.predict_mean_model(X)))
            advance(len(y))
    y = np.concatenate(ys)
    scores = {"card": score_classes(y, np.concatenate(probas), np.concatenate(certain), model.classes_)}
    if means:
        scores["f alone"] = score_classes(y, np.concatenate(means), None, model.classes_)
    name = (options.target or target_names(model) or ["label"])[0]
    return len(y), {name: scores}
