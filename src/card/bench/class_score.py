"""The metrics of one unit of classes: a classifier, and beside CARD its base classifier f alone.

`accuracy`, `nll` and `ece` are of `predict_proba`, `aurc` of its largest probability. As in the paper, the
interval width (PIW) is that of the true class, averaged over the rows whose majority vote is right and over
those where it is wrong; a row is rejected where the t-test between its two leading classes rejects. What a
classifier lacks is null: f, intervals where its draws are probabilities, the test where it has no draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from card import metrics
from card.bench.kinds import Data
from card.bench.score import Scores, finite, timed

N_DRAWS = 100
ALPHA = {"fashion_mnist": 0.01, "cifar100": 0.01, "imagenet100": 0.01, "imagenet": 0.01}
"""Levels of the t-test that differ from 0.05."""


def assessed(estimator: Any, data: Data, dataset: str) -> tuple[dict[str, Any], float]:
    """(metrics, by_class and n_draws of the report, seconds of the prediction)."""
    n_draws = getattr(estimator, "n_draws", N_DRAWS)
    alpha = ALPHA.get(dataset, 0.05)

    def predict() -> tuple[np.ndarray, pd.DataFrame]:
        proba = estimator.predict_proba(data.X_test)
        knows = hasattr(estimator, "assess")
        return proba, estimator.assess(data.X_test, n_draws, alpha) if knows else pd.DataFrame()

    (proba, details), seconds = timed(predict)
    has_f = hasattr(estimator, "predict_mean_model")
    f_proba = estimator.predict_mean_model(data.X_test) if has_f else None
    classes = np.asarray(estimator.classes_)
    scores = classification(data.y_test, proba, f_proba, details, classes)
    by_class = [
        {"class": str(label), **_subset(data.y_test == label, data.y_test, proba, details, classes)}
        for label in classes.tolist()
    ]
    drawn = n_draws if "certain" in details else None
    return {"n_draws": drawn, "metrics": scores, "by_class": by_class}, seconds


def classification(
    y: np.ndarray, proba: np.ndarray, f_proba: np.ndarray | None, details: pd.DataFrame, classes: np.ndarray
) -> Scores:
    """All that is judged; accuracies, pavpu and ece in percent, PIW as it is."""
    correct = classes[proba.argmax(axis=1)] == y
    certain, widths, vote = _column(details, "certain"), _widths(details, classes), _column(details, "vote")
    return {
        **_of_probabilities(y, proba, classes),
        **{f"f_{name}": value for name, value in _of_probabilities(y, f_proba, classes).items()},
        "pavpu": None if certain is None else metrics.pavpu(correct, certain),
        "narrowest_piw_accuracy": None if widths is None else _percent(classes[widths.argmin(axis=1)] == y),
        "vote_accuracy": None if vote is None else _percent(vote == y),
        **_subset(np.ones(len(y), bool), y, proba, details, classes),
    }


def _of_probabilities(y: np.ndarray, proba: np.ndarray | None, classes: np.ndarray) -> Scores:
    if proba is None:
        return dict.fromkeys(("accuracy", "nll", "ece", "aurc"))
    correct = classes[proba.argmax(axis=1)] == y
    return {
        "accuracy": _percent(correct),
        "nll": finite(metrics.nll_proba(y, proba, classes)),
        "ece": metrics.ece(y, proba, classes=classes),
        "aurc": metrics.risk_coverage(correct, proba.max(axis=1)).area,
    }


def _subset(
    rows: np.ndarray, y: np.ndarray, proba: np.ndarray, details: pd.DataFrame, classes: np.ndarray
) -> Scores:
    """Accuracy, PIW of the true class and t-test on some of the rows."""
    correct = classes[proba.argmax(axis=1)][rows] == y[rows]
    some = details[rows] if len(details) else details
    return {
        "accuracy": _percent(correct),
        **_spread(y[rows], some, classes),
        **_test(correct, _column(some, "certain")),
    }


def _spread(y: np.ndarray, details: pd.DataFrame, classes: np.ndarray) -> Scores:
    """PIW of the true class where the vote is right, and where it is wrong."""
    widths, vote = _widths(details, classes), _column(details, "vote")
    if widths is None or vote is None:
        return dict.fromkeys(("piw_correct", "piw_incorrect"))
    place = {label: i for i, label in enumerate(classes.tolist())}
    true = np.array([place[label] for label in y.tolist()], dtype=int)
    piw = np.take_along_axis(widths, true[:, None], axis=1)[:, 0]
    return {"piw_correct": finite_mean(piw[vote == y]), "piw_incorrect": finite_mean(piw[vote != y])}


def _test(correct: np.ndarray, certain: np.ndarray | None) -> Scores:
    """Accuracy of the rows that the t-test rejects, and of those that it does not."""
    if certain is None:
        return dict.fromkeys(("rejected_accuracy", "not_rejected_accuracy", "not_rejected_count"))
    return {
        "rejected_accuracy": _percent(correct[certain]),
        "not_rejected_accuracy": _percent(correct[~certain]),
        "not_rejected_count": int((~certain).sum()),
    }


def _column(details: pd.DataFrame, name: str) -> np.ndarray | None:
    return details[name].to_numpy() if name in details else None


def _widths(details: pd.DataFrame, classes: np.ndarray) -> np.ndarray | None:
    names = [f"piw_{label}" for label in classes.tolist()]
    return details[names].to_numpy() if names[0] in details else None


def finite_mean(values: np.ndarray) -> float | None:
    """None where there is nothing to average: JSON has no NaN."""
    return float(np.mean(values)) if len(values) else None


def _percent(hits: np.ndarray) -> float | None:
    share = finite_mean(hits)
    return None if share is None else 100 * share
