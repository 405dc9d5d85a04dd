"""The sections on predicted classes."""

import numpy as np
import pandas as pd

from card import plots
from card.evaluation import Estimate
from card.metrics import risk_coverage
from card.report import html

BUDGETS = (0.02, 0.05, 0.1, 0.2, 0.3)


def verdict(n_rows: int, scores: dict[str, Estimate]) -> str:
    """One sentence: is the confidence honest?"""
    return (
        f"{scores['accuracy'].value:.1f} % of the {n_rows:,} rows were given the right class; confidence and "
        f"accuracy differ by {scores['ece'].value:.1f} points on average."
    )


def reliability(y: np.ndarray, proba: np.ndarray, classes: np.ndarray) -> str:
    """Confidence against accuracy."""
    return html.figures(
        [
            (
                plots.reliability_diagram(y, proba, classes=classes, ax=html.canvas()),
                "Confidence and accuracy",
                "Of rows predicted with 80 % confidence, 80 % should be right. Below the line it is "
                "over-confident. The area of a point is its number of rows.",
            )
        ]
    )


def triage(y: np.ndarray, proba: np.ndarray, classes: np.ndarray, numbers: np.ndarray) -> str:
    """Risk against coverage, and who should look at what."""
    label, confidence = classes[proba.argmax(axis=1)], proba.max(axis=1)
    correct = label == y
    risk = risk_coverage(correct, confidence).risk
    n = len(y)
    rows = []
    for budget in BUDGETS:
        kept = max(1, n - round(budget * n))
        rows.append((f"{budget:.0%}", n - kept, f"{100 * risk[kept - 1]:.2f} %"))
    doubtful = np.argsort(confidence, kind="stable")[:10]
    look = [(numbers[i], label[i], f"{confidence[i]:.2f}", y[i]) for i in doubtful]
    return (
        html.figures(
            [
                (
                    plots.risk_coverage(correct, confidence, ax=html.canvas()),
                    "Errors among the rows answered",
                    "The surest rows first. The steeper the rise at the end, the more a person gains by "
                    "looking at the least certain rows.",
                )
            ]
        )
        + html.text(
            f"Without help {100 * risk[-1]:.2f} % are wrong. If a person looks at the least certain rows:"
        )
        + html.table(["share looked at", "rows", "errors among the rest"], rows, numeric=[0, 1, 2])
        + html.text("The rows to look at first:")
        + html.table(["row", "predicted", "confidence", "true"], look, numeric=[0, 2])
    )


def gain(aurc: float, f_aurc: float) -> str:
    """What deferring by the model's doubt saves over deferring by the base classifier's confidence."""
    return html.text(
        f"Mean error rate of the rows that are kept, over all shares looked at (AURC): {100 * aurc:.3f} %; "
        f"deferring by the confidence of f alone: {100 * f_aurc:.3f} %."
    )


def certain_rows(details: pd.DataFrame, y: np.ndarray, numbers: np.ndarray, n: int = 6) -> str:
    """The most and the least certain rows, by the probability of the predicted class."""
    confidence = details["probability"].to_numpy()
    order = np.argsort(-confidence, kind="stable")
    n = min(n, len(order) // 2)
    parts = []
    for heading, picks in (("Most certain", order[:n]), ("Least certain", order[::-1][:n])):
        cells = [
            (
                numbers[i],
                details["label"].iloc[i],
                f"{confidence[i]:.3f}",
                f"{details['p_value'].iloc[i]:.2g}",
                y[i],
            )
            for i in picks
        ]
        table = html.table(["row", "predicted", "probability", "p-value", "true"], cells, numeric=[0, 2, 3])
        parts.append(f"<h3>{heading}</h3>{table}")
    return html.columns(*parts)
