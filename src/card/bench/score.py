"""The metrics of one unit, by one route for every method.

Whatever a method predicts, it is asked for the same things: the mean, quantiles, and the log
density at the observed responses. RMSE is of the mean (for toys against the noise-free
response), NLL the mean negative log density, QICE and PICP use the quantiles at 10..90 % and at 2.5 and
97.5 %. CRPS and `nll_paper` need draws: a prediction that is made of draws has them (1000 in the paper's
recipe); of any other these are the quantiles at (i - 1/2) / 1000, a stratified sample of 1000 that adds no
Monte Carlo noise of its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from card import metrics
from card.bench.kinds import Data
from card.distribution import Draws

N_DRAWS = 1000
LEVELS = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
DECILES = np.arange(1, 10) / 10
OUTER = [0.025, 0.975]

Scores = dict[str, Any]


def finite(value: Any) -> float | None:
    """A plain number, or None where it is not finite: JSON has no infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What the function returns, and the processor seconds it took, here and in processes that it waited for.

    Units run on one thread, several of them at once on a machine that others use too: its clock would tell
    as much of the company as of the method.
    """
    start = processor_seconds()
    result = function()
    return result, processor_seconds() - start


def processor_seconds() -> float:
    return sum(os.times()[:4])


def predicted(estimator: Any, X: Any, y: np.ndarray) -> dict[str, Any]:
    """All that is asked of a prediction of X: what `seconds_predict` measures."""
    distribution = estimator.predict_distribution(X)
    return {
        "distribution": distribution,
        "mean": distribution.mean(),
        "quantiles": distribution.quantile([*OUTER, *DECILES]),
        "logpdf": distribution.logpdf(y),
    }


def regression(prediction: dict[str, Any], data: Data) -> Scores:
    """The seven metrics of a predicted distribution."""
    y = data.y_test
    draws = draws_of(prediction["distribution"])
    lower, upper, deciles = np.split(prediction["quantiles"], [1, 2], axis=1)
    target = y if data.truth is None else data.truth
    return {
        "rmse": finite(metrics.rmse(target, prediction["mean"])),
        "nll": finite(metrics.nll(prediction["logpdf"])),
        "nll_paper": _nll_paper(y, draws),
        "crps": finite(metrics.crps(y, draws)),
        "qice": finite(metrics.qice(y, deciles)),
        "picp": finite(metrics.picp(y, lower[:, 0], upper[:, 0])),
        "piw": finite(metrics.piw(lower[:, 0], upper[:, 0])),
    }


def draws_of(distribution: Any) -> np.ndarray:
    """(n_draws, n_rows): the prediction's own draws, or its quantiles at (i - 1/2) / 1000."""
    if isinstance(distribution, Draws):
        return distribution.draws[..., 0]
    return np.asarray(distribution.quantile(LEVELS)).T


def _nll_paper(y: np.ndarray, draws: np.ndarray) -> float | None:
    spread = np.ptp(draws, axis=0)
    return finite(metrics.nll_paper(y, draws)) if (spread > 0).all() else None


def mean_model(estimator: Any, data: Data) -> Scores | None:
    """The same data scored by f alone: a Gaussian around it, with its out-of-fold scale."""
    if not hasattr(estimator, "predict_mean_model"):
        return None
    gaussian = estimator.predict_mean_model(data.X_test)
    target = data.y_test if data.truth is None else data.truth
    return {
        "rmse": finite(metrics.rmse(target, gaussian.mean())),
        "crps": finite(metrics.crps(data.y_test, draws_of(gaussian))),
        "nll": finite(metrics.nll(gaussian.logpdf(data.y_test))),
    }
