"""From a model and rows with known responses to the page."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from card.evaluation import TOGETHER, assess_rows, match_labels, score_classes, score_targets
from card.facts import is_classifier, n_targets, target_names
from card.report import classification, html, regression, shared
from card.report.data import data_section, data_sentence
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
    verdicts, targets, sections = make(model, X, np.asarray(y), numbers, advance)
    kinds = getattr(model.features_, "kinds", {})
    sections.append(("Data", data_section(X, targets, kinds)))
    lead = html.text(f"{source} {data_sentence(X, kinds)}".strip())
    lead += "".join(html.text(v).replace("<p>", '<p class="verdict">') for v in verdicts)
    return html.page(title, lead, sections)


Parts = tuple[list[str], dict[str, np.ndarray], Sections]  # verdicts, observed responses by name, sections


def _numbers(model: Any, X: pd.DataFrame, y: np.ndarray, numbers: np.ndarray, advance: Advance) -> Parts:
    cards, alone = model.predict_distribution(X), model.predict_mean_model(X)
    k = n_targets(model)
    names = target_names(model) or (["response"] if k is None else [f"y{i}" for i in range(k)])
    parts = cards.decompose()

    def summary(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        distribution = model.predict_distribution(table)
        return distribution.mean(), distribution.std()

    effects = column_effects(summary, X, advance=advance)
    places: list[int | None] = [None] if k is None else list(range(k))
    assessed, assessed_alone = (
        {name: assess_rows(y, d, place) for name, place in zip(names, places, strict=True)}
        for d in (cards, alone)
    )
    found, found_alone = score_targets(assessed), score_targets(assessed_alone)
    verdicts, sections = [], []
    if TOGETHER in found:
        both = {"card": found[TOGETHER], "f alone": found_alone[TOGETHER]}
        sections.append((f"Headline: {TOGETHER}", shared.metric_tiles(both)))
    for i, (name, rows) in enumerate(assessed.items()):
        target, of = (None, "") if k is None else (i, f": {name}")
        scores = {"card": found[name], "f alone": found_alone[name]}
        some = cards[:MOST_DENSITIES] if k is None else cards[:MOST_DENSITIES].marginal(i)
        noise, doubt = (p if k is None else p[:, i] for p in parts)
        unit = f"units of {name}"
        moves = (
            ("Effect on the mean", "the predicted mean", unit),
            ("Effect on the spread", "the predicted standard deviation", unit),
        )
        verdicts.append((f"{name}: " if of else "") + regression.verdict(rows, scores["card"]))
        sections += [
            (f"Headline{of}", shared.metric_tiles(scores)),
            (f"Reliability{of}", regression.reliability(rows)),
            (f"Predictions{of}", regression.predictions(rows, numbers, some, name)),
            (f"Certain and uncertain rows{of}", regression.certain_rows(rows, numbers)),
            (f"Noise and doubt{of}", shared.parts_section(noise, doubt, numbers, "variance")),
            (f"Columns{of}", shared.effects_section(effects.of(target), moves)),
        ]
    return verdicts, {name: rows.y for name, rows in assessed.items()}, sections


def _classes(model: Any, X: pd.DataFrame, y: np.ndarray, numbers: np.ndarray, advance: Advance) -> Parts:
    classes = np.asarray(model.classes_)
    y = match_labels(y, classes)
    proba, details, doubt = model.predict_proba(X), model.assess(X), model.doubt(X)
    f = np.asarray(model.predict_mean_model(X))
    label = classes[proba.argmax(axis=1)]
    widths = details[[f"piw_{c}" for c in classes]].to_numpy()[np.arange(len(y)), proba.argmax(axis=1)]
    scores = {
        "card": score_classes(y, proba, details["certain"].to_numpy(), classes),
        "f alone": score_classes(y, f, None, classes),
    }

    def summary(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        p = np.clip(model.predict_proba(table), 1e-12, 1)
        return p, -(p * np.log(p)).sum(axis=1)

    effects = column_effects(summary, X, advance=advance)
    effects = type(effects)(effects.names, effects.mean.mean(axis=1), effects.spread)
    moves = (
        ("Effect on the mean", "the predicted probability of a class", "probability"),
        ("Effect on the spread", "the indecision (entropy of the probabilities)", "nats"),
    )
    noise, doubtful = model.decompose(X)
    sections = [
        ("Headline", shared.metric_tiles(scores)),
        ("Reliability", classification.reliability(y, proba, classes)),
        ("Who should look at what", classification.triage(label, y, proba, doubt, f, classes, numbers)),
        ("Predictions", classification.predictions(y, proba, widths, classes, numbers)),
        ("Certain and uncertain rows", classification.certain_rows(details, y, numbers)),
        ("Noise and doubt", shared.parts_section(noise, doubtful, numbers, "entropy", entropy=True)),
        ("Columns", shared.effects_section(effects, moves)),
    ]
    name = (target_names(model) or ["label"])[0]
    return [classification.verdict(proba, scores["card"])], {name: y}, sections
