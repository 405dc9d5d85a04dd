"""The toys and their laws: what is drawn must follow what is said to be true."""

import numpy as np
import pytest
import torch
from scipy import stats

from card import metrics
from card.datasets import TOY_NAMES, make_toy

VARIANTS = [(name, variant) for variant in ("paper", "authors") for name in TOY_NAMES]
LEVELS = np.arange(1, 10) / 10


def x_of_interest(toy):
    """Five covariates spread over the data."""
    return np.quantile(toy.X[:, 0], [0.1, 0.3, 0.5, 0.7, 0.9])


@pytest.fixture(params=VARIANTS, ids=["-".join(v) for v in VARIANTS])
def toy(request):
    name, variant = request.param
    return make_toy(name, 1500, random_state=0, variant=variant)


def test_shapes_are_those_of_scikit_learn(toy):
    assert toy.X.shape == (1500, 1)
    assert toy.y.shape == toy.true_mean.shape == toy.true_median.shape == (1500,)
    assert np.isfinite(toy.X).all()
    assert np.isfinite(toy.y).all()


def test_the_law_is_that_of_the_data_for_small_and_for_large_x(toy):
    pit = toy.law.cdf(toy.X, toy.y)
    low = toy.X[:, 0] < np.median(toy.X)
    for part in (pit[low], pit[~low]):
        assert stats.kstest(part, "uniform").pvalue > 1e-3


def test_the_law_scores_the_floor_of_qice_and_its_nominal_coverage(toy):
    lower, upper, *edges = toy.law.quantile(toy.X, [0.025, 0.975, *LEVELS]).T
    assert metrics.qice(toy.y, np.stack(edges, axis=1)) < 1.3  # about 0.6 in the mean at 1500 rows
    assert metrics.picp(toy.y, lower, upper) == pytest.approx(95, abs=1.9)


def test_quantiles_invert_the_cdf(toy):
    x = x_of_interest(toy)
    quantiles = toy.law.quantile(x, LEVELS)
    assert quantiles.shape == (5, 9)
    assert (np.diff(quantiles, axis=1) > 0).all()
    np.testing.assert_allclose(toy.law.cdf(x, quantiles), np.tile(LEVELS, (5, 1)), atol=1e-6)
    np.testing.assert_allclose(toy.law.median(x), quantiles[:, 4], atol=1e-9)


