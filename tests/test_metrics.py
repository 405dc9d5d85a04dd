"""Regression metrics against their definitions, against scoringrules, and against known laws."""

import time
import tracemalloc

import numpy as np
import oracles_metrics as oracle
import pytest
import scoringrules
from scipy import stats

from card import metrics

LEVELS = np.arange(1, 10) / 10


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def forecast(rng):
    """Responses of 23 rows and 40 draws for each, not too good a forecast."""
    return rng.normal(size=23), rng.normal(0.3, 1.4, size=(40, 23))


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_rmse_is_a_number_where_squares_are_not(size):
    assert metrics.rmse([3 * size, 0.0], [0.0, 4 * size]) == pytest.approx(np.sqrt(12.5) * size)
    assert metrics.rmse([size, size], [size, size]) == 0


def test_rmse_is_the_root_of_the_mean_square():
    assert metrics.rmse([1.0, 2.0, 3.0], [1.0, 2.0, 6.0]) == pytest.approx(np.sqrt(3.0))


@pytest.mark.parametrize("fair", [False, True])
def test_crps_equals_the_double_loop_over_draws(forecast, fair):
    y, draws = forecast
    expected = np.mean([oracle.crps_pairs(y[n], draws[:, n], fair) for n in range(len(y))])
    assert metrics.crps(y, draws, fair=fair) == pytest.approx(expected, abs=1e-12)


def test_crps_equals_the_integral_that_defines_it(forecast):
    y, draws = forecast
    assert metrics.crps(y[:1], draws[:, :1]) == pytest.approx(
        oracle.crps_integral(y[0], draws[:, 0]), abs=1e-4
    )


@pytest.mark.parametrize(("fair", "estimator"), [(False, "nrg"), (True, "fair")])
def test_crps_equals_scoringrules_row_by_row(forecast, fair, estimator):
    y, draws = forecast
    expected = scoringrules.crps_ensemble(y, draws.T, estimator=estimator)
    np.testing.assert_allclose(metrics.crps(y, draws, fair=fair, average=False), expected, atol=1e-12)


def test_crps_of_one_draw_is_the_absolute_error():
    assert metrics.crps([1.0, 5.0], [[2.0, 2.0]]) == pytest.approx(2.0)


def test_crps_of_many_gaussian_draws_approaches_the_closed_form(rng):
    y = rng.normal(size=200)
    draws = rng.normal(size=(4000, 200))
    exact = scoringrules.crps_normal(y, 0.0, 1.0).mean()
    assert metrics.crps(y, draws, fair=True) == pytest.approx(exact, abs=2e-3)


def test_crps_keeps_its_digits_far_from_zero(forecast):
    y, draws = forecast
    assert metrics.crps(y + 1e9, draws + 1e9) == pytest.approx(metrics.crps(y, draws), abs=1e-6)


def test_crps_from_quantiles_equals_crps_of_the_same_values_as_draws(forecast):
    y, draws = forecast
    levels = (np.arange(40) + 0.5) / 40
    from_quantiles = metrics.crps_quantiles(y, np.sort(draws, axis=0).T, levels, average=False)
    np.testing.assert_allclose(from_quantiles, metrics.crps(y, draws, average=False), atol=1e-12)


def test_crps_from_quantiles_approaches_the_closed_form(rng):
    y, levels = rng.normal(size=50), (np.arange(999) + 1) / 1000
    quantiles = np.tile(stats.norm.ppf(levels), (50, 1))
    exact = scoringrules.crps_normal(y, 0.0, 1.0).mean()
    assert metrics.crps_quantiles(y, quantiles, levels) == pytest.approx(exact, abs=2e-3)


def test_nll_is_minus_the_mean_log_density(rng):
    y = rng.normal(size=50)
    assert metrics.nll(stats.norm.logpdf(y)) == pytest.approx(0.5 * np.log(2 * np.pi) + np.mean(y**2) / 2)
    assert metrics.nll([-1.0, -np.inf]) == np.inf


def test_nll_paper_equals_the_plain_mixture_of_kernels(forecast):
    y, draws = forecast
    expected = [oracle.nll_kernels(y[n], draws[:, n]) for n in range(len(y))]
    np.testing.assert_allclose(metrics.nll_paper(y, draws, average=False), expected, atol=1e-12)
    assert metrics.nll_paper(y, draws) == pytest.approx(np.mean(expected))


def test_nll_paper_far_from_all_draws_is_large_not_infinite():
    assert 1e5 < metrics.nll_paper([1000.0], [[0.0], [1.0]]) < 1e7


