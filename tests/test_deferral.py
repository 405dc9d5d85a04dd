"""Which rows go to a person: the budget is kept, the target is met, and the gain is counted."""

import numpy as np
import pytest

from card.confidence import weigh
from card.deferral import deferral_gain, doubt, doubt_limit, triage


@pytest.fixture
def judged():
    """2000 doubts in [0, 1], and answers that are wrong with that probability over two."""
    rng = np.random.default_rng(0)
    doubts = rng.uniform(size=2000)
    return doubts, rng.uniform(size=2000) > doubts / 2


@pytest.mark.parametrize("n", [1, 7, 100, 1000])
@pytest.mark.parametrize("budget", [0, 0.05, 0.29, 0.5, 1])
def test_the_budget_is_kept_exactly_even_among_ties(n, budget):
    distinct, tied = np.random.default_rng(n).uniform(size=n), np.zeros(n)
    wanted = round(100 * budget) * n // 100
    assert triage(distinct, budget=budget).sum() == wanted
    assert triage(tied, budget=budget).sum() == wanted


def test_a_person_sees_the_most_doubtful_rows(judged):
    doubts, _ = judged
    chosen = triage(doubts, budget=0.1)
    assert doubts[chosen].min() > doubts[~chosen].max()


def test_of_equally_doubtful_rows_the_earlier_are_seen_first():
    assert triage([0.5, 0.9, 0.5, 0.5], budget=0.5).tolist() == [True, True, False, False]
    tied = np.arange(1000) % 3
    assert triage(tied, budget=0.1).nonzero()[0].tolist() == list(range(2, 300, 3))


def test_the_rows_kept_reach_the_accuracy_asked_for_and_no_more_are_deferred_than_needed(judged):
    doubts, correct = judged
    limit = doubt_limit(doubts, correct, 0.9)
    assert correct[doubts <= limit].mean() >= 0.9
    larger = np.sort(doubts[doubts > limit])
    assert all(correct[doubts <= other].mean() < 0.9 for other in larger)


def test_the_target_carries_over_to_new_rows(judged):
    rng = np.random.default_rng(1)
    doubts = rng.uniform(size=5000)
    correct = rng.uniform(size=5000) > doubts / 2
    chosen = triage(doubts, target_accuracy=0.9, held_out=judged)
    assert 0.2 < chosen.mean() < 0.8
    assert correct[~chosen].mean() == pytest.approx(0.9, abs=0.02)


def test_rows_of_equal_doubt_are_kept_or_deferred_together():
    doubts, correct = [0.1, 0.5, 0.5, 0.5], [True, True, True, False]
    assert doubt_limit(doubts, correct, 0.9) == 0.1
    assert doubt_limit(doubts, correct, 0.8) == 0.1
    assert doubt_limit(doubts, correct, 0.75) == 0.5


def test_a_target_that_was_never_reached_sends_all_rows_to_a_person():
    held_out = [0.1, 0.2], [False, True]
    assert triage([0.0, 0.5], target_accuracy=0.9, held_out=held_out).all()


def test_a_target_that_all_rows_reach_sends_none_of_the_rows_within_experience():
    held_out = [0.1, 0.2], [True, True]
    assert triage([0.0, 0.2], target_accuracy=0.9, held_out=held_out).tolist() == [False, False]


@pytest.mark.parametrize("by", ["piw", "p_value", "margin"])
def test_every_kind_of_doubt_is_larger_where_the_draws_disagree(by):
    rng = np.random.default_rng(2)
    centre = np.array([[0.95, 0.0, 0.0], [0.5, 0.48, 0.0]])
    noise = np.array([[0.05], [0.4]])
    evidence = weigh(centre + noise * rng.standard_normal((60, 2, 3)), tau=0.2)
    sure, unsure = doubt(evidence, by)
    assert sure < unsure


def test_doubts_are_what_they_say():
    evidence = weigh(np.random.default_rng(3).uniform(size=(20, 10, 4)))
    ordered = np.sort(evidence.proba, axis=1)
    np.testing.assert_allclose(doubt(evidence, "margin"), 1 - (ordered[:, -1] - ordered[:, -2]))
    np.testing.assert_array_equal(doubt(evidence), evidence.piw[np.arange(10), evidence.vote])
    np.testing.assert_array_equal(doubt(evidence, "p_value"), evidence.p_value)


def test_the_gain_is_the_difference_of_the_areas_by_a_plain_loop(judged):
    doubts, correct = judged
    rng = np.random.default_rng(4)
    f_correct, f_proba = rng.uniform(size=2000) > 0.3, rng.dirichlet(np.ones(3), size=2000)

    def area(right, score):
        order = np.argsort(score)
        return np.mean([1 - right[order[:k]].mean() for k in range(1, 2001)])

    gain = deferral_gain(correct, doubts, f_correct, f_proba)
    assert gain.aurc == pytest.approx(area(correct, doubts))
    assert gain.f_aurc == pytest.approx(area(f_correct, -f_proba.max(axis=1)))
    assert gain.gain == gain.f_aurc - gain.aurc > 0


def test_the_same_order_of_the_same_answers_gains_nothing(judged):
    doubts, correct = judged
    proba = np.column_stack([1 - doubts / 2, doubts / 2])
    assert deferral_gain(correct, doubts, correct, proba).gain == pytest.approx(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: triage([1.0]), "either budget or target_accuracy"),
        (lambda: triage([1.0], budget=0.1, target_accuracy=0.9), "not both"),
        (lambda: triage([1.0], budget=5), "budget is a fraction between 0 and 1, as 0.05 for 5 %; got 5"),
        (
            lambda: triage([1.0], target_accuracy=95, held_out=([1.0], [True])),
            "target_accuracy is a fraction",
        ),
        (lambda: triage([1.0], target_accuracy=0.9), r"needs held_out=\(doubts, correct\)"),
        (lambda: triage([np.nan], budget=0.1), "NaN"),
        (lambda: triage([], budget=0.1), "at least one row"),
        (lambda: triage([[1.0]], budget=0.1), r"got shape \(1, 1\)"),
        (lambda: doubt_limit([1.0, 2.0], [True], 0.9), "shape"),
        (lambda: doubt(weigh(np.ones((2, 1, 2))), "mood"), "got 'mood'"),
        (lambda: deferral_gain([True], [0.1], [True], [0.9]), r"shape \(n_rows, n_classes\)"),
    ],
)
def test_bad_input_is_refused_in_plain_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()
