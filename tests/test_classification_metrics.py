"""Classification metrics against their definitions, scikit-learn and SciPy."""

import numpy as np
import oracles_metrics as oracle
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from card import metrics


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def forecast(rng):
    """60 rows and 4 classes; some predictions are wholly sure of themselves."""
    proba = rng.dirichlet(np.full(4, 0.5), size=60)
    proba[:5] = np.eye(4)[[0, 1, 2, 3, 0]]
    return rng.integers(4, size=60), proba


def test_accuracy_is_the_percentage_of_right_labels_of_any_kind(forecast):
    y, proba = forecast
    predicted = proba.argmax(axis=1)
    assert metrics.accuracy(y, predicted) == pytest.approx(100 * sklearn_metrics.accuracy_score(y, predicted))
    assert metrics.accuracy(["a", "b"], ["a", "c"]) == 50.0
    assert metrics.accuracy([True, False], [True, False]) == 100.0


def test_nll_equals_scikit_learns_log_loss_even_at_probability_zero(forecast):
    y, proba = forecast
    expected = sklearn_metrics.log_loss(y, proba, labels=range(4))
    assert metrics.nll_proba(y, proba) == pytest.approx(expected)
    assert np.isfinite(metrics.nll_proba([1], [[1.0, 0.0]]))


def test_brier_equals_scikit_learns(forecast):
    y, proba = forecast
    expected = sklearn_metrics.brier_score_loss(y, proba, labels=range(4), scale_by_half=False)
    assert metrics.brier(y, proba) == pytest.approx(expected)


def test_labels_may_be_names_if_the_columns_are_named(forecast):
    y, proba = forecast
    names = np.array(["cat", "dog", "eel", "fox"])
    for metric in (metrics.nll_proba, metrics.brier, metrics.ece, metrics.mce):
        assert metric(names[y], proba, classes=names) == metric(y, proba)


@pytest.mark.parametrize("n_bins", [1, 4, 10, 15])
def test_calibration_errors_equal_the_loop_over_bins(forecast, n_bins):
    y, proba = forecast
    expected = oracle.calibration_errors(y, proba, n_bins)
    assert (metrics.ece(y, proba, n_bins), metrics.mce(y, proba, n_bins)) == pytest.approx(expected)


def test_a_confidence_of_exactly_one_counts_in_the_last_bin():
    proba = [[1.0, 0.0], [1.0, 0.0]]
    assert metrics.calibration_bins([0, 1], proba).n_rows.tolist() == [0] * 9 + [2]
    assert metrics.ece([0, 1], proba) == pytest.approx(50.0)
    assert metrics.ece([0, 0], proba) == 0.0


