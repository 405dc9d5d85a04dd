"""The user's labels <-> the numbers of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from card.columns import is_missing

MASKED = {"boolean", *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))}
"""Types of pandas for booleans and whole numbers with gaps."""


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes, in order, and the number of each row's class.

    Labels may be anything that can be hashed. Those that cannot be compared (numbers and text, say) are
    ordered by the name of their type first.

    >>> encode_labels(["b", "a", "b"])[1].tolist()
    [1, 0, 1]
    """
    labels = as_labels(y)
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    missing = is_missing(labels) if labels.dtype.kind == "O" else np.zeros(len(labels), bool)
    if missing.any():
        raise ValueError(f"y has no label in {missing.sum()} of {len(labels)} rows: leave those rows out.")
    if labels.dtype.kind != "O":
        check_classification_targets(labels)
        classes, number = np.unique(labels, return_inverse=True)
        return _at_least_two(classes), number.astype(np.int64)
    try:
        known = sorted(set(labels.tolist()))
    except TypeError:
        known = _ordered(labels.tolist())
    place = {label: i for i, label in enumerate(known)}
    number = np.array([place[label] for label in labels.tolist()], dtype=np.int64)
    return _at_least_two(_array(known)), number


def as_labels(y: Any) -> np.ndarray:
    """(N,) labels; a list of tuples stays a list of tuples."""
    if y is None:
        raise ValueError("This classifier requires y to be passed, but the target y is None.")
    if isinstance(y, list) and y and (_mixed(y) or any(isinstance(label, tuple | frozenset) for label in y)):
        return _array(y)
    if str(getattr(y, "dtype", "")) in MASKED:  # NumPy would make decimals of them
        known = y.tolist()
        return _array(known) if is_missing(_array(known)).any() else np.array(known)
    return column_or_1d(y, warn=True)


def _mixed(labels: list[Any]) -> bool:
    """Whether some labels are text and others are not: an array would make text of all."""
    text = [isinstance(label, str) for label in labels]
    return any(text) and not all(text)


def _ordered(labels: list[Any]) -> list[Any]:
    try:
        return sorted(set(labels), key=lambda label: (type(label).__name__, str(label)))
    except TypeError as error:
        raise ValueError(f"labels must be hashable, as text, numbers or tuples are: {error}.") from None


def _array(labels: list[Any]) -> np.ndarray:
    """Objects as they are; plain text, numbers and booleans of one type as arrays of it."""
    out = np.empty(len(labels), dtype=object)
    out[:] = labels
    return out


def _at_least_two(classes: np.ndarray) -> np.ndarray:
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes.tolist()}); at least 2 classes are needed to tell apart."
        )
    return classes
