"""Whether a response is better learned as its logarithm: what the data say.

A positive response that goes over orders of magnitude is often one whose errors do too: noise is a share of
it, and what f errs by where it is large would bury all where it is small. A quick blend of straight lines and
boosted trees, cross-fitted, tells: the bell around its f, with its out-of-fold error as scale, is set beside
the log-normal around that of the logarithm. The latter must be likelier, and be no worse by its CRPS, which
minds the large responses: it is worse where they are known better than any share of themselves.
"""

from __future__ import annotations

import numpy as np

from card.codec import fit_codec
from card.crossfit import crossfit, defaults
from card.distribution import Gaussian
from card.learners import Linear
from card.metrics import crps, nll
from card.responses import honour
from card.trees import Boosting

FEWEST, MOST = 100, 2000  # rows that can tell, and that are asked
SPAN = 30.0  # 99th percentile of the response by its 1st
GAIN = 0.25  # of the log-likelihood of a row, in nats
LEVELS = (np.arange(50) + 0.5) / 50


def goes_over_orders(y: np.ndarray) -> bool:
    """Whether the logarithm of responses y (N, K) is worth a thought."""
    if y.shape[1] > 1 or len(y) < FEWEST or y.min() <= 0:
        return False
    low, high = np.quantile(y, [0.01, 0.99])
    return bool(high / SPAN > low)


def prefers_logarithm(
    plain: np.ndarray, with_logs: np.ndarray, y: np.ndarray, groups: np.ndarray | None, seed: int
) -> bool:
    """Whether responses y (N, 1) are better learned as logarithms.

    Rows are encoded (N, D) as they would be for either: for logarithms, with those of columns beside them.
    """
    some = np.random.default_rng(seed).permutation(len(y))[:MOST]
    groups = None if groups is None else groups[some]
    as_it_is = _scores(plain[some], y[some], "real", groups, seed)
    as_log = _scores(with_logs[some], y[some], "positive", groups, seed)
    return as_it_is[0] - as_log[0] > GAIN and as_log[1] <= as_it_is[1]


def _scores(
    x: np.ndarray, y: np.ndarray, response: str, groups: np.ndarray | None, seed: int
) -> tuple[float, float]:
    """NLL and CRPS of what a quick blend says of rows it has not seen."""
    codec = fit_codec(y, response)
    quick = [each for each in defaults(len(y)) if isinstance(each, Linear | Boosting)]
    fitted = crossfit(x, codec.encode(y), learners=quick, repeats=1, groups=groups, seed=seed)
    f = codec.decode(fitted.oof)
    error = float(np.sqrt(np.mean((codec.to_line(y) - f) ** 2)))
    law = honour(Gaussian(f[:, 0], np.array(max(error, 1e-9 * codec.scale[0]))), codec, -np.inf, np.inf)
    return float(nll(law.logpdf(y[:, 0]))), float(crps(y[:, 0], law.quantile(LEVELS).T))
