"""Scores of predictions with a known law have known values, and error bars of the right size."""

import numpy as np
import pytest
from gaussians import Gaussians
from scipy.stats import norm

from card.evaluation import METRICS, Rows, assess_rows, score, score_classes, score_targets


@pytest.fixture(scope="module")
def honest():
    rng = np.random.default_rng(0)
    centre = rng.normal(size=2000)
    law = Gaussians(centre, 0.5)
    y = law.sample(1, 1)[0]
    return assess_rows(y, law)


def test_an_honest_gaussian_has_the_scores_that_theory_says(honest):
    found = score(honest)
    expected = {
        "rmse": 0.5,
        "crps": 0.5 / np.sqrt(np.pi),
        "nll": np.log(0.5) + 0.5 * np.log(2 * np.pi * np.e),
        "picp": 95.0,
    }
    for name, value in expected.items():
        assert abs(found[name].value - value) < 4 * found[name].error
    assert found["piw"].value == pytest.approx(2 * norm.ppf(0.975) * 0.5)
    assert found["qice"].value < 1.0


def test_error_bars_are_those_of_the_sampling_distribution(honest):
    found = score(honest)
    n = len(honest)
    assert found["rmse"].error == pytest.approx(0.5 / np.sqrt(2 * n), rel=0.25)
    assert found["picp"].error == pytest.approx(100 * np.sqrt(0.95 * 0.05 / n), rel=0.25)


def test_rows_join_to_what_they_were(honest):
    parts = [honest[:700], honest[700:]]
    assert [METRICS[m](Rows.join(parts)) for m in METRICS] == [METRICS[m](honest) for m in METRICS]


def test_one_of_several_targets_is_scored_by_itself():
    from card.distribution import Gaussian

    rng = np.random.default_rng(0)
    location = rng.normal(size=(50, 2))
    both = Gaussian(location, np.array([1.0, 3.0]))
    y = both.sample(1, 0)[0]
    one = assess_rows(y, both, target=1)
    alone = assess_rows(y[:, 1], Gaussian(location[:, 1], np.array(3.0)))
    for name in ("y", "mean", "std", "lower", "upper", "crps", "pit"):
        np.testing.assert_allclose(getattr(one, name), getattr(alone, name))


def test_the_nll_of_several_targets_is_told_once():
    from card.distribution import Gaussian

    both = Gaussian(np.zeros((50, 2)), np.array([1.0, 3.0]))
    y = both.sample(1, 0)[0]
    rows = {name: assess_rows(y, both, target=i) for i, name in enumerate("ab")}
    found = score_targets(rows)
    assert list(found) == ["a", "b", "all targets"]
    assert "nll" not in found["a"]
    assert list(found["all targets"]) == ["nll"]
    assert found["all targets"]["nll"].value == pytest.approx(-both.logpdf(y).mean())
    assert "nll" in score_targets({"a": rows["a"]})["a"]


def test_whole_numbers_are_judged_by_the_randomised_pit():
    from card.distribution import Gaussian
    from card.responses import OnGrid

    n = 4000
    law = OnGrid(Gaussian(np.full(n, 2.3), np.array(1.0)))
    rows = assess_rows(law.sample(1, 0)[0], law)
    assert METRICS["qice"](rows) < 0.8


def test_classes_are_scored_with_labels_of_any_kind():
    y = np.array(["cat", "dog", "dog", "cat"])
    proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    found = score_classes(y, proba, np.array([True, True, False, True]), ["cat", "dog"])
    assert found["accuracy"].value == 75
    assert found["pavpu"].value == 100
    assert found["nll_proba"].value == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.7]).mean())