def test_the_density_is_the_slope_of_the_cdf(toy):
    x = x_of_interest(toy)
    y = toy.law.quantile(x, LEVELS)
    h = 1e-3 * (y[:, -1:] - y[:, :1])
    slope = (toy.law.cdf(x, y + h) - toy.law.cdf(x, y - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(toy.law.logpdf(x, y)), slope, rtol=5e-3, atol=1e-9)


def test_the_mean_is_the_integral_of_the_quantiles(toy):
    x = x_of_interest(toy)
    levels = (np.arange(4000) + 0.5) / 4000
    spread = np.ptp(toy.law.quantile(x, [0.05, 0.95]), axis=1)
    error = toy.law.quantile(x, levels).mean(axis=1) - toy.law.mean(x)
    np.testing.assert_allclose(error / spread, 0, atol=1e-3)


def test_one_response_a_row_and_many_agree(toy):
    x, y = toy.X[:7], toy.y[:7]
    np.testing.assert_allclose(toy.law.cdf(x, np.stack([y, y + 1], axis=1))[:, 0], toy.law.cdf(x, y))
    np.testing.assert_allclose(toy.law.logpdf(x, y[:, None])[:, 0], toy.law.logpdf(x, y))


@pytest.mark.parametrize(("name", "error"), [("log_log_cubic", 4.28), ("log_log_linear", 0.065)])
def test_the_noiseless_function_of_the_log_log_toys_is_the_median_not_the_mean(name, error):
    toy = make_toy(name, 50_000, random_state=0)
    np.testing.assert_allclose(toy.noiseless, toy.true_median)
    assert metrics.rmse(toy.noiseless, toy.true_mean) == pytest.approx(error, rel=0.01)


FORMULAS = {
    ("linear", "paper"): lambda x: 2 * x + 3,
    ("linear", "authors"): lambda x: 2 + 3 * x,
    ("quadratic", "paper"): lambda x: 3 * x**2 + 2 * x + 1,
    ("log_log_linear", "paper"): lambda x: x,
    ("log_log_cubic", "paper"): lambda x: x**3,
    ("sinusoidal", "paper"): lambda x: x + 0.3 * np.sin(2 * np.pi * x),
}


@pytest.mark.parametrize(("name", "variant"), FORMULAS)
def test_the_noiseless_function_is_the_papers(name, variant):
    toy = make_toy(name, 100, random_state=0, variant=variant)
    np.testing.assert_allclose(toy.noiseless, FORMULAS[name, variant](toy.X[:, 0]))


@pytest.mark.parametrize("name", ["inverse_sinusoidal", "eight_gaussians", "full_circle"])
def test_a_multimodal_toy_has_no_noiseless_function(name):
    assert make_toy(name, 10, random_state=0).noiseless is None


@pytest.mark.parametrize(
    ("name", "sd"), [("linear", 2.0), ("quadratic", 2.0), ("sinusoidal", 0.08), ("log_log_cubic", 0.15)]
)
def test_the_noise_has_the_papers_size(name, sd):
    toy = make_toy(name, 20_000, random_state=1)
    log = np.log if "log" in name else np.asarray
    assert (log(toy.y) - log(toy.noiseless)).std() == pytest.approx(sd, rel=0.02)


def test_the_inverse_sinusoidal_has_three_modes_in_the_middle_and_one_outside():
    law, y = make_toy("inverse_sinusoidal", 1).law, np.linspace(0, 1, 1001)
    for x, modes in ((0.5, 3), (0.0, 1), (1.0, 1)):
        density = law.logpdf([x], y[None])[0]
        assert (np.diff(np.sign(np.diff(density))) < 0).sum() == modes


@pytest.mark.parametrize(("variant", "sd"), [("paper", 0.1), ("authors", 0.1 / np.sqrt(2))])
def test_the_eight_gaussians_lie_around_their_points_equally_often(variant, sd):
    toy = make_toy("8 Gaussians", 20_000, random_state=0, variant=variant)
    points = np.column_stack([toy.X[:, 0], toy.y])
    offsets = points[:, None] - toy.law.points
    nearest = np.square(offsets).sum(axis=2).argmin(axis=1)
    assert np.bincount(nearest).tolist() == pytest.approx([2500] * 8, rel=0.1)
    assert offsets[np.arange(20_000), nearest].std() == pytest.approx(sd, rel=0.02)


def test_the_full_circle_has_its_radius_and_all_directions():
    toy = make_toy("full_circle", 20_000, random_state=0)
    radius, angle = np.hypot(toy.X[:, 0], toy.y), np.arctan2(toy.y, toy.X[:, 0])
    assert (radius.mean(), radius.std()) == pytest.approx((10, 0.5), rel=0.02)
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


def test_a_seed_gives_the_same_rows_and_another_seed_others():
    one, two, other = (make_toy("full circle", 50, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.y, two.y)
    assert (one.y != other.y).all()


def as_in_the_authors_code(run, low, high, scale, n=10_240):
    """x and noise by the very calls that the authors' code makes, training rows first."""
    with torch.random.fork_rng():
        torch.manual_seed(1235 + run)
        x = torch.distributions.Uniform(float(low), float(high)).sample((n, 1))
        noise = torch.distributions.Normal(0.0, scale).sample((n, 1))
    order = np.arange(n)
    np.random.RandomState(1235 + run).shuffle(order)
    return x.numpy()[order, 0], noise.numpy()[order, 0]


@pytest.mark.parametrize("run", [0, 9])
def test_the_authors_variant_has_the_rows_of_the_authors_runs(run):
    x, noise = as_in_the_authors_code(run, -5, 5, 2.0)
    toy = make_toy("linear", random_state=run, variant="authors")
    np.testing.assert_allclose(toy.X[:, 0], x, atol=1e-5)
    np.testing.assert_allclose(toy.y, 2 + 3 * x + noise, atol=1e-5)
    y, noise = as_in_the_authors_code(run, 0, 1, 0.08)
    swapped = make_toy("inverse_sinusoidal", random_state=run, variant="authors")
    np.testing.assert_allclose(swapped.y, y, atol=1e-6)
    np.testing.assert_allclose(swapped.X[:, 0], y + 0.3 * np.sin(2 * np.pi * y) + noise, atol=1e-6)


def test_the_first_of_the_authors_eight_gaussians_is_the_first_of_their_generator():
    rng, toy = np.random.RandomState(1235), make_toy("8 gaussians", 64, random_state=0, variant="authors")
    noise, point = 0.1 * rng.randn(2), rng.choice(8)
    order = np.arange(64)
    np.random.RandomState(1235).shuffle(order)
    first = np.flatnonzero(order == 0)[0]
    expected = toy.law.points[point] + noise / np.sqrt(2)
    np.testing.assert_allclose([toy.X[first, 0], toy.y[first]], expected)


def test_the_authors_circle_has_the_noise_of_their_other_toys_and_angles_anew_for_the_test_rows():
    toy = make_toy("full circle", random_state=3, variant="authors")
    _, noise = as_in_the_authors_code(3, 0, 1, 0.5)
    np.testing.assert_allclose(np.hypot(toy.X[:, 0], toy.y) - 10, noise, atol=1e-6)
    shorter = make_toy("full circle", 5000, random_state=3, variant="authors").split()
    assert len(np.unique(np.arctan2(shorter.y_test, shorter.X_test[:, 0]))) == 1000


def test_coverage_of_the_law_varies_over_the_authors_runs_as_the_papers_does():
    """The paper's deviations are 0.53 (linear) to 0.62: the rows are the same, as good as."""
    covered = []
    for run in range(10):
        toy = make_toy("linear", random_state=run, variant="authors")
        rows = toy.split()
        lower, upper = toy.law.quantile(rows.X_test, [0.025, 0.975]).T
        covered.append(metrics.picp(rows.y_test, lower, upper))
    assert np.std(covered) == pytest.approx(0.53, abs=0.02)
    assert np.mean(covered) == pytest.approx(94.93, abs=0.01)


def test_without_a_seed_the_authors_variant_draws_other_rows_each_time():
    one, two = (make_toy("linear", 50, variant="authors").y for _ in range(2))
    assert (one != two).all()
    rng = np.random.default_rng(1)
    assert (make_toy("linear", 50, rng, "authors").y != make_toy("linear", 50, rng, "authors").y).all()


def test_the_default_size_and_split_are_the_papers():
    X_train, X_test, y_train, y_test = make_toy("linear", random_state=0).split()
    assert (len(X_train), len(X_test), len(y_train), len(y_test)) == (8192, 2048, 8192, 2048)


@pytest.mark.parametrize("name", ["Log-Log Cubic", "loglog cubic", "LOG_LOG_CUBIC", " log-log  cubic "])
def test_names_are_read_forgivingly(name):
    assert make_toy(name, 2).name == "log_log_cubic"


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"no toy named 'quadratik'\. Did you mean 'quadratic'\?"):
        make_toy("quadratik")
    with pytest.raises(ValueError, match="There are: linear, quadratic"):
        make_toy("zzzzzzz")


def test_bad_variant_and_size_are_refused():
    with pytest.raises(ValueError, match="variant must be 'paper' or 'authors'; got 'mine'"):
        make_toy("linear", variant="mine")
    with pytest.raises(ValueError, match="number of rows, must be at least 1; got 0"):
        make_toy("linear", n=0)
