"""How sure is the classifier of this one row? What its draws say.

A draw reconstructs the class prototype: y_0 in R^C, near 1 in the class it believes in and near 0 in the
others. With g = -(y_0 - 1)^2, elementwise (CARD, on classification):

    probability of class c   softmax(g / tau)_c
    vote of the draw         argmax_c g_c, the class whose value is closest to 1

Over S draws of one row these give the mean probability and the votes of every class; the prediction interval
width (PIW) of every class, from the 2.5 % to the 97.5 % percentile of g; and a paired t-test of the
probabilities of the two leading classes. A sure model rebuilds the same prototype every time: its
votes agree, its PIW is narrow, its t-test rejects.

Near 1 the square is flat, so the class that is present has the narrowest PIW even when the noise is the same
in every class; the width of y_0 itself does not know it (`piw="raw"`), and a softmax mixes the classes'
noise and loses the contrast.

Draws are (n_draws, n_rows, n_classes). `weigh` takes them whole, `gather` in chunks of rows, so that a
thousand classes need no more memory than one chunk; both give `Evidence`, from which all else follows. Models
that draw class probabilities themselves, as Bayesian networks do, have votes and the t-test, but no prototype
to take the width of: `weigh_probabilities` gives their `Lead`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from card.metrics import paired_ttest
from card.metrics._check import Floats, fractions, numbers, same_shape

BLOCK = 2_000_000  # numbers worked on at a time: some 16 MB for each intermediate array

Width = Literal["brier", "raw"]
Some = TypeVar("Some", bound="Lead")


@dataclass(frozen=True)
class Lead:
    """What the class probabilities of the draws of N rows say of C classes."""

    proba: Floats  # (N, C) mean over draws of the probabilities
    votes: NDArray[np.int32]  # (N, C) how many draws choose the class
    leading: NDArray[np.intp]  # (N, 2) the class with most votes and the runner-up
    p_value: Floats  # (N,) paired t-test of these two

    def __len__(self) -> int:
        return len(self.p_value)

    @property
    def vote(self) -> NDArray[np.intp]:
        """The majority's class (N,)."""
        return self.leading[:, 0]

    @property
    def vote_shares(self) -> Floats:
        """Share of the draws that choose each class (N, C)."""
        return self.votes / self.votes.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Evidence(Lead):
    """What draws of prototypes say: also, how far they spread."""

    piw: Floats  # (N, C) width of the prediction interval

    @property
    def narrowest(self) -> NDArray[np.intp]:
        """The class with the narrowest PIW (N,): a prediction from confidence alone."""
        return self.piw.argmin(axis=1)


class Entropy(NamedTuple):
    """The two parts of the entropy of predicted probabilities, in nats (N,)."""

    aleatoric: Floats  # noise in the labels: more data would not remove it
    epistemic: Floats  # disagreement between members: more data would


class QQ(NamedTuple):
    """What `qq_differences` returns; a straight line of `ordered` over `theoretical` means normal."""

    theoretical: Floats  # (S,) medians of the order statistics of N(0, 1)
    ordered: Floats  # (S, N) differences of each row, ascending
    correlation: Floats  # (N,) of the two; 1 for a straight line, NaN where all differences are equal


def probabilities(draws: ArrayLike, tau: float = 1.0) -> Floats:
    """Class probabilities of each draw, softmax(-(y_0 - 1)^2 / tau) over the last axis.

    >>> probabilities([[[1.0, 0.0]]]).round(3)
    array([[[0.731, 0.269]]])
    """
    return special.softmax(closeness(draws) / _temperature(tau), axis=-1)


def closeness(draws: ArrayLike) -> Floats:
    """g = -(y_0 - 1)^2, elementwise: 0 where a class is wholly present, -1 where it is wholly absent."""
    return -np.square(numbers("draws", draws).astype(float, copy=False) - 1.0)


