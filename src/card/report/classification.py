"""The sections on predicted classes."""

import numpy as np
import pandas as pd

from card import plots
from card.evaluation import Estimate
from card.metrics import risk_coverage
from card.report import html

BUDGETS = (0.02, 0.05, 0.1, 0.2, 0.3)
MOST_CLASSES = 12  # in a table of which is taken for which


def verdict(proba: np.ndarray, scores: dict[str, Estimate]) -> str:
    """Is the confidence honest?"""
    n, accuracy = len(proba), scores["accuracy"].value
    confidence = 100 * float(proba.max(axis=1).mean())
    error = max(scores["accuracy"].error, 100 / n)
    if confidence > accuracy + 2 * error:
        said = "too sure of itself"
    elif confidence < accuracy - 2 * error:
        said = "less sure than it might be"
    else:
        said = "as sure as it should be"
    return (
        f"{accuracy:.1f} % of the {n:,} rows were given the right class. On average the model gave its "
        f"answer a probability of {confidence:.1f} %: it is {said}."
    )


def reliability(y: np.ndarray, proba: np.ndarray, classes: np.ndarray) -> str:
    """Confidence against accuracy, and which class is taken for which."""
    diagram = html.figure(
        plots.reliability_diagram(y, proba, classes=classes, ax=html.canvas()),
        "Confidence and accuracy",
        "Of rows predicted with 80 % confidence, 80 % should be right. Below the line it is "
        "over-confident. The area of a point is its number of rows.",
    )
    return html.columns(diagram, _confusion(y, classes[proba.argmax(axis=1)], classes))


def _confusion(y: np.ndarray, label: np.ndarray, classes: np.ndarray) -> str:
    """A table of counts; of many classes, the pairs that are mistaken most often."""
    counts = pd.crosstab(pd.Series(y, dtype=object), pd.Series(label, dtype=object))
    if len(classes) <= MOST_CLASSES:
        counts = counts.reindex(index=classes.tolist(), columns=classes.tolist(), fill_value=0)
        cells = [(f"{c}", *counts.loc[c]) for c in classes.tolist()]
        names = [str(c) for c in classes]
        return (
            "<h3>Which class is taken for which</h3>"
            + html.text("Rows of each true class, by the class that was predicted.")
            + html.table(["true", *names], cells, numeric=range(1, len(names) + 1))
        )
    pairs = counts.stack()
    wrong = pairs[[a != b for a, b in pairs.index]].sort_values(ascending=False, kind="stable")
    cells = [(a, b, n) for (a, b), n in wrong[wrong > 0].head(MOST_CLASSES).items()]
    return "<h3>Mistaken most often</h3>" + html.table(["true", "predicted", "rows"], cells, numeric=[2])


def triage(
    label: np.ndarray,
    y: np.ndarray,
    proba: np.ndarray,
    doubt: np.ndarray,
    f: np.ndarray | None,
    classes: np.ndarray,
    numbers: np.ndarray,
) -> str:
    """Risk against coverage, and who should look at what; by the model's doubt, beside f's confidence."""
    correct = label == y
    curve = risk_coverage(correct, -doubt)
    other = None if f is None else (classes[f.argmax(axis=1)] == y, f.max(axis=1))
    n = len(y)
    kept = {budget: max(1, n - round(budget * n)) for budget in BUDGETS}
    rows = [(f"{100 * b:.0f} %", n - k, f"{100 * curve.risk[k - 1]:.2f} %") for b, k in kept.items()]
    first = np.argsort(-doubt, kind="stable")[:10]
    look = [(numbers[i], label[i], html.chance(float(proba[i].max())), y[i]) for i in first]
    picture = html.figure(
        plots.risk_coverage(correct, -doubt, other=other, ax=html.canvas()),
        "Errors among the rows answered",
        "The surest rows first. The steeper the rise at the end, the more a person gains by "
        "looking at the least certain rows.",
    )
    said = "" if other is None else gain((correct, -doubt), other)
    return html.columns(
        picture + said,
        html.text(
            f"Without help {100 * curve.risk[-1]:.2f} % are wrong.",
            "If a person looks at the least certain rows:",
        )
        + html.table(["share looked at", "rows", "errors among the rest"], rows, numeric=[0, 1, 2])
        + html.text("The rows to look at first:")
        + html.table(["row", "predicted", "probability", "true"], look, numeric=[0, 2]),
    )


Answers = tuple[np.ndarray, np.ndarray]  # which are correct, and how confident each is


def gain(ours: Answers, theirs: Answers, n_resamples: int = 200) -> str:
    """What deferring by the model's doubt saves over deferring by the base classifier's confidence.

    A difference within twice its standard error over resampled rows is none.
    """

    def areas(rows: np.ndarray) -> tuple[float, float]:
        ours_area, theirs_area = (risk_coverage(right[rows], by[rows]).area for right, by in (ours, theirs))
        return ours_area, theirs_area

    n, rng = len(ours[0]), np.random.default_rng(0)
    aurc, f_aurc = areas(np.arange(n))
    error = np.std([np.subtract(*areas(rng.integers(n, size=n))) for _ in range(n_resamples)])
    said = "These rows are too few to tell the two apart."
    if abs(aurc - f_aurc) > 2 * error:
        said = f"On these rows the model's own doubt lets {'fewer' if aurc < f_aurc else 'more'} errors pass."
    return html.text(
        "Mean error rate of the rows that are kept, over all shares looked at: deferring by the model's "
        f"doubt {100 * aurc:.3f} %; deferring by the confidence of f alone {100 * f_aurc:.3f} %.",
        said,
    )


def predictions(
    y: np.ndarray, proba: np.ndarray, widths: np.ndarray, classes: np.ndarray, numbers: np.ndarray
) -> str:
    """Probabilities of the rows with several plausible classes, and interval widths of all."""
    picks = np.argsort(proba.max(axis=1), kind="stable")[:8]
    ax = html.canvas(4.0)
    labels = [f"row {numbers[i]}" for i in picks]
    plots.class_shares(proba[picks], classes, labels=labels, y=y[picks], ax=ax)
    ax.set_ylabel("")
    correct = classes[proba.argmax(axis=1)] == y
    return html.figures(
        [
            (
                ax,
                "Rows with more than one answer",
                "The predicted probabilities of the least decided rows. The dot marks the true class.",
            ),
            (
                plots.widths_by_outcome(widths, correct, ax=html.canvas(4.0)),
                "How far the draws spread",
                "The width of the 95 % interval of the predicted class over the model's draws. Where wrong "
                "rows have wider intervals than right ones, the width warns of errors.",
            ),
        ]
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
                html.chance(float(confidence[i])),
                html.chance(float(details["p_value"].iloc[i])),
                y[i],
            )
            for i in picks
        ]
        table = html.table(["row", "predicted", "probability", "p-value", "true"], cells, numeric=[0, 2, 3])
        parts.append(f"<h3>{heading}</h3>{table}")
    return html.text(
        "By the probability of the predicted class. The p-value is that of a t-test between the two leading "
        "classes over the model's draws: a small one says that the draws agree which of the two it is."
    ) + html.columns(*parts)
