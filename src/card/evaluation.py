"""How good are predictions on rows whose response is known? Scores, and how sure one can be of them.

Each row contributes an error, a score, a hit or miss; a metric is a function of these. Resampling the rows
with replacement (the bootstrap) tells how far a metric would move on another sample of rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from card import metrics

COVERAGE = 0.95
LEVELS = (np.arange(100) + 0.5) / 100
TOGETHER = "all targets"

MEANING = {
    "rmse": "typical size of the error of the predicted mean, in the units of the response",
    "crps": "distance between the predicted distribution and what was observed, in the units of the "
    "response; for a prediction without spread it is the absolute error",
    "nll": "surprise at the observed values: minus the log of the predicted density; a difference of 0.1 "
    "means that the observed values were 10 % more probable",
    "nll_paper": "the surprise as the CARD paper measures it, with a density smoothed by the spread of the "
    "draws; to be compared with the paper's tables only",
    "picp": "share of rows inside the 95 % interval, in percent; should be near 95",
    "piw": "mean width of the 95 % interval, in the units of the response; narrow is useful, if picp holds",
    "qice": "percent by which the shares of rows in ten equally probable bins miss 10 %; the floor "
    "of an honest forecaster falls with the number of rows",
    "accuracy": "share of rows whose predicted class is right, in percent",
    "nll_proba": "surprise at the true classes: minus the log of their predicted probability",
    "brier": "squared distance between predicted probabilities and the truth; 0 is best, 2 worst",
    "ece": "percent by which confidence and accuracy differ, on average",
    "mce": "percent by which confidence and accuracy differ where they differ most",
    "aurc": "percent of errors among the rows answered, averaged over all shares that a person might look "
    "at, the least probable answers first; 0 is best",
    "pavpu": "share of rows that are right and certain, or wrong and uncertain, in percent",
}


@dataclass(frozen=True)
class Rows:
    """What each row says about the predictions of one number: arrays of shape (n_rows,)."""

    y: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    nll_paper: np.ndarray  # NaN in a row without spread
    pit: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> "Rows":
        return Rows(*(getattr(self, f.name)[rows] for f in fields(self)))

    @classmethod
    def join(cls, parts: Iterable["Rows"]) -> "Rows":
        """Rows of several chunks as one."""
        chunks = list(parts)
        return cls(*(np.concatenate([getattr(c, f.name) for c in chunks]) for f in fields(cls)))


METRICS: dict[str, Callable[[Rows], float]] = {
    "rmse": lambda r: float(metrics.rmse(r.y, r.mean)),
    "crps": lambda r: float(r.crps.mean()),
    "nll": lambda r: float(r.nll.mean()),
    "nll_paper": lambda r: float(r.nll_paper.mean()),
    "picp": lambda r: float(metrics.picp(r.y, r.lower, r.upper)),
    "piw": lambda r: float(metrics.piw(r.lower, r.upper)),
    "qice": lambda r: float(metrics.qice_pit(r.pit)),
}


@dataclass(frozen=True)
class Estimate:
    """A metric and its standard error over samples of rows."""

    value: float
    error: float

    def __str__(self) -> str:
        """Rounded to what the error allows.

        >>> str(Estimate(4.2137, 0.0321))
        '4.214 ± 0.032'
        """
        if not np.isfinite(self.error) or self.error <= 1e-6 * abs(self.value):
            return f"{self.value:.4g}"
        digits = int(np.clip(1 - np.floor(np.log10(self.error)), 0, 9))
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f}"


def assess_rows(y: ArrayLike, distribution: Any, target: int | None = None) -> Rows:
    """What each row says; of several targets, about one of them (its NLL is that of the whole vector).

    For whole-number responses the PIT is the randomised one, with a fixed seed.
    """
    y = np.asarray(y, dtype=float)
    of = (lambda a: a) if target is None else (lambda a: np.asarray(a)[..., target])
    lower, upper = (of(distribution.interval(COVERAGE)[:, i]) for i in (0, 1))
    quantiles = of(distribution.quantile(LEVELS))
    return Rows(
        y=of(y),
        mean=of(distribution.mean()),
        std=of(distribution.std()),
        lower=lower,
        upper=upper,
        crps=metrics.crps_quantiles(of(y), quantiles, LEVELS, average=False),
        nll=-np.asarray(distribution.logpdf(y)),
        nll_paper=_nll_paper(of(y), quantiles),
        pit=of(_pit(y, distribution)),
    )


def _nll_paper(y: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """(n_rows,) with equally probable quantiles as draws; rows in units of their own: none is tiny."""
    out, unit = np.full(len(y), np.nan), np.ptp(quantiles, axis=1)
    wide = unit > 0
    if wide.any():
        y, quantiles, unit = y[wide], quantiles[wide], unit[wide]
        scaled = metrics.nll_paper(y / unit, (quantiles / unit[:, None]).T, average=False)
        out[wide] = scaled + np.log(unit)
    return out


def _pit(y: np.ndarray, distribution: Any) -> np.ndarray:
    cdf = np.clip(distribution.cdf(y), 0, 1)
    below = np.clip(distribution.cdf(np.nextafter(y, -np.inf)), 0, cdf)
    return metrics.pit(cdf, below, random_state=0)


def score(rows: Rows, n_resamples: int = 300, seed: int = 0) -> dict[str, Estimate]:
    """Every metric with its bootstrap standard error.

    Examples
    --------
    >>> one = np.ones(4)
    >>> rows = Rows(one, one, one, lower=-one, upper=one, crps=one, nll=one, nll_paper=one, pit=one)
    >>> score(rows)["picp"]
    Estimate(value=100.0, error=0.0)
    """
    rng = np.random.default_rng(seed)
    resamples = [rows[rng.integers(len(rows), size=len(rows))] for _ in range(n_resamples)]
    return {
        name: Estimate(metric(rows), _spread([metric(r) for r in resamples]))
        for name, metric in METRICS.items()
    }


def score_targets(rows: dict[str, Rows]) -> dict[str, dict[str, Estimate]]:
    """Scores by target; of several, the NLL is that of all of them at once, and stands under `TOGETHER`."""
    scores = {name: score(of) for name, of in rows.items()}
    if len(scores) < 2:
        return scores
    joint = [of.pop("nll") for of in scores.values()]
    return scores | {TOGETHER: {"nll": joint[0]}}


def score_classes(
    y: np.ndarray, proba: np.ndarray, certain: np.ndarray | None, classes: ArrayLike, n_resamples: int = 300
) -> dict[str, Estimate]:
    """The same for classes: y holds labels, proba (n_rows, n_classes), certain (n_rows,) or None."""
    place = {label: i for i, label in enumerate(np.asarray(classes).tolist())}
    y = np.array([place[label] for label in np.asarray(y).tolist()])
    rng = np.random.default_rng(0)
    picks = [np.arange(len(y)), *(rng.integers(len(y), size=len(y)) for _ in range(n_resamples))]
    correct, confidence = proba.argmax(axis=1) == y, proba.max(axis=1)
    functions: dict[str, Callable[[np.ndarray], float]] = {
        "accuracy": lambda i: 100 * float(correct[i].mean()),
        "nll_proba": lambda i: metrics.nll_proba(y[i], proba[i]),
        "brier": lambda i: metrics.brier(y[i], proba[i]),
        "ece": lambda i: metrics.ece(y[i], proba[i]),
        "mce": lambda i: metrics.mce(y[i], proba[i]),
        "aurc": lambda i: 100 * metrics.risk_coverage(correct[i], confidence[i]).area,
    }
    if certain is not None:
        functions["pavpu"] = lambda i: metrics.pavpu(correct[i], certain[i])
    values = {name: [f(i) for i in picks] for name, f in functions.items()}
    return {name: Estimate(v[0], _spread(v[1:])) for name, v in values.items()}


def match_labels(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels as read from a file, as the classes they name.

    >>> match_labels(np.array(["1", "0.0"]), np.array([0, 1]))
    array([1, 0])
    >>> match_labels(np.array(["true", "FALSE"]), np.array([False, True]))
    array([ True, False])
    """
    known = classes.tolist()
    key = _label_key(known)
    place = {key(c): i for i, c in enumerate(known)}
    unknown = sorted({str(label) for label in y if key(label) not in place})
    if unknown:
        raise ValueError(f"labels the model does not know: {', '.join(unknown[:5])}")
    return classes[[place[key(label)] for label in y]]


def _label_key(classes: list[Any]) -> Callable[[Any], Any]:
    """What labels are compared by: files do not keep the difference between 1, 1.0 and "1"."""
    if all(isinstance(c, bool) for c in classes):
        return lambda label: str(label).strip().lower()
    if all(isinstance(c, int | float) for c in classes):
        return _as_number
    return str


def _as_number(label: Any) -> float | str:
    try:
        return float(label)
    except ValueError:
        return str(label)


def _spread(values: list[float]) -> float:
    finite = np.asarray(values)[np.isfinite(values)]
    return float(finite.std(ddof=1)) if len(finite) > 1 else float("nan")
