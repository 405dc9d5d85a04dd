import numpy as np
import pytest
from scipy import stats

from card.distribution import Draws, Gaussian, OneColumn
from card.responses import OnGrid, Within, draws_within

RNG = np.random.default_rng(0)
BELL = Gaussian(np.array([0.0, 3.0, -2.0]), np.array([1.0, 0.5, 2.0]))


def test_gaussian_agrees_with_scipy():
    y = RNG.normal(size=(3, 7))
    truth = stats.norm(BELL.location[:, None], BELL.scale[:, None])
    assert np.allclose(BELL.cdf(y), truth.cdf(y))
    assert np.allclose(BELL.logpdf(y), truth.logpdf(y))
    assert np.allclose(BELL.quantile([0.1, 0.9]), truth.ppf([0.1, 0.9]))
    assert np.allclose(BELL.interval(0.9), truth.ppf([0.05, 0.95]))


@pytest.fixture(scope="module")
def draws() -> Draws:
    return Draws(BELL.sample(20_000, 1)[..., None], squeeze=True)


def test_many_draws_know_what_the_law_knows(draws):
    y = np.array([0.5, 2.9, -3.0])
    assert np.allclose(draws.mean(), BELL.mean(), atol=0.05)
    assert np.allclose(draws.std(), BELL.std(), rtol=0.02)
    assert np.allclose(draws.cdf(y), BELL.cdf(y), atol=0.01)
    assert np.allclose(draws.logpdf(y), BELL.logpdf(y), atol=0.05)
    assert np.allclose(draws.quantile(0.25), BELL.quantile(0.25), atol=0.05)


def test_shapes_of_one_and_of_several_targets(draws):
    assert draws.quantile(0.5).shape == (3,)
    assert draws.quantile([0.5]).shape == (3, 1)
    assert draws.interval(0.8).shape == (3, 2)
    assert draws.cdf(np.zeros((3, 4))).shape == (3, 4)
    assert draws.sample(7, 0).shape == (7, 3)
    assert len(draws[1:]) == 2
    several = Draws(RNG.normal(size=(50, 4, 2)), squeeze=False)
    assert several.mean().shape == (4, 2)
    assert several.quantile([0.1, 0.5, 0.9]).shape == (4, 3, 2)
    assert several.interval(0.9).shape == (4, 2, 2)
    assert several.logpdf(np.zeros((4, 2))).shape == (4,)
    assert several.cdf(np.zeros((4, 2))).shape == (4, 2)


def test_members_of_draws_split_the_variance():
    members = np.stack([RNG.normal(0, 1, 5000), RNG.normal(4, 1, 5000)], 1).reshape(-1, 1, 1)
    parts = Draws(members, squeeze=True, n_members=2).decompose()
    assert parts.aleatoric[0] == pytest.approx(1.0, rel=0.05)
    assert parts.epistemic[0] == pytest.approx(4.0, rel=0.05)
    assert parts.aleatoric + parts.epistemic == pytest.approx(members.var())


def test_within_bounds_is_the_truncated_law():
    inside = Within(BELL, -0.5, 4.0)
    truth = stats.truncnorm(
        (-0.5 - BELL.location) / BELL.scale, (4.0 - BELL.location) / BELL.scale, BELL.location, BELL.scale
    )
    y = np.array([0.2, 3.9, -0.1])
    assert np.allclose(inside.cdf(y), truth.cdf(y))
    assert np.allclose(inside.logpdf(y), truth.logpdf(y))
    assert np.allclose(inside.quantile(0.3), truth.ppf(0.3))
    assert np.allclose(inside.mean(), truth.mean(), atol=0.01)
    assert inside.sample(500, 0).min() >= -0.5
    assert inside.sample(500, 0).max() <= 4.0
    assert (inside.cdf(np.full(3, 4.0)) == 1).all()
    assert (inside.pdf(np.full(3, 4.1)) == 0).all()


def test_far_outside_its_bounds_a_prediction_sits_on_the_bound():
    far = Within(Gaussian(np.array([100.0]), np.array([1.0])), 0.0, 1.0)
    assert far.interval(0.9).tolist() == [[1.0, 1.0]]