def interval_widths(draws: ArrayLike, piw: Width = "brier", coverage: float = 0.95) -> Floats:
    """Width of the central prediction interval of every class (N, C): of g, or of y_0 (`raw`)."""
    if piw not in ("brier", "raw"):
        raise ValueError(f'piw must be "brier" (of -(y_0 - 1)^2) or "raw" (of y_0); got {piw!r}')
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, as 0.95; got {coverage}")
    values = closeness(draws) if piw == "brier" else numbers("draws", draws).astype(float, copy=False)
    lower, upper = np.quantile(values, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
    return upper - lower


def weigh(draws: ArrayLike, tau: float = 1.0, piw: Width = "brier", coverage: float = 0.95) -> Evidence:
    """All that S draws say of each row.

    The leading class has most votes; the runner-up comes next, which after a unanimous vote is the class
    with the next highest mean probability. Equal votes rank by mean probability, then by column.

    Parameters
    ----------
    draws : (n_draws, n_rows, n_classes), at least 2 draws, reconstructions y_0
    tau : temperature of the probabilities
    piw : "brier" for the width of -(y_0 - 1)^2, "raw" for the width of y_0
    coverage : share of the draws inside the interval whose width is taken

    >>> e = weigh([[[0.9, 0.1]], [[1.1, 0.2]], [[0.4, 0.7]]])
    >>> e.vote, e.votes, e.narrowest
    (array([0]), array([[2, 1]], dtype=int32), array([0]))
    """
    draws = _checked(draws)
    return joined([_weigh(draws[:, rows], tau, piw, coverage) for rows in _blocks(draws)])


def gather(
    chunks: Iterable[ArrayLike], tau: float = 1.0, piw: Width = "brier", coverage: float = 0.95
) -> Evidence:
    """`weigh` for draws that come in chunks of rows, one at a time, each (n_draws, some rows, n_classes)."""
    parts = [weigh(chunk, tau, piw, coverage) for chunk in chunks]
    if not parts:
        raise ValueError("there are no chunks of draws to gather; at least one row is needed")
    widths = sorted({part.proba.shape[1] for part in parts})
    if len(widths) > 1:
        raise ValueError(f"every chunk must have the same number of classes; got {widths}")
    return joined(parts)


def weigh_probabilities(proba: ArrayLike) -> Lead:
    """What S draws of class probabilities (n_draws, n_rows, n_classes), at least 2, say of each row.

    Votes, leading classes and the t-test are those of `weigh`.

    >>> weigh_probabilities([[[0.8, 0.2]], [[0.7, 0.3]], [[0.4, 0.6]]]).votes
    array([[2, 1]], dtype=int32)
    """
    draws = _checked(fractions("proba", proba))
    return joined([_tested(_lead(draws[:, rows], draws[:, rows])) for rows in _blocks(draws)])


def assess(
    evidence: Lead, classes: ArrayLike, alpha: float = 0.05, proba: ArrayLike | None = None
) -> pd.DataFrame:
    """One line for each row: what is predicted, and how sure of it one may be.

    Parameters
    ----------
    evidence : from `weigh` or `gather`, or from `weigh_probabilities`, which knows no interval widths
    classes : (n_classes,) label of each column
    alpha : level of the t-test; a row is certain when its p_value is below it
    proba : (n_rows, n_classes), the probabilities `label` and `probability` go by, if not the draws' own

    Returns
    -------
    DataFrame with columns label (most probable class), vote (majority of the draws), vote_share (its share),
    probability (of the label), piw_<class> for each class, p_value, certain
    """
    labels = _class_names(classes, evidence.proba.shape[1])
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, as 0.05; got {alpha}")
    p = evidence.proba if proba is None else fractions("proba", proba)
    same_shape("proba", p, "the evidence", evidence.proba)
    first = {
        "label": labels[p.argmax(axis=1)],
        "vote": labels[evidence.vote],
        "vote_share": evidence.vote_shares.max(axis=1),
        "probability": p.max(axis=1),
    }
    widths = {}
    if isinstance(evidence, Evidence):
        widths = {f"piw_{label}": evidence.piw[:, c] for c, label in enumerate(labels.tolist())}
    last = {"p_value": evidence.p_value, "certain": evidence.p_value < alpha}
    return pd.DataFrame(first | widths | last)


def entropy_parts(proba: ArrayLike) -> Entropy:
    """Noise and doubt in what M members say of N rows, probabilities (M, N, C).

    The mean entropy of the members, and by how much the entropy of their mean exceeds it: the mutual
    information between the label and the member.

    >>> parts = entropy_parts([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    >>> parts.aleatoric.round(3), parts.epistemic.round(3)
    (array([0.693, 0.   ]), array([0.   , 0.693]))
    """
    p = fractions("proba", proba).astype(float)
    aleatoric = special.entr(p).sum(axis=2).mean(axis=0)
    return Entropy(aleatoric, np.maximum(special.entr(p.mean(axis=0)).sum(axis=1) - aleatoric, 0.0))


def tune_temperature(
    draws: ArrayLike, y: ArrayLike, bounds: tuple[float, float] = (1e-3, 1e2), grid: int = 16
) -> float:
    """The tau with the lowest NLL of the mean probability on held-out rows.

    -mean_n log mean_s softmax(g_sn / tau)[y_n], first on an even grid of log tau, since it may have more than
    one valley, then by Brent's method around the best point. A thousand rows or so are enough.

    Parameters
    ----------
    draws : (n_draws, n_rows, n_classes), of rows that no fitting step saw
    y : (n_rows,) column of each row's true class
    """
    draws = _checked(draws)
    column = _true_columns(y, draws.shape[1], draws.shape[2])
    low, high = (math.log(_temperature(tau)) for tau in bounds)
    if not low < high:
        raise ValueError(f"bounds of the temperature must ascend; got {bounds}")

    def loss(log_tau: float) -> float:
        return _nll(draws, column, math.exp(log_tau))

    points = np.linspace(low, high, grid)
    losses = [loss(point) for point in points]
    best = int(np.argmin(losses))
    around = points[max(best - 1, 0)], points[min(best + 1, grid - 1)]
    found = optimize.minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-4})
    return math.exp(found.x if found.fun < losses[best] else points[best])


