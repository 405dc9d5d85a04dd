"""Who should look at which row? The doubtful ones go to a person, the rest are left to the machine.

A row's doubt is one number, larger where the model is less sure: the interval width (PIW) of its leading
class, the p-value of its t-test, or one minus the margin of its probabilities (`card.confidence`).
`triage` then chooses: as many rows as a person has time for, or as few as a wanted accuracy of
the others allows.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from card.confidence import Evidence
from card.metrics import risk_coverage
from card.metrics._check import Floats, fractions, numbers

Doubt = Literal["piw", "p_value", "margin"]


class Gain(NamedTuple):
    """What `deferral_gain` returns; areas are fractions, less is better, a gain above 0 is one."""

    aurc: float
    f_aurc: float
    gain: float


def doubt(evidence: Evidence, by: Doubt = "piw") -> Floats:
    """How doubtful each row is (N,), larger for more doubt.

    "piw" is the PIW of the class with most votes; "p_value" that of the t-test; "margin" one minus
    the lead of the most probable class over the next.
    """
    if by == "piw":
        return np.take_along_axis(evidence.piw, evidence.leading[:, :1], axis=1)[:, 0]
    if by == "p_value":
        return evidence.p_value
    if by == "margin":
        top = np.partition(evidence.proba, -2, axis=1)[:, -2:]
        return 1.0 - (top[:, 1] - top[:, 0])
    raise ValueError(f'doubt goes by "piw", "p_value" or "margin"; got {by!r}')


def triage(
    doubts: ArrayLike,
    *,
    budget: float | None = None,
    target_accuracy: float | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
) -> NDArray[np.bool_]:
    """Which rows a person should look at: True (N,) for the most doubtful.

    Parameters
    ----------
    doubts : (n_rows,), from `doubt` or any score that is larger where the model is less sure
    budget : the share of the rows a person can look at; of n rows floor(budget n) are chosen, the
        earlier of equally doubtful ones first
    target_accuracy : the accuracy wanted of the rows that nobody looks at, a fraction; as few rows are
        chosen as held-out experience allows, all of them if it was never reached
    held_out : (doubts, correct) of rows with known answers, for `target_accuracy`

    >>> triage([0.1, 0.7, 0.3, 0.2], budget=0.25)
    array([False,  True, False, False])
    """
    score = _vector("doubts", doubts)
    if (budget is None) == (target_accuracy is None):
        raise ValueError("say either budget or target_accuracy, and not both")
    if budget is not None:
        chosen = np.zeros(len(score), dtype=bool)
        n = math.floor(_share("budget", budget) * len(score) + 1e-9)
        chosen[np.argsort(-score, kind="stable")[:n]] = True
        return chosen
    if held_out is None:
        raise ValueError("target_accuracy needs held_out=(doubts, correct) of rows with known answers")
    return score > doubt_limit(*held_out, _share("target_accuracy", target_accuracy))


def doubt_limit(doubts: ArrayLike, correct: ArrayLike, target_accuracy: float) -> float:
    """The largest doubt up to which rows may be kept so that the kept ones are as accurate as wanted.

    Rows of equal doubt stand or fall together. Minus infinity when no limit reaches the target.

    >>> doubt_limit([0.1, 0.2, 0.3, 0.4], [True, True, True, False], target_accuracy=0.9)
    0.3
    """
    score = _vector("doubts", doubts)
    curve = risk_coverage(correct, -score)
    ordered = np.sort(score)
    whole = np.append(ordered[1:] > ordered[:-1], True)  # a cut here parts no ties
    good = whole & (curve.risk <= 1 - target_accuracy + 1e-12)
    return float(ordered[good][-1]) if good.any() else -math.inf


def deferral_gain(correct: ArrayLike, doubts: ArrayLike, f_correct: ArrayLike, f_proba: ArrayLike) -> Gain:
    """What is gained by deferring the doubtful rows over deferring by the base classifier's softmax.

    AURC is the mean error rate of the kept rows over all shares deferred (`card.metrics.risk_coverage`); f
    defers the rows whose largest probability is smallest. With `f_correct` the same as `correct`, it is the
    gain of the ordering alone.
    """
    f_proba = fractions("f_proba", f_proba)
    if f_proba.ndim != 2:
        raise ValueError(f"f_proba must have shape (n_rows, n_classes); got {f_proba.shape}")
    area = risk_coverage(correct, -_vector("doubts", doubts)).area
    f_area = risk_coverage(f_correct, f_proba.max(axis=1)).area
    return Gain(area, f_area, f_area - area)


def _share(name: str, value: float | None) -> float:
    if value is None or not 0 <= value <= 1:
        raise ValueError(f"{name} is a fraction between 0 and 1, as 0.05 for 5 %; got {value}")
    return float(value)


def _vector(name: str, values: ArrayLike) -> Floats:
    array = numbers(name, values, allow_inf=True)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be one number for each of at least one row; got shape {array.shape}")
    return array
