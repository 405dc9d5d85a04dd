"""The metrics of one unit of classes: CARD beside its base classifier f alone.

`accuracy`, `nll` and `ece` are of `predict_proba`, `aurc` of its largest probability. As in the paper, the
interval width (PIW) is that of the true class, averaged over the rows whose majority vote is right and over
those where it is wrong; a row is rejected where the t-test between its two leading classes rejects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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

    def predict() -> tuple[np.ndarray, Any]:
        return estimator.predict_proba(data.X_test), estimator.assess(data.X_test, n_draws, alpha)

    (proba, details), seconds = timed(predict)
    f_proba = estimator.predict_mean_model(data.X_test)
    classes = np.asarray(estimator.classes_)
    scores = classification(data.y_test, proba, f_proba, details, classes)
    by_class = [
        {"class": str(label), **_subset(data.y_test == label, data.y_test, proba, details, classes)}
        for label in classes.tolist()
    ]
    return {"n_draws": n_draws, "metrics": scores, "by_class": by_class}, seconds


def classification(
    y: np.ndarray, proba: np.ndarray, f_proba: np.ndarray, details: Any, classes: np.ndarray
) -> Scores:
    """All that is judged; accuracies, pavpu and ece in percent, PIW as it is."""
    correct = classes[proba.argmax(axis=1)] == y
    f_correct = classes[f_proba.argmax(axis=1)] == y
    widths = _widths(details, classes)
    narrowest = classes[widths.argmin(axis=1)]
    return {
        "f_accuracy": _percent(f_correct),
        "nll": finite(metrics.nll_proba(y, proba, classes)),
        "f_nll": finite(metrics.nll_proba(y, f_proba, classes)),
        "pavpu": metrics.pavpu(correct, details["certain"].to_numpy()),
        "ece": metrics.ece(y, proba, classes=classes),
        "f_ece": metrics.ece(y, f_proba, classes=classes),
        "narrowest_piw_accuracy": metrics.accuracy(y, narrowest),
        "vote_accuracy": metrics.accuracy(y, details["vote"].to_numpy()),
        "aurc": metrics.risk_coverage(correct, proba.max(axis=1)).area,
        "f_aurc": metrics.risk_coverage(f_correct, f_proba.max(axis=1)).area,
        **_subset(np.ones(len(y), bool), y, proba, details, classes),
    }


def _widths(details: Any, classes: np.ndarray) -> np.ndarray:
    return details[[f"piw_{label}" for label in classes.tolist()]].to_numpy()


def _subset(rows: np.ndarray, y: np.ndarray, proba: np.ndarray, details: Any, classes: np.ndarray) -> Scores:
    """Accuracy, PIW of the true class and t-test on some of the rows."""
    place = {label: i for i, label in enumerate(classes.tolist())}
    true = np.array([place[label] for label in y[rows].tolist()], dtype=int)
    piw = np.take_along_axis(_widths(details, classes)[rows], true[:, None], axis=1)[:, 0]
    right = details["vote"].to_numpy()[rows] == y[rows]
    correct = classes[proba.argmax(axis=1)][rows] == y[rows]
    certain = details["certain"].to_numpy()[rows]
    return {
        "accuracy": _percent(correct),
        "piw_correct": finite_mean(piw[right]),
        "piw_incorrect": finite_mean(piw[~right]),
        "rejected_accuracy": _percent(correct[certain]),
        "not_rejected_accuracy": _percent(correct[~certain]),
        "not_rejected_count": int((~certain).sum()),
    }


def finite_mean(values: np.ndarray) -> float | None:
    """None where there is nothing to average: JSON has no NaN."""
    return float(np.mean(values)) if len(values) else None


def _percent(hits: np.ndarray) -> float | None:
    share = finite_mean(hits)
    return None if share is None else 100 * share
