"""How good is a predicted distribution of a number?

Arrays in, numbers out; nothing here knows of a model. Responses `y` are (n_rows,), or
(n_rows, n_targets), in which case every metric gives one number per target. Draws come first,
(n_draws, n_rows); quantiles and bin edges second, (n_rows, n_quantiles). Shares of rows (`picp`,
`qice`) are percent, everything else is in the units of y.

Which to trust: `crps` and `nll` are proper scores, smallest in expectation for the true
distribution. `picp` and `qice` measure calibration alone, which a forecaster that ignores x can
have too. `rmse` judges the mean only.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from card.metrics._check import Floats, Score, draws_of, fractions, numbers, plain, responses, same_shape

CHUNK = 2**20  # draws handled at once: 8 MB in float64, so memory is bounded whatever their number


def rmse(y: ArrayLike, mean: ArrayLike) -> Score:
    """Root mean squared error: sqrt(mean_n (y_n - mean_n)^2).

    >>> round(rmse([1.0, 2.0], [1.0, 4.0]), 4)
    1.4142
    """
    y, mean = responses(y), numbers("mean", mean)
    same_shape("mean", mean, "y", y)
    error = np.abs(y - mean)
    largest = error.max(axis=0)
    size = np.where(largest > 0, largest, 1.0)  # squares of 1e200 or 1e-200 are no numbers
    return plain(size * np.sqrt(np.square(error / size).mean(axis=0)))


def crps(y: ArrayLike, draws: ArrayLike, *, fair: bool = False, average: bool = True) -> Score:
    """Continuous ranked probability score: the integral of (F(t) - 1[t >= y])^2 over t.

    With F the empirical distribution of S draws x_1..x_S this is

        mean_i |x_i - y| - sum_{i,j} |x_i - x_j| / (2 S^2)

    and the double sum is 2 sum_i (2i - S - 1) x_(i) over the sorted draws: O(S log S). It is in the
    units of y, and |y - x| for a single draw.

    Parameters
    ----------
    y : (n_rows,) or (n_rows, n_targets)
    draws : (n_draws, n_rows) or (n_draws, n_rows, n_targets)
    fair : divide the double sum by 2 S (S - 1), which estimates without bias the score of the
        distribution behind the draws rather than that of the draws themselves.
    average : if false, one score for each row instead of their mean.

    >>> crps([0.0], [[-1.0], [1.0]])
    0.5
    >>> crps([0.0], [[-1.0], [1.0]], fair=True)
    0.0
    """
    y = responses(y)
    draws = draws_of(y, draws, at_least=2 if fair else 1)
    n_draws = len(draws)
    pairs = n_draws * (n_draws - 1 if fair else n_draws)
    weights = (2 * np.arange(1, n_draws + 1) - n_draws - 1) / pairs

    def score(y: Floats, draws: Floats) -> Floats:
        error = np.sort(draws - y, axis=0)  # both terms depend on x - y alone; small numbers round less
        return np.abs(error).mean(axis=0) - np.einsum("s,s...->...", weights, error)

    return _reduce(_by_chunks(score, y, draws), average)


def crps_quantiles(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike, *, average: bool = True) -> Score:
    """CRPS from quantiles: twice the integral over q of the pinball loss (q - 1[y < x_q]) (y - x_q).

    The integral is a sum over the levels, each standing for the levels nearest to it. With levels
    (i - 1/2) / S it equals `crps` of the quantiles taken as draws, exactly.

    Parameters
    ----------
    y : (n_rows,) or (n_rows, n_targets)
    quantiles : (n_rows, n_levels) or (n_rows, n_levels, n_targets)
    levels : (n_levels,), increasing, between 0 and 1

    >>> crps_quantiles([0.0], [[-1.0, 1.0]], [0.25, 0.75])
    0.5
    """
    y, levels = responses(y), fractions("levels", levels)
    if levels.ndim != 1 or levels.size == 0 or (np.diff(levels) <= 0).any():
        raise ValueError("levels must be a list of increasing numbers between 0 and 1")
    quantiles = _per_row("quantiles", quantiles, y, len(levels))
    cells = np.diff(np.concatenate([[0], (levels[1:] + levels[:-1]) / 2, [1]]))
    shape = (-1,) + (1,) * (y.ndim - 1)
    error = y[:, None] - quantiles
    pinball = (levels.reshape(shape) - (error < 0)) * error
    return _reduce(2 * (cells.reshape(shape) * pinball).sum(axis=1), average)


def nll(logpdf: ArrayLike) -> Score:
    """Mean negative log density, -mean_n log p(y_n | x_n), of log densities that are exact.

    A density of zero at an observed response (log density -inf) scores inf.

    >>> nll([-1.0, -2.0])
    1.5
    """
    logpdf = numbers("logpdf", logpdf, allow_inf=True)
    if logpdf.size == 0 or np.isposinf(logpdf).any():
        raise ValueError("logpdf must hold at least one row, and no density may be infinite")
    return plain(-logpdf.mean(axis=0))


def nll_paper(y: ArrayLike, draws: ArrayLike, *, average: bool = True) -> Score:
    """The NLL of the CARD paper's tables: a Gaussian kernel on every draw, as wide as the draws themselves.

    The density at y is mean_i N(y; x_i, v) with v the variance of the S draws (divisor S - 1). Smoothing
    by the full spread doubles the variance: a perfect Gaussian forecaster scores log(2)/2 - 1/4 = 0.0966
    more than its exact NLL. So this figure is to be compared with the paper's, never with `nll`.

    Parameters
    ----------
    y : (n_rows,) or (n_rows, n_targets)
    draws : (n_draws, n_rows) or (n_draws, n_rows, n_targets), two or more
    average : if false, one score for each row instead of their mean.

    >>> round(nll_paper([0.0], [[-1.0], [1.0]]), 4)
    1.5155
    """
    y = responses(y)
    draws = draws_of(y, draws, at_least=2)

    def score(y: Floats, draws: Floats) -> Floats:
        variance = draws.var(axis=0, ddof=1)
        if (variance == 0).any():
            raise ValueError("all draws of some row are equal, so nll_paper has no kernel width; use crps")
        kernels = -0.5 * np.square(draws - y) / variance
        return np.log(len(draws)) + 0.5 * np.log(2 * np.pi * variance) - logsumexp(kernels, axis=0)

    return _reduce(_by_chunks(score, y, draws), average)


def picp(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Score:
    """Prediction interval coverage: percent of rows with lower <= y <= upper. CARD, Eq. of PICP.

    The ideal is the nominal coverage: 95 for the 2.5 and 97.5 percentiles.

    >>> picp([1.0, 2.0, 3.0, 4.0], [0, 0, 0, 0], [3, 3, 3, 3])
    75.0
    """
    y, (lower, upper) = responses(y), _bounds(lower, upper)
    same_shape("lower", lower, "y", y)
    return plain(100 * ((lower <= y) & (y <= upper)).mean(axis=0))


def piw(lower: ArrayLike, upper: ArrayLike) -> Score:
    """Mean prediction interval width, mean_n (upper_n - lower_n), in the units of y.

    >>> piw([0.0, 1.0], [2.0, 5.0])
    3.0
    """
    lower, upper = _bounds(lower, upper)
    return plain((upper - lower).mean(axis=0))


def qice(y: ArrayLike, edges: ArrayLike) -> Score:
    """Quantile interval coverage error, percent: mean_m |r_m - 1/M|. CARD, Eq. of QICE.

    The edges of a row are the M - 1 inner quantiles of its predicted distribution, at 1/M .. (M-1)/M, and
    r_m is the share of rows whose response lies in the m-th of the M intervals between them. A response is
    put in the interval whose number is the count of edges strictly below it.

    Zero is not within reach of n rows: a perfect forecaster scores about 2.4 at n = 103 and 0.83 at n = 819
    (M = 10), and far more on a response with ties. For integers use `pit` with `cdf_below` and `qice_pit`.

    Parameters
    ----------
    y : (n_rows,) or (n_rows, n_targets)
    edges : (n_rows, M - 1) or (n_rows, M - 1, n_targets)

    >>> round(qice([0.5, 1.5, 1.6, 2.5], [[1.0, 2.0]] * 4), 4)
    11.1111
    """
    y = responses(y)
    edges = _per_row("edges", edges, y)
    return _bin_error((edges < y[:, None]).sum(axis=1), edges.shape[1] + 1)


def qice_pit(pit: ArrayLike, n_bins: int = 10) -> Score:
    """`qice` of `pit` values: percent by which the shares of M equal bins of [0, 1] miss 1/M.

    For a continuous response it equals `qice` with the quantiles of the same distributions as edges; with the
    randomised transform it serves integer responses too.

    >>> qice_pit([0.05, 0.55, 0.6, 0.95], n_bins=2)
    25.0
    """
    pit = fractions("pit", pit)
    if n_bins < 2 or pit.size == 0:
        raise ValueError(f"qice_pit needs at least one row and 2 bins; got {len(pit)} rows and {n_bins} bins")
    inner = np.arange(1, n_bins) / n_bins
    return _bin_error(np.searchsorted(inner, pit, side="left"), n_bins)


def pit(
    cdf: ArrayLike, cdf_below: ArrayLike | None = None, random_state: int | np.random.Generator | None = None
) -> Floats:
    """Probability integral transform of each row: F(y), uniform on [0, 1] if the forecast is right.

    For an integer response F jumps at y, and F(y) cannot be uniform. Then give `cdf_below`, the predicted
    probability of less than y: the value returned is uniform between the two, which is again uniform for a
    right forecast (the randomised transform).

    >>> pit([0.2, 0.9])
    array([0.2, 0.9])
    >>> pit([0.2, 0.9], cdf_below=[0.2, 0.9])
    array([0.2, 0.9])
    """
    cdf = fractions("cdf", cdf)
    if cdf_below is None:
        return cdf
    below = fractions("cdf_below", cdf_below)
    same_shape("cdf_below", below, "cdf", cdf)
    if (below > cdf).any():
        raise ValueError("cdf_below, the probability of less than y, must not exceed cdf")
    return below + np.random.default_rng(random_state).uniform(size=cdf.shape) * (cdf - below)


def _reduce(scores: Floats, average: bool) -> Score:
    return plain(scores.mean(axis=0)) if average else scores


def _bounds(lower: ArrayLike, upper: ArrayLike) -> tuple[NDArray, NDArray]:
    lower, upper = numbers("lower", lower, allow_inf=True), numbers("upper", upper, allow_inf=True)
    same_shape("upper", upper, "lower", lower)
    if lower.size == 0 or (lower > upper).any():
        raise ValueError("an interval is needed for every row, with lower <= upper; sort the bounds first")
    return lower, upper


def _per_row(name: str, values: ArrayLike, y: Floats, n: int | None = None) -> NDArray:
    """Arrays (n_rows, n[, n_targets]) that go with y (n_rows[, n_targets])."""
    array = numbers(name, values, allow_inf=name == "edges")
    fits = array.ndim == y.ndim + 1 and array[:, 0].shape == y.shape if array.size else False
    if not fits or (n is not None and array.shape[1] != n):
        wanted = ", ".join(map(str, [len(y), n or f"number of {name}", *y.shape[1:]]))
        raise ValueError(
            f"{name} must have shape ({wanted}) to go with y of shape {y.shape}; got {array.shape}"
        )
    return array


def _bin_error(bins: NDArray[np.intp], n_bins: int) -> Score:
    shares = np.stack([(bins == m).mean(axis=0) for m in range(n_bins)])
    return plain(100 * np.abs(shares - 1 / n_bins).mean(axis=0))


def _by_chunks(score: Callable[[Floats, Floats], Floats], y: Floats, draws: NDArray) -> Floats:
    """score(y, draws) of a few rows at a time, in float64."""
    return np.concatenate([score(y[rows], draws[:, rows].astype(float)) for rows in _slices(draws)])


def _slices(draws: NDArray) -> Iterator[slice]:
    step = max(1, CHUNK // max(1, draws[:, :1].size))
    return (slice(start, start + step) for start in range(0, draws.shape[1], step))