def test_a_confidence_on_the_edge_of_two_bins_counts_in_the_upper_one():
    assert metrics.calibration_bins([0], [[0.5, 0.5]]).n_rows.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_a_calibrated_forecaster_has_a_small_ece(rng):
    proba = rng.dirichlet(np.ones(3), size=20_000)
    y = (rng.uniform(size=(20_000, 1)) > proba.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    assert metrics.ece(y, proba) < 1.0
    assert metrics.ece((y + 1) % 3, proba) > 20.0


def test_permuted_classes_change_nothing(forecast):
    y, proba = forecast
    order = np.array([2, 0, 3, 1])
    moved = np.argsort(order)[y], proba[:, order]
    for metric in (metrics.nll_proba, metrics.brier, metrics.ece):
        assert metric(*moved) == pytest.approx(metric(y, proba))


def test_pavpu_equals_its_four_counts(rng):
    correct, certain = rng.uniform(size=(2, 50)) < 0.6
    assert metrics.pavpu(correct, certain) == pytest.approx(oracle.pavpu_counts(correct, certain))
    assert metrics.pavpu(correct, correct) == 100.0


def test_paired_ttest_equals_scipys_in_every_row(rng):
    a, b = rng.normal(0.5, 1, size=(100, 40)), rng.normal(size=(100, 40))
    ours, theirs = metrics.paired_ttest(a, b), stats.ttest_rel(a, b)
    np.testing.assert_allclose(ours.statistic, theirs.statistic)
    np.testing.assert_allclose(ours.p_value, theirs.pvalue)


def test_differences_all_alike_are_beyond_doubt_unless_they_are_zero():
    a = np.tile([0.9, 0.1, 0.5], (10, 1))
    result = metrics.paired_ttest(a, np.full((10, 3), 0.5))
    assert result.statistic.tolist() == [np.inf, -np.inf, 0.0]
    assert result.p_value.tolist() == [0.0, 0.0, 1.0]


def test_under_no_difference_the_test_rejects_at_its_level(rng):
    p_value = metrics.paired_ttest(rng.normal(size=(100, 4000)), rng.normal(size=(100, 4000))).p_value
    assert (p_value < 0.05).mean() == pytest.approx(0.05, abs=0.015)


def test_risk_is_the_error_rate_of_the_most_confident_rows(rng):
    correct, confidence = rng.uniform(size=30) < 0.7, rng.permutation(30) / 30
    curve = metrics.risk_coverage(correct, confidence)
    expected = [oracle.risk_at(correct, confidence, k) for k in range(1, 31)]
    np.testing.assert_allclose(curve.risk, expected)
    np.testing.assert_allclose(curve.coverage, np.arange(1, 31) / 30)
    assert curve.area == pytest.approx(np.mean(expected))
    assert curve.risk[-1] == pytest.approx(1 - correct.mean())


def test_risk_coverage_depends_on_the_ranking_alone_and_not_on_the_order_of_tied_rows(rng):
    correct, confidence = rng.uniform(size=200) < 0.7, rng.integers(5, size=200) / 5
    area = metrics.risk_coverage(correct, confidence).area
    order = rng.permutation(200)
    assert metrics.risk_coverage(correct[order], confidence[order]).area == pytest.approx(area)
    assert metrics.risk_coverage(correct, np.exp(confidence)).area == pytest.approx(area)
    shuffles = (
        metrics.risk_coverage(correct, confidence + 1e-9 * rng.uniform(size=200)).area for _ in range(400)
    )
    assert np.mean(list(shuffles)) == pytest.approx(area, abs=5e-3)


def test_a_constant_confidence_has_the_error_rate_as_its_area():
    assert metrics.risk_coverage([True, False, True, True], np.ones(4)).area == pytest.approx(0.25)


NAN = float("nan")
HALF = [[0.5, 0.5]]
REFUSED = [
    (lambda: metrics.accuracy([1, 2], [1]), r"predicted must have the shape of y, \(2,\); got \(1,\)"),
    (lambda: metrics.accuracy([], []), "at least one row"),
    (lambda: metrics.nll_proba([0, 1], HALF), r"got \(1, 2\) and \(2,\)"),
    (lambda: metrics.nll_proba([0], [0.5, 0.5]), r"proba must have shape \(n_rows, n_classes\)"),
    (lambda: metrics.nll_proba([0], [[0.5, 0.6]]), "must sum to 1; one sums to 1.1"),
    (lambda: metrics.nll_proba([0], [[-0.5, 1.5]]), "proba must lie between 0 and 1; got -0.5 to 1.5"),
    (lambda: metrics.nll_proba([0], [[NAN, 1.0]]), "proba holds NaN"),
    (lambda: metrics.nll_proba([2], HALF), "y must hold whole numbers from 0 to 1"),
    (lambda: metrics.nll_proba(["a"], HALF), "give `classes`, the label of each column"),
    (lambda: metrics.brier(["a"], HALF, classes=["a"]), "classes must name each of the 2 columns"),
    (lambda: metrics.brier(["c"], HALF, classes=["a", "b"]), "not among classes: c"),
    (lambda: metrics.ece([0], HALF, n_bins=0), "n_bins must be at least 1; got 0"),
    (lambda: metrics.pavpu([True], [True, False]), r"certain must have the shape of correct, \(1,\)"),
    (lambda: metrics.pavpu([0.3], [True]), "correct must be true or false"),
    (lambda: metrics.pavpu([], []), "correct must be true or false for each of at least one row"),
    (lambda: metrics.paired_ttest([[1.0]], [[1.0]]), r"at least 2 draws, the first axis; got shape \(1, 1\)"),
    (lambda: metrics.paired_ttest([[1.0]] * 2, [[1.0]]), "b must have the shape of a"),
    (lambda: metrics.paired_ttest([NAN, 1.0], [1.0, 1.0]), "a holds NaN"),
    (lambda: metrics.risk_coverage([True], [NAN]), "confidence holds NaN"),
    (lambda: metrics.risk_coverage([True], [0.1, 0.2]), "confidence must have the shape of correct"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_input_is_refused_in_plain_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()
