"""How good are predicted classes, and how honest is the confidence in them?

Arrays in, numbers out; nothing here knows of a model. Probabilities are (n_rows, n_classes); y holds
the column of the true class, or, with `classes` (the label of each column), the labels themselves.
`accuracy`, `pavpu`, `ece` and `mce` are percent.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from card.metrics._check import Floats, fractions, numbers, same_shape


class CalibrationBins(NamedTuple):
    """What `calibration_bins` returns, one entry a bin; an empty bin has NaN accuracy and confidence."""

    n_rows: NDArray[np.intp]
    accuracy: Floats
    confidence: Floats


class TTest(NamedTuple):
    """What `paired_ttest` returns, one entry a row."""

    statistic: Floats
    p_value: Floats


class RiskCoverage(NamedTuple):
    """What `risk_coverage` returns: a curve, and the area under it."""

    coverage: Floats
    risk: Floats
    area: float


def accuracy(y: ArrayLike, predicted: ArrayLike) -> float:
    """Percent of rows whose predicted label is the true one.

    >>> accuracy(["cat", "dog", "dog", "cat"], ["cat", "dog", "cat", "cat"])
    75.0
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    same_shape("predicted", predicted, "y", y)
    if y.size == 0:
        raise ValueError("accuracy needs at least one row")
    return 100 * float((y == predicted).mean())


def nll_proba(y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None = None) -> float:
    """Mean negative log probability of the true class: -mean_n log p_n[y_n].

    A probability of zero counts as the smallest step of its floating-point type, as in scikit-learn.

    >>> round(nll_proba([0, 1], [[0.5, 0.5], [0.2, 0.8]]), 4)
    0.4581
    """
    eps = np.finfo(numbers("proba", proba).dtype).eps
    column, proba = _columns(y, proba, classes)
    return float(-np.log(_of_class(proba, column).clip(eps, 1)).mean())


def brier(y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None = None) -> float:
    """Brier score: mean over rows of the sum over classes of (p_c - 1[y = c])^2; 0 is best, 2 worst.

    >>> round(brier([0, 1], [[0.5, 0.5], [0.2, 0.8]]), 4)
    0.29
    """
    column, proba = _columns(y, proba, classes)
    return float((np.square(proba).sum(axis=1) - 2 * _of_class(proba, column) + 1).mean())


