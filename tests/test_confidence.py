"""What draws of class prototypes say of one row: against plain loops, SciPy, and the paper's claims."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from card import confidence, metrics
from card.confidence import gather, interval_widths, probabilities, qq_differences, tune_temperature, weigh

CLASSES = ["cat", "dog", "eel", "fox"]


def prototypes(y, n_classes, noise, n_draws=200, seed=0):
    """Draws around the one-hot vectors of y with the same noise in every class."""
    rng = np.random.default_rng(seed)
    centre = np.eye(n_classes)[np.asarray(y)]
    return centre + noise * rng.standard_normal((n_draws, len(centre), n_classes))


@pytest.fixture
def draws():
    """50 draws of 30 rows and 4 classes, from sure rows to rows without a clue."""
    rng = np.random.default_rng(1)
    centre = rng.dirichlet(np.full(4, 0.3), size=30)
    return centre + rng.uniform(0.02, 0.8, size=(30, 1)) * rng.standard_normal((50, 30, 4))


def plain(y0, tau):
    """All that is said of one row of draws (S, C), by loops from the definitions."""
    n_draws, n_classes = y0.shape
    proba, votes = np.empty_like(y0), [0] * n_classes
    for s in range(n_draws):
        weights = [math.exp(-((v - 1) ** 2) / tau) for v in y0[s]]
        proba[s] = [w / sum(weights) for w in weights]
        votes[int(np.argmin([(v - 1) ** 2 for v in y0[s]]))] += 1
    mean = [proba[:, c].sum() / n_draws for c in range(n_classes)]
    first, second = sorted(range(n_classes), key=lambda c: (-votes[c], -mean[c]))[:2]
    widths = [np.ptp(np.percentile(-((y0[:, c] - 1) ** 2), [2.5, 97.5])) for c in range(n_classes)]
    return mean, votes, widths, (first, second), stats.ttest_rel(proba[:, first], proba[:, second]).pvalue


def test_the_evidence_equals_plain_loops_and_scipys_t_test(draws):
    evidence = weigh(draws, tau=0.3)
    for n in range(len(evidence)):
        mean, votes, widths, leading, p_value = plain(draws[:, n], tau=0.3)
        np.testing.assert_allclose(evidence.proba[n], mean)
        assert evidence.votes[n].tolist() == votes
        np.testing.assert_allclose(evidence.piw[n], widths)
        assert tuple(evidence.leading[n]) == leading
        assert evidence.p_value[n] == pytest.approx(p_value, rel=1e-8)
    assert np.ptp(evidence.p_value) > 0.5


def test_probabilities_sum_to_one_and_sharpen_as_the_temperature_falls(draws):
    hot, cold = probabilities(draws, tau=10.0), probabilities(draws, tau=0.01)
    np.testing.assert_allclose(hot.sum(axis=-1), 1)
    np.testing.assert_allclose(cold.sum(axis=-1), 1)
    assert hot.max() < 0.6
    assert np.median(cold.max(axis=-1)) > 0.99


def test_values_above_one_are_no_better_than_values_below():
    assert probabilities([[[1.4, 0.6]]]) == pytest.approx(np.array([[[0.5, 0.5]]]))
    assert weigh([[[1.9, 0.8]], [[1.8, 0.7]]]).vote == [1]


def test_permuted_classes_permute_everything(draws):
    order = np.array([2, 0, 3, 1])
    plain, permuted = weigh(draws), weigh(draws[:, :, order])
    for name in ("proba", "votes", "piw", "vote_shares"):
        np.testing.assert_allclose(getattr(permuted, name), getattr(plain, name)[:, order])
    np.testing.assert_array_equal(order[permuted.leading], plain.leading)
    np.testing.assert_array_equal(order[permuted.narrowest], plain.narrowest)
    np.testing.assert_allclose(permuted.p_value, plain.p_value)


def test_the_order_of_rows_and_of_draws_changes_nothing(draws):
    rows, times = np.random.default_rng(2).permutation(30), np.random.default_rng(3).permutation(50)
    whole, shuffled = weigh(draws), weigh(draws[times][:, rows])
    for field in dataclasses.fields(whole):
        np.testing.assert_allclose(getattr(shuffled, field.name), getattr(whole, field.name)[rows])


@pytest.mark.parametrize("size", [1, 7, 30])
def test_chunks_of_rows_say_what_the_whole_says(draws, size):
    whole = weigh(draws, tau=0.5, piw="raw", coverage=0.8)
    chunks = (draws[:, i : i + size] for i in range(0, 30, size))
    parts = gather(chunks, tau=0.5, piw="raw", coverage=0.8)
    for field in dataclasses.fields(whole):
        np.testing.assert_allclose(getattr(parts, field.name), getattr(whole, field.name), rtol=1e-9)


def test_the_size_of_the_working_blocks_changes_nothing(draws, monkeypatch):
    whole, qq, tau = weigh(draws), qq_differences(draws), tune_temperature(draws, np.zeros(30, int))
    monkeypatch.setattr(confidence, "BLOCK", 900)
    for field in dataclasses.fields(whole):
        np.testing.assert_array_equal(getattr(weigh(draws), field.name), getattr(whole, field.name))
    np.testing.assert_array_equal(qq_differences(draws).ordered, qq.ordered)
    assert tune_temperature(draws, np.zeros(30, int)) == pytest.approx(tau)


def test_after_a_unanimous_vote_the_runner_up_has_the_next_highest_probability():
    y0 = prototypes([2], 4, noise=0.01) + np.array([0.0, 0.3, 0.0, 0.1])
    evidence = weigh(y0)
    assert evidence.vote_shares.tolist() == [[0.0, 0.0, 1.0, 0.0]]
    assert evidence.leading.tolist() == [[2, 1]]
    assert evidence.p_value < 1e-10


def test_equal_votes_go_to_the_more_probable_class():
    evidence = weigh([[[1.0, 0.6, 0.0]], [[0.0, 1.0, 0.0]]])
    assert evidence.votes.tolist() == [[1, 1, 0]]
    assert evidence.leading.tolist() == [[1, 0]]


def test_draws_that_cannot_tell_two_classes_leave_the_row_uncertain():
    evidence = weigh(np.ones((5, 1, 3)))
    assert (evidence.vote, evidence.p_value) == (0, 1.0)
    assert not confidence.assess(evidence, list("abc"))["certain"].any()


def test_draws_that_never_vary_leave_no_doubt():
    evidence = weigh(np.tile(np.eye(3)[[1]], (5, 1, 1)))
    assert (evidence.vote, evidence.p_value) == (1, 0.0)
    assert (evidence.piw == 0).all()


def test_with_equal_noise_the_raw_width_guesses_and_the_squared_form_knows():
    y = np.arange(400) % 5
    y0 = prototypes(y, 5, noise=0.15)
    assert metrics.accuracy(y, weigh(y0).narrowest) > 99
    assert metrics.accuracy(y, weigh(y0, piw="raw").narrowest) == pytest.approx(20, abs=7)


def test_in_probability_space_the_contrast_between_right_and_wrong_is_lost():
    """CARD: after the softmax the narrowest interval predicts about as well as a guess."""
    y = np.arange(300) % 5
    wrong = np.arange(300) % 4 == 0
    y0 = prototypes(np.where(wrong, (y + 1) % 5, y), 5, noise=0.1)

    def contrast(width):
        of_true = np.take_along_axis(width, y[:, None], axis=1)[:, 0]
        return of_true[wrong].mean() / of_true[~wrong].mean()

    tau = tune_temperature(y0, y)
    before, after = interval_widths(y0), interval_widths(probabilities(y0, tau), piw="raw")
    assert contrast(before) > 10
    assert contrast(after) < 1.5
    assert metrics.accuracy(y, before.argmin(axis=1)) == 75
    assert metrics.accuracy(y, after.argmin(axis=1)) < 25


def test_the_interval_width_of_normal_draws_is_that_of_the_normal_law():
    y0 = np.random.default_rng(4).normal(0.3, 0.2, size=(100_000, 1, 2))
    for coverage in (0.5, 0.95):
        expected = 0.4 * stats.norm.ppf((1 + coverage) / 2)
        assert interval_widths(y0, "raw", coverage) == pytest.approx(np.full((1, 2), expected), rel=0.02)


def test_the_tuned_temperature_has_the_lowest_nll_on_its_rows():
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=200)
    shown = np.where(rng.uniform(size=200) < 0.2, (y + 1) % 3, y)
    y0 = prototypes(shown, 3, noise=0.3, n_draws=20)

    def nll(tau):
        return metrics.nll_proba(y, probabilities(y0, tau).mean(axis=0))

    tau = tune_temperature(y0, y)
    assert nll(tau) <= min(nll(t) for t in np.geomspace(1e-3, 1e2, 200)) + 1e-6
    assert nll(tau) < nll(1.0) - 0.1


def test_the_temperature_stays_within_its_bounds_when_more_is_always_better():
    y = np.arange(6) % 3
    assert tune_temperature(prototypes(y, 3, 0.01), y, bounds=(0.1, 1)) == pytest.approx(0.1, rel=1e-3)
    assert tune_temperature(prototypes(y, 3, 0.01), (y + 1) % 3, bounds=(0.1, 1)) == pytest.approx(
        1, rel=1e-3
    )


def test_assess_tells_each_row_in_the_users_labels(draws):
    evidence = weigh(draws, tau=0.2)
    table = confidence.assess(evidence, CLASSES, alpha=0.01)
    widths = [f"piw_{name}" for name in CLASSES]
    first = ["label", "vote", "vote_share", "probability"]
    assert table.columns.tolist() == [*first, *widths, "p_value", "certain"]
    names = np.array(CLASSES)
    assert table["label"].tolist() == names[evidence.proba.argmax(axis=1)].tolist()
    assert table["vote"].tolist() == names[evidence.vote].tolist()
    np.testing.assert_allclose(table["vote_share"], evidence.votes.max(axis=1) / 50)
    np.testing.assert_allclose(table["probability"], evidence.proba.max(axis=1))
    np.testing.assert_array_equal(table[widths], evidence.piw)
    np.testing.assert_array_equal(table["certain"], table["p_value"] < 0.01)
    assert 0 < table["certain"].sum() < 30


def test_label_and_probability_follow_other_probabilities_when_given(draws):
    evidence = weigh(draws)
    proba = np.tile([0.1, 0.2, 0.6, 0.1], (30, 1))
    table = confidence.assess(evidence, CLASSES, proba=proba)
    assert (table["label"] == "eel").all()
    assert (table["probability"] == 0.6).all()
    assert (table["vote"] == confidence.assess(evidence, CLASSES)["vote"]).all()


@pytest.mark.parametrize("classes", [[3, 7], [False, True], ["no", "yes"]])
def test_labels_keep_their_type(classes):
    table = confidence.assess(weigh(prototypes([1, 0], 2, 0.01)), classes)
    assert table["label"].tolist() == classes[::-1]
    assert [type(label) for label in table["vote"].tolist()] == [type(label) for label in classes]


def test_qq_data_of_each_row_equal_scipys_probplot(draws):
    qq = qq_differences(draws, tau=0.5)
    proba, leading = probabilities(draws, tau=0.5), weigh(draws, tau=0.5).leading
    for n, (first, second) in enumerate(leading):
        (theory, ordered), (_, _, r) = stats.probplot(proba[:, n, first] - proba[:, n, second])
        np.testing.assert_allclose(qq.theoretical, theory)
        np.testing.assert_allclose(qq.ordered[:, n], ordered)
        assert qq.correlation[n] == pytest.approx(r)


def test_qq_correlation_tells_normal_differences_from_two_humps():
    normal = prototypes([0], 3, noise=0.05)
    humps = normal.copy()
    humps[::2] = humps[::2, :, [1, 0, 2]]
    assert qq_differences(normal).correlation > 0.99
    assert qq_differences(humps).correlation < 0.95
    assert np.isnan(qq_differences(np.ones((5, 1, 3))).correlation).all()


def test_a_thousand_classes_pass_one_chunk_at_a_time():
    y = np.arange(0, 1000, 125)
    chunks = (prototypes([c], 1000, noise=0.1, n_draws=20, seed=int(c)) for c in y)
    evidence = gather(chunks)
    np.testing.assert_array_equal(evidence.vote, y)
    assert evidence.piw.shape == (8, 1000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: weigh(d[0]), r"shape \(n_draws, n_rows, n_classes\)"),
        (lambda d: weigh(d[:1]), "at least 2 draws"),
        (lambda d: weigh(d[:, :0]), "1 row"),
        (lambda d: weigh(d[:, :, :1]), "2 classes"),
        (lambda d: weigh(np.where(d > 1, np.nan, d)), "NaN"),
        (lambda d: weigh(d, tau=0), "temperature tau must be a positive number; got 0"),
        (lambda d: weigh(d, tau=math.nan), "positive number; got nan"),
        (lambda d: weigh(d, piw="log"), "got 'log'"),
        (lambda d: weigh(d, coverage=95), "coverage must lie between 0 and 1, as 0.95; got 95"),
        (lambda d: gather([]), "no chunks"),
        (lambda d: gather([d, d[:, :, :3]]), r"same number of classes; got \[3, 4\]"),
        (lambda d: confidence.assess(weigh(d), CLASSES[:3]), "each of the 4 columns"),
        (lambda d: confidence.assess(weigh(d), ["cat"] * 4), "each name once"),
        (lambda d: confidence.assess(weigh(d), CLASSES, alpha=5), "alpha must lie between 0 and 1"),
        (lambda d: confidence.assess(weigh(d), CLASSES, proba=np.ones((2, 4))), "proba must have the shape"),
        (lambda d: tune_temperature(d, np.full(30, 4)), "from 0 to 3"),
        (lambda d: tune_temperature(d, np.zeros(3, int)), "each of the 30 rows"),
        (lambda d: tune_temperature(d, np.zeros(30)), "whole number"),
        (lambda d: tune_temperature(d, np.zeros(30, int), bounds=(2, 1)), "must ascend"),
    ],
)
def test_bad_input_is_refused_in_plain_words(draws, call, message):
    with pytest.raises(ValueError, match=message):
        call(draws)