def test_counts_have_probabilities_that_sum_to_one():
    counts = OnGrid(Gaussian(np.array([3.2, 0.4]), np.array([1.5, 0.8])))
    k = np.arange(0, 30.0)
    mass = counts.pdf(np.tile(k, (2, 1)))
    assert np.allclose(mass.sum(1), 1.0)
    assert np.allclose(np.cumsum(mass, 1), counts.cdf(np.tile(k, (2, 1))))
    assert np.allclose(counts.mean(), mass @ k, atol=0.02)
    assert (counts.pdf(np.array([2.5, -1.0])) == 0).all()
    quantiles = counts.quantile([0.05, 0.5, 0.95])
    assert (quantiles == np.round(quantiles)).all()
    assert quantiles.min() >= 0
    below = counts.cdf(quantiles - 1)
    assert (below < [0.05, 0.5, 0.95]).all()
    assert (counts.cdf(quantiles) >= np.array([0.05, 0.5, 0.95]) - 1e-9).all()


@pytest.mark.parametrize(("low", "high"), [(0.0, np.inf), (1.0, 4.0)])
def test_counts_within_bounds_keep_the_mass_of_the_bounds_themselves(low, high):
    counts = OnGrid(Gaussian(np.array([3.2, 0.4]), np.array([1.5, 0.8])))
    inside, k = Within(counts, low, high), np.arange(0, 30.0)
    every = np.tile(k, (2, 1))
    mass = counts.pdf(every) * ((k >= low) & (k <= high))
    assert np.allclose(inside.pdf(every), mass / mass.sum(1, keepdims=True))
    assert np.allclose(inside.cdf(every), np.cumsum(inside.pdf(every), 1))
    drawn = inside.sample(20_000, 0)
    assert (drawn == low).mean(0) == pytest.approx(inside.pdf(np.full(2, low)), abs=0.01)


def test_draws_beyond_the_bounds_give_way_to_draws_within():
    draws = RNG.normal(size=(20_000, 2, 2))
    kept = draws_within(draws, -1.0, np.inf)
    truth = stats.truncnorm(-1.0, np.inf)
    assert kept.min() >= -1.0
    assert kept.mean(0) == pytest.approx(np.full((2, 2), truth.mean()), abs=0.03)
    assert (kept == -1.0).mean() == 0  # nothing piles up at the bound
    assert draws_within(np.full((5, 1, 1), 9.0), 0.0, 1.0).ravel().tolist() == [1.0] * 5


def test_a_table_of_one_column_has_a_last_axis_of_its_own():
    one, values = OneColumn(BELL), np.tile([0.2, 3.9], (3, 1))
    assert one.mean().shape == one.std().shape == one.quantile(0.3).shape == (3, 1)
    assert one.quantile([0.1, 0.9]).shape == one.interval(0.9).shape == (3, 2, 1)
    assert one.sample(5, 0).shape == (5, 3, 1)
    assert np.array_equal(one.cdf(values[..., None])[..., 0], BELL.cdf(values))
    assert np.array_equal(one[:2].logpdf(values[:2]), BELL[:2].logpdf(values[:2]))


def test_ordinal_levels_are_the_only_values():
    levels = np.array([10.0, 20.0, 50.0])
    rating = OnGrid(Gaussian(np.array([0.9]), np.array([0.7])), levels)
    assert rating.pdf(levels[None]).sum() == pytest.approx(1.0)
    assert set(np.unique(rating.sample(300, 0))) <= set(levels)
    assert rating.cdf(np.array([[9.0, 10.0, 49.0, 50.0]]))[0, [0, 3]].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.quantile(0.0), "strictly between 0 and 1"),
        (lambda d: d.quantile([0.5, 1.0]), "strictly between 0 and 1"),
        (lambda d: d.quantile([]), "a number or a list"),
        (lambda d: d.interval(95), "0.9 means 90 %"),
        (lambda d: d.sample(0), "n_draws must be a whole number of 1 or more"),
        (lambda d: d.sample(2.5), "n_draws must be a whole number"),
        (lambda d: d.cdf(np.zeros(2)), "one row a prediction"),
    ],
)
def test_bad_requests_say_what_was_wanted(draws, call, message):
    with pytest.raises(ValueError, match=message):
        call(draws)