def test_a_perfect_gaussian_forecaster_scores_0_0966_too_much_in_nll_paper(rng):
    y = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)  # stratified: its exact NLL has no noise to speak of
    draws = rng.normal(size=(1000, 4000))
    excess = metrics.nll_paper(y, draws) - metrics.nll(stats.norm.logpdf(y))
    assert 0.5 * np.log(2) - 0.25 == pytest.approx(0.0966, abs=5e-5)
    assert excess == pytest.approx(0.0966, abs=2e-3)


def test_picp_counts_both_ends_in():
    assert metrics.picp([0.0, 1.0, 1.1, -0.1], np.zeros(4), np.ones(4)) == 50.0
    assert metrics.picp([7.0], [-np.inf], [np.inf]) == 100.0


def test_piw_is_the_mean_width():
    assert metrics.piw([0.0, -1.0], [0.5, 1.0]) == 1.25


def test_qice_equals_the_loop_over_intervals(rng):
    y, edges = rng.normal(size=57), np.sort(rng.normal(size=(57, 9)), axis=1)
    assert metrics.qice(y, edges) == pytest.approx(oracle.qice_intervals(y, edges))


def test_qice_puts_a_response_on_an_edge_into_the_lower_interval():
    y, edges = [1.0, 2.0, 3.0], [[1.0, 2.0]] * 3
    assert metrics.qice(y, edges) == pytest.approx(0.0)


def test_qice_of_everything_in_one_bin_is_its_largest_value():
    assert metrics.qice(np.zeros(5), np.tile(LEVELS, (5, 1))) == pytest.approx(18.0)


@pytest.mark.parametrize(("n", "floor"), [(31, 4.24), (51, 3.32), (103, 2.37), (160, 1.89), (819, 0.83)])
def test_a_perfect_forecaster_scores_the_floor_of_qice(rng, n, floor):
    edges = np.tile(stats.norm.ppf(LEVELS), (n, 1))
    scores = [metrics.qice(rng.normal(size=n), edges) for _ in range(1500)]
    assert np.mean(scores) == pytest.approx(floor, abs=0.05)


def test_qice_of_pit_values_equals_qice_of_quantiles(rng):
    y, scale = rng.normal(size=300), rng.uniform(0.5, 2, size=300)
    edges = scale[:, None] * stats.norm.ppf(LEVELS)
    assert metrics.qice_pit(stats.norm.cdf(y / scale)) == pytest.approx(metrics.qice(y, edges))


def test_pit_of_the_true_distribution_is_uniform(rng):
    u = metrics.pit(stats.norm.cdf(rng.normal(size=5000)))
    assert stats.kstest(u, "uniform").pvalue > 0.01


def test_randomised_pit_is_uniform_where_the_plain_one_is_not(rng):
    y = rng.poisson(1.5, size=5000)
    cdf, below = stats.poisson.cdf(y, 1.5), stats.poisson.cdf(y - 1, 1.5)
    randomised = metrics.pit(cdf, below, random_state=0)
    assert stats.kstest(randomised, "uniform").pvalue > 0.01
    assert stats.kstest(metrics.pit(cdf), "uniform").pvalue < 1e-6
    assert metrics.qice_pit(randomised) < 1.0 < metrics.qice_pit(metrics.pit(cdf))
    np.testing.assert_array_equal(randomised, metrics.pit(cdf, below, random_state=0))


def test_several_targets_give_one_score_each_equal_to_scoring_them_alone(rng):
    y, draws = rng.normal(size=(30, 2)), rng.normal(size=(20, 30, 2))
    lower, upper = np.quantile(draws, [0.1, 0.9], axis=0)
    edges = np.moveaxis(np.quantile(draws, LEVELS, axis=0), 0, 1)
    together = {
        "rmse": metrics.rmse(y, draws.mean(axis=0)),
        "crps": metrics.crps(y, draws),
        "crps_quantiles": metrics.crps_quantiles(y, edges, LEVELS),
        "nll_paper": metrics.nll_paper(y, draws),
        "picp": metrics.picp(y, lower, upper),
        "piw": metrics.piw(lower, upper),
        "qice": metrics.qice(y, edges),
    }
    for k in range(2):
        alone = {
            "rmse": metrics.rmse(y[:, k], draws[..., k].mean(axis=0)),
            "crps": metrics.crps(y[:, k], draws[..., k]),
            "crps_quantiles": metrics.crps_quantiles(y[:, k], edges[..., k], LEVELS),
            "nll_paper": metrics.nll_paper(y[:, k], draws[..., k]),
            "picp": metrics.picp(y[:, k], lower[:, k], upper[:, k]),
            "piw": metrics.piw(lower[:, k], upper[:, k]),
            "qice": metrics.qice(y[:, k], edges[..., k]),
        }
        assert {name: score[k] for name, score in together.items()} == pytest.approx(alone)