def calibration_bins(
    y: ArrayLike, proba: ArrayLike, n_bins: int = 10, classes: ArrayLike | None = None
) -> CalibrationBins:
    """Rows sorted into equal bins of confidence, the probability of the predicted (most probable) class.

    Bin m holds confidences from m/M up to but not including (m+1)/M; a confidence of exactly 1 belongs in the
    last. For each bin: how many rows, their share of correct predictions, their mean confidence.

    >>> calibration_bins([0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.0, 1.0]], n_bins=2).n_rows
    array([0, 3])
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1; got {n_bins}")
    column, proba = _columns(y, proba, classes)
    confidence, correct = proba.max(axis=1), proba.argmax(axis=1) == column
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    count = np.bincount(bins, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        accuracy, confidence = (np.bincount(bins, v, n_bins) / count for v in (correct, confidence))
    return CalibrationBins(count, accuracy, confidence)


def ece(y: ArrayLike, proba: ArrayLike, n_bins: int = 10, classes: ArrayLike | None = None) -> float:
    """Expected calibration error, percent: sum_m (n_m / n) |accuracy_m - confidence_m|; `calibration_bins`.

    >>> round(ece([0, 1], [[0.8, 0.2], [0.9, 0.1]]), 4)
    55.0
    """
    bins = calibration_bins(y, proba, n_bins, classes)
    gaps = np.nan_to_num(np.abs(bins.accuracy - bins.confidence))
    return 100 * float((bins.n_rows * gaps).sum() / bins.n_rows.sum())


def mce(y: ArrayLike, proba: ArrayLike, n_bins: int = 10, classes: ArrayLike | None = None) -> float:
    """Maximum calibration error, percent: the largest |accuracy_m - confidence_m| over `calibration_bins`.

    >>> round(mce([0, 1], [[0.8, 0.2], [0.9, 0.1]]), 4)
    90.0
    """
    bins = calibration_bins(y, proba, n_bins, classes)
    return 100 * float(np.nanmax(np.abs(bins.accuracy - bins.confidence)))


def pavpu(correct: ArrayLike, certain: ArrayLike) -> float:
    """Percent of rows that are correct and certain, or wrong and uncertain. CARD, Eq. of PAvPU.

    >>> pavpu([True, True, False, False], [True, False, False, False])
    75.0
    """
    correct, certain = _booleans("correct", correct), _booleans("certain", certain)
    same_shape("certain", certain, "correct", correct)
    return 100 * float((correct == certain).mean())


def paired_ttest(a: ArrayLike, b: ArrayLike) -> TTest:
    """Paired two-sided t-test, row by row, of draws a against draws b.

    With d = a - b over S draws: t = mean(d) / (std(d) / sqrt(S)), referred to Student's t with S - 1 degrees
    of freedom. CARD compares the probabilities of the two classes with most votes; a rejected test means
    that the model is certain. Differences that are all the same leave no doubt: p is 0 if they are not
    zero, and 1 if they are.

    Parameters
    ----------
    a, b : (n_draws, n_rows), or (n_draws,) for a single row

    >>> t = paired_ttest([[0.9], [0.8], [0.7]], [[0.1], [0.1], [0.3]])
    >>> t.statistic.round(3), t.p_value.round(4)
    (array([5.27]), array([0.0342]))
    """
    a, b = (numbers(name, v).astype(float, copy=False) for name, v in (("a", a), ("b", b)))
    same_shape("b", b, "a", a)
    if a.ndim == 0 or len(a) < 2:
        raise ValueError(f"a paired t-test needs at least 2 draws, the first axis; got shape {a.shape}")
    difference = a - b
    mean, error = difference.mean(axis=0), difference.std(axis=0, ddof=1) / np.sqrt(len(a))
    same = np.ptp(difference, axis=0) == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(same, np.sign(mean) * np.inf, mean / error)
    statistic = np.where(same & (mean == 0), 0.0, statistic)
    return TTest(statistic, 2 * stdtr(len(a) - 1, -np.abs(statistic)))


def risk_coverage(correct: ArrayLike, confidence: ArrayLike) -> RiskCoverage:
    """The error rate on the most confident rows, as ever more rows are covered.

    At coverage k/n the risk is the share of errors among the k rows with the highest confidence; the
    area is the mean risk over k = 1..n (AURC), 0 for no errors, the error rate itself for a confidence that
    knows nothing. Rows with equal confidence count with their mean error, so their order does not matter.
    Coverage, risk and area are fractions.

    Parameters
    ----------
    correct : (n_rows,) of booleans
    confidence : (n_rows,); any score that is larger where the model is surer

    >>> curve = risk_coverage([True, True, False, True], [0.9, 0.8, 0.2, 0.7])
    >>> curve.risk
    array([0.  , 0.  , 0.  , 0.25])
    >>> curve.area
    0.0625
    """
    correct = _booleans("correct", correct)
    confidence = numbers("confidence", confidence, allow_inf=True)
    same_shape("confidence", confidence, "correct", correct)
    n = len(correct)
    _, group, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    mean_error = np.bincount(group, ~correct) / size
    risk = np.cumsum(np.repeat(mean_error, size)) / np.arange(1, n + 1)
    return RiskCoverage(np.arange(1, n + 1) / n, risk, float(risk.mean()))


def _booleans(name: str, values: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(values)
    if array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all():
        array = array.astype(bool)
    if array.dtype != bool or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be true or false for each of at least one row")
    return array


def _columns(y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None) -> tuple[NDArray[np.intp], Floats]:
    """The column of the true class of every row, and the probabilities, both checked."""
    y, proba = np.asarray(y), fractions("proba", proba)
    if proba.ndim != 2 or proba.size == 0 or y.shape != proba.shape[:1]:
        raise ValueError(
            f"proba must have shape (n_rows, n_classes) and y (n_rows,); got {proba.shape} and {y.shape}"
        )
    sums = proba.sum(axis=1)
    if np.abs(sums - 1).max() > 1e-3:
        worst = sums[np.abs(sums - 1).argmax()]
        raise ValueError(f"each row of proba must sum to 1; one sums to {worst:.6g}")
    n_classes = proba.shape[1]
    if classes is None:
        if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= n_classes:
            raise ValueError(
                f"y must hold whole numbers from 0 to {n_classes - 1}, the columns of proba; "
                "for other labels give `classes`, the label of each column"
            )
        return y.astype(np.intp), proba
    labels = np.asarray(classes)
    if labels.shape != (n_classes,):
        raise ValueError(
            f"classes must name each of the {n_classes} columns of proba; got shape {labels.shape}"
        )
    column = {label: i for i, label in enumerate(labels.tolist())}
    unknown = sorted({str(label) for label in y.tolist() if label not in column})
    if unknown:
        raise ValueError(f"y holds labels that are not among classes: {', '.join(unknown)}")
    return np.array([column[label] for label in y.tolist()], dtype=np.intp), proba


def _of_class(proba: Floats, column: NDArray[np.intp]) -> Floats:
    return np.take_along_axis(proba, column[:, None], axis=1)[:, 0]
