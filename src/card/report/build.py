"""From a model and rows with known responses to the page."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from card.evaluation import assess_rows, match_labels, score, score_classes
from card.facts import is_classifier, n_targets, target_names
from card.report import classification, html, regression
from card.report.data import data_section
from card.report.effects import column_effects

MOST_DENSITIES = 1000  # rows searched for densities with several peaks

Sections = list[tuple[str, str]]
Advance = Callable[[int], None]


def build_report(
    model: Any,
    X: pd.DataFrame,
    y: np.ndarray,
    *,
    title: str = "How far can these predictions be trusted?",
    source: str = "",
    numbers: np.ndarray | None = None,
    advance: Advance = lambda n: None,
) -> str:
    """The report as HTML.

    Parameters
    ----------
    model : fitted estimator
    X : table of rows that the model has not seen
    y : their observed responses
    title, source : heading, and where the rows come from
    numbers : numbers of the rows, for people to find them again; 1, 2, ... by default
    advance : called with 1 for every column that is done
    """
    X = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    numbers = np.arange(1, len(y) + 1) if numbers is None else numbers
    make = _classes if is_classifier(model) else _numbers
    verdicts, sections = make(model, X, np.asarray(y), numbers, advance)
    lead = html.text(source) if source else ""
    lead += "".join(html.text(v).replace("<p>", '<p class="verdict">') for v in verdicts)
    return html.page(title, lead, sections)


def _numbers(
    model: Any, X: pd.DataFrame, y: np.ndarray, numbers: np.ndarray, advance: Advance
) -> tuple[list[str], Sections]:
    cards, alone = model.predict_distribution(X), model.predict_mean_model(X)
    k = n_targets(model)
    names = target_names(model) or [f"y{i}" for i in range(k or 1)]
    targets = {name: y if k is None else y[:, i] for i, name in enumerate(names)}
    kinds = model.features_.kinds if model.features_ is not None else {}
    sections: Sections = [("Data", data_section(X, targets, kinds))]
    verdicts = []
    parts = cards.decompose()
    for i, name in enumerate(names):
        target = None if k is None else i
        rows = assess_rows(y, cards, target)
        scores = {"card": score(rows), "f alone": score(assess_rows(y, alone, target))}
        some = slice(MOST_DENSITIES)
        of = "" if k is None else f": {name}"
        verdicts.append((f"{name}: " if of else "") + regression.verdict(rows, scores["card"]))
        sections += [
            (f"Headline{of}", regression.metric_tiles(scores)),
            (f"Reliability{of}", regression.reliability(rows)),
            (f"Predictions{of}", regression.predictions(rows, numbers, cards[some] if k is None else None)),
            (f"Certain and uncertain rows{of}", regression.certain_rows(rows, numbers)),
        ]
        aleatoric, epistemic = (p if k is None else p[:, i] for p in parts)
        sections.append((f"Noise and doubt{of}", regression.parts(aleatoric, epistemic)))

    def summary(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        distribution = model.predict_distribution(table)
        return distribution.mean(), distribution.std()

    sections.append(
        (
            "Columns",
            regression.effects_section(column_effects(summary, X, advance=advance), "units of the response"),
        )
    )
    return verdicts, sections


def _classes(
    model: Any, X: pd.DataFrame, y: np.ndarray, numbers: np.ndarray, advance: Advance
) -> tuple[list[str], Sections]:
    classes = np.asarray(model.classes_)
    y = match_labels(y, classes)
    proba, details = model.predict_proba(X), model.assess(X)
    scores = {"card": score_classes(y, proba, details["certain"].to_numpy(), classes)}
    if hasattr(model, "predict_mean_model"):
        scores["f alone"] = score_classes(y, np.asarray(model.predict_mean_model(X)), None, classes)
    name = (target_names(model) or ["label"])[0]
    look = classification.triage(y, proba, classes, numbers)
    if hasattr(model, "deferral_gain"):
        gain = model.deferral_gain(X, y)
        look += classification.gain(gain.aurc, gain.f_aurc)

    def summary(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        p = np.clip(model.predict_proba(table), 1e-12, 1)
        return p, -(p * np.log(p)).sum(axis=1)

    return [classification.verdict(len(y), scores["card"])], [
        ("Data", data_section(X, {name: y}, getattr(model.features_, "kinds", {}))),
        ("Headline", regression.metric_tiles(scores)),
        ("Reliability", classification.reliability(y, proba, classes)),
        ("Who should look at what", look),
        ("Certain and uncertain rows", classification.certain_rows(details, y, numbers)),
        (
            "Columns",
            regression.effects_section(
                column_effects(summary, X, advance=advance), "probability, or nats of entropy"
            ),
        ),
    ]