def test_scores_of_draws_do_not_depend_on_the_chunk(forecast, monkeypatch):
    y, draws = forecast
    whole = metrics.crps(y, draws, average=False), metrics.nll_paper(y, draws, average=False)
    monkeypatch.setattr("card.metrics.regression.CHUNK", 100)
    for one, many in zip(
        whole,
        (metrics.crps(y, draws, average=False), metrics.nll_paper(y, draws, average=False)),
        strict=True,
    ):
        np.testing.assert_allclose(one, many, rtol=1e-12)


def test_scores_of_1000_draws_of_5000_rows_take_seconds_and_little_memory(rng):
    y, draws = rng.normal(size=5000), rng.normal(size=(1000, 5000)).astype("float32")
    start = time.perf_counter()
    metrics.crps(y, draws), metrics.nll_paper(y, draws)
    assert time.perf_counter() - start < 20  # about one second on a quiet core
    tracemalloc.start()
    metrics.crps(y, draws), metrics.nll_paper(y, draws)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * draws.nbytes  # 60 MB, where the table of pairs would take 20 GB


def test_results_for_one_target_are_plain_floats(forecast):
    y, draws = forecast
    assert type(metrics.crps(y, draws)) is type(metrics.rmse(y, draws[0])) is float


NAN = float("nan")
REFUSED = [
    (lambda: metrics.rmse([1.0, 2.0], [1.0]), r"mean must have the shape of y, \(2,\); got \(1,\)"),
    (lambda: metrics.rmse([1.0, NAN], [1.0, 2.0]), r"y holds NaN or infinite values \(1 of 2\)"),
    (lambda: metrics.rmse([], []), r"y must have shape .* at least one row; got \(0,\)"),
    (lambda: metrics.rmse(3.0, 3.0), r"y must have shape .*; got \(\)"),
    (lambda: metrics.rmse(["a"], [1.0]), "y must be an array of numbers"),
    (
        lambda: metrics.crps([1.0, 2.0], np.zeros((2, 3))),
        r"draws must have shape \(n_draws, 2\), the draws first",
    ),
    (lambda: metrics.crps([1.0], [1.0]), r"draws must have shape \(n_draws, 1\).*got \(1,\)"),
    (lambda: metrics.crps([1.0], [[NAN]]), "draws holds NaN"),
    (lambda: metrics.crps([1.0], np.zeros((0, 1))), r"at least 1 draw\(s\) of every row are needed; got 0"),
    (lambda: metrics.crps([1.0], [[1.0]], fair=True), r"at least 2 draw\(s\)"),
    (lambda: metrics.nll_paper([1.0], [[1.0]]), r"at least 2 draw\(s\)"),
    (lambda: metrics.nll_paper([1.0], [[2.0], [2.0]]), "all draws of some row are equal"),
    (lambda: metrics.crps_quantiles([1.0], [[1.0, 2.0]], [0.9, 0.1]), "levels must be .* increasing"),
    (lambda: metrics.crps_quantiles([1.0], [[1.0, 2.0]], [0.5, 1.5]), "levels must lie between 0 and 1"),
    (lambda: metrics.crps_quantiles([1.0], [[1.0, 2.0]], [0.5]), r"quantiles must have shape \(1, 1\)"),
    (lambda: metrics.nll([0.0, NAN]), "logpdf holds NaN"),
    (lambda: metrics.nll([np.inf]), "no density may be infinite"),
    (lambda: metrics.picp([1.0], [0.0, 0.0], [1.0, 1.0]), r"lower must have the shape of y, \(1,\)"),
    (lambda: metrics.piw([0.0], [0.0, 1.0]), "upper must have the shape of lower"),
    (lambda: metrics.piw([2.0], [1.0]), "lower <= upper; sort the bounds first"),
    (lambda: metrics.qice([1.0, 2.0], [1.0, 2.0]), r"edges must have shape \(2, number of edges\)"),
    (lambda: metrics.qice([1.0, 2.0], [[1.0, NAN]] * 2), "edges holds NaN"),
    (lambda: metrics.qice_pit([0.5], n_bins=1), "at least one row and 2 bins; got 1 rows and 1 bins"),
    (lambda: metrics.pit([1.2]), "cdf must lie between 0 and 1; got 1.2 to 1.2"),
    (lambda: metrics.pit([0.2], [0.3]), "must not exceed cdf"),
    (lambda: metrics.pit([0.2], [0.1, 0.1]), "cdf_below must have the shape of cdf"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_input_is_refused_in_plain_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()
