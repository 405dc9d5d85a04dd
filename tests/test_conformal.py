"""The promises of conformal intervals, by simulation."""

import numpy as np
import pytest

from card import CARDRegressor, load
from card.conformal import SLACK, CrossCalibrated, SplitCalibrated, ends_at, scores, thinned
from card.distribution import Gaussian
from card.responses import OnGrid, Within

RNG = np.random.default_rng(0)


def test_the_score_of_a_response_is_that_of_the_interval_it_ends():
    bell = Gaussian(RNG.normal(size=50), RNG.uniform(0.5, 2, 50))
    y = bell.location + bell.scale * RNG.normal(size=50) * 4  # far into both tails
    score = scores(bell, y)
    lower, upper = (np.diag(end) for end in ends_at(bell, score))
    assert np.allclose(np.where(y < bell.location, lower, upper), y, rtol=1e-6)


def simulate(calibrated_interval, n_runs: int = 400) -> float:
    """Share of new rows inside 90 % intervals when the model's scale is wrong by a factor of three."""
    inside = []
    for run in range(n_runs):
        rng = np.random.default_rng(run)
        wrong = Gaussian(np.zeros(60), np.full(60, 1 / 3))
        y, new = rng.normal(size=60), rng.normal(size=60)
        low, high = calibrated_interval(wrong, y).T
        inside.append(((low <= new) & (new <= high)).mean())
    return float(np.mean(inside))


def test_split_covers_even_around_a_wrong_model():
    def interval(model, y):
        return SplitCalibrated(model, np.sort(scores(model, y))).interval(0.9)

    share = simulate(interval)
    assert 0.9 - 0.006 <= share <= 0.925


def test_cv_plus_covers_even_around_a_wrong_model():
    def interval(model, y):
        folds = np.arange(60) % 5
        members = [model] * 5
        kept = [thinned(scores(model[folds == k], y[folds == k])) for k in range(5)]
        return CrossCalibrated(model, members, kept).interval(0.9)

    share = simulate(interval)
    assert 0.9 - 0.006 <= share <= 0.94


@pytest.mark.parametrize("kind", ["split", "cv+"])
def test_counts_are_covered_around_a_wrong_model(kind):
    """Of whole numbers many scores tie: the promise holds all the same, and ends are finite."""
    inside = []
    for run in range(100):
        rng = np.random.default_rng(run)
        wrong = OnGrid(Gaussian(np.full(60, 2.0), np.full(60, 0.5)))
        y, new = rng.poisson(2.5, 60).astype(float), rng.poisson(2.5, 60)
        if kind == "split":
            low, high = SplitCalibrated(wrong, np.sort(scores(wrong, y))).interval(0.8).T
        else:
            kept = [thinned(scores(wrong[k::5], y[k::5])) for k in range(5)]
            low, high = CrossCalibrated(wrong, [wrong] * 5, kept).interval(0.8).T
        assert np.isfinite(low).all()
        assert high.max() < 20
        inside.append(((low <= new) & (new <= high)).mean())
    assert 0.79 <= np.mean(inside) <= 0.95


def test_a_row_lies_in_the_interval_at_its_own_score():
    rating = OnGrid(Gaussian(np.linspace(-1, 5, 40), np.full(40, 0.6)), np.array([1.0, 2.0, 3.0, 5.0]))
    y = np.tile([1.0, 2.0, 3.0, 5.0], 10)
    lower, upper = (np.diag(end) for end in ends_at(rating, scores(rating, y) * (1 + SLACK) + SLACK))
    assert ((lower <= y) & (y <= upper)).all()
    assert lower.min() >= 1.0
    assert upper.max() <= 5.0


def test_an_infinite_interval_ends_where_the_responses_end():
    inside = Within(Gaussian(np.zeros(2), np.ones(2)), -0.5, 1.0)
    assert SplitCalibrated(inside, np.array([0.5])).interval(0.9).tolist() == [[-0.5, 1.0]] * 2


def test_where_next_to_nothing_is_asked_ends_do_not_cross():
    model = Gaussian(RNG.normal(size=20), np.ones(20))
    kept = [thinned(np.abs(RNG.normal(size=10))) for _ in range(3)]
    low, high = CrossCalibrated(model, [model, model[::-1], model], kept).interval(0.05).T
    assert (low <= high).all()


def test_too_few_scores_for_a_promise_give_the_whole_line():
    model = Gaussian(np.zeros(2), np.ones(2))
    assert SplitCalibrated(model, np.array([0.5, 1.0])).interval(0.9).tolist() == [[-np.inf, np.inf]] * 2


def test_thinning_never_understates_a_score():
    score = RNG.exponential(size=5000)
    kept = thinned(score)
    assert len(kept) <= 400
    assert kept[:, 1].sum() == 5000
    for level in (0.5, 0.9, 0.99):
        rank = np.searchsorted(np.cumsum(kept[:, 1]), level * 5000)
        assert kept[rank, 0] >= np.quantile(score, level) - 1e-12


@pytest.mark.parametrize("kind", ["split", "cv+"])
def test_the_regressors_intervals_are_calibrated_saved_and_loaded(kind, tmp_path):
    X = RNG.normal(size=(120, 2))
    y = X[:, 0] + RNG.normal(size=120)
    reg = CARDRegressor(conformal=kind, epochs=3, cv=3, repeats=1, random_state=0).fit(X, y)
    interval = reg.predict_interval(X, 0.8)
    assert interval.shape == (120, 2)
    assert (interval[:, 0] < interval[:, 1]).all()
    plain = reg.predict_quantiles(X, [0.1, 0.9])
    assert not np.allclose(interval, plain)
    reg.save(tmp_path / "m.card")
    assert np.array_equal(load(tmp_path / "m.card").predict_interval(X, 0.8), interval)


def test_what_cannot_be_promised_is_refused():
    X, y = RNG.normal(size=(40, 2)), RNG.normal(size=(40, 2))
    with pytest.raises(ValueError, match="for one target"):
        CARDRegressor(conformal="split").fit(X, y)
    with pytest.raises(ValueError, match="needs folds"):
        CARDRegressor.from_recipe("paper", conformal="cv+").fit(X, y[:, 0])
    with pytest.raises(ValueError, match="leaves 3 rows"):
        CARDRegressor(conformal="split").fit(X[:4], y[:4, 0])