def qq_differences(draws: ArrayLike, tau: float = 1.0) -> QQ:
    """Q-Q data for what the t-test assumes: normal differences between a row's two leading probabilities."""
    draws = _checked(draws)
    pairs = [_lead(probabilities(draws[:, rows], tau), draws[:, rows]).pair for rows in _blocks(draws)]
    difference = np.concatenate([pair[:, :, 0] - pair[:, :, 1] for pair in pairs], axis=1)
    theoretical = stats.probplot(difference[:, 0], fit=False)[0]
    ordered = np.sort(difference, axis=0)
    centred = ordered - ordered.mean(axis=0)
    scale = np.sqrt(np.square(centred).sum(axis=0) * np.square(theoretical).sum())
    same = ordered[0] == ordered[-1]
    correlation = np.where(same, np.nan, theoretical @ centred / np.where(same, 1.0, scale))
    return QQ(theoretical, ordered, correlation)


class _Pair(NamedTuple):
    mean: Floats  # (N, C)
    votes: NDArray[np.int32]  # (N, C)
    leading: NDArray[np.intp]  # (N, 2)
    pair: Floats  # (S, N, 2) probabilities of the two leading classes


def _lead(proba: Floats, draws: Floats) -> _Pair:
    """The two leading classes by votes of draws and, where these are equal, by their mean probability."""
    mean, votes = proba.mean(axis=0), _count_votes(draws)
    leading = np.lexsort((-mean, -votes), axis=1)[:, :2]
    return _Pair(mean, votes, leading, np.take_along_axis(proba, leading[None], axis=2))


def _tested(lead: _Pair) -> Lead:
    mean, votes, leading, pair = lead
    return Lead(mean, votes, leading, paired_ttest(pair[:, :, 0], pair[:, :, 1]).p_value)


def _weigh(draws: Floats, tau: float, piw: Width, coverage: float) -> Evidence:
    lead = _tested(_lead(probabilities(draws, tau), draws))
    return Evidence(**vars(lead), piw=interval_widths(draws, piw, coverage))


def _count_votes(draws: Floats) -> NDArray[np.int32]:
    choice = closeness(draws).argmax(axis=2)
    votes = np.zeros(draws.shape[1:], dtype=np.int32)
    np.add.at(votes, (np.arange(draws.shape[1])[None], choice), 1)
    return votes


def _blocks(draws: Floats) -> Iterator[slice]:
    n_draws, n_rows, n_classes = draws.shape
    size = max(1, BLOCK // (n_draws * n_classes))
    return (slice(start, start + size) for start in range(0, n_rows, size))


def joined(parts: list[Some]) -> Some:
    """The evidence of several chunks of rows as one."""
    whole = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(parts[0])}
    return type(parts[0])(**whole)


def _nll(draws: Floats, column: NDArray[np.intp], tau: float) -> float:
    total = 0.0
    for rows in _blocks(draws):
        log_p = special.log_softmax(closeness(draws[:, rows]) / tau, axis=2)
        true = np.take_along_axis(log_p, column[None, rows, None], axis=2)
        total -= (special.logsumexp(true, axis=0) - math.log(len(draws))).sum()
    return total / len(column)


def _checked(draws: ArrayLike) -> Floats:
    array = numbers("draws", draws)
    if array.ndim != 3 or array.shape[0] < 2 or array.shape[1] < 1 or array.shape[2] < 2:
        raise ValueError(
            "draws must have shape (n_draws, n_rows, n_classes) with at least 2 draws, 1 row and 2 classes; "
            f"got {array.shape}"
        )
    return array


def _temperature(tau: float) -> float:
    if not (0 < tau < math.inf):
        raise ValueError(f"the temperature tau must be a positive number; got {tau}")
    return float(tau)


def _class_names(classes: ArrayLike, n_classes: int) -> NDArray:
    labels = np.asarray(classes)
    if labels.shape != (n_classes,) or len(set(map(str, labels.tolist()))) < n_classes:
        raise ValueError(
            f"classes must name each of the {n_classes} columns of the draws, each name once; "
            f"got {labels.tolist()}"
        )
    return labels


def _true_columns(y: ArrayLike, n_rows: int, n_classes: int) -> NDArray[np.intp]:
    column = np.asarray(y)
    whole = column.shape == (n_rows,) and column.dtype.kind in "iu"
    if not whole or column.min() < 0 or column.max() >= n_classes:
        raise ValueError(
            f"y must hold the true class of each of the {n_rows} rows as a whole number "
            f"from 0 to {n_classes - 1}, a column of the draws"
        )
    return column.astype(np.intp)
