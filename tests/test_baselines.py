"""The competitors: each learns a spread that changes with x, and keeps scikit-learn's manners."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from card.baselines import (
    DeepEnsembleRegressor,
    GCDSRegressor,
    MCDropoutRegressor,
    MixtureDensityRegressor,
    PBPRegressor,
    pbp,
)
from card.baselines.base import fit_together
from card.baselines.gcds import bounded_exp
from card.baselines.mixtures import GaussianMixture
from card.baselines.pbp import Posterior
from card.bench.methods import find_method
from card.nn import generators

LEARNERS = {
    "deep-ensembles": DeepEnsembleRegressor(n_members=2, epochs=60, lr=0.01, random_state=0),
    "mc-dropout": MCDropoutRegressor(dropout=(0.01, 0.3), hidden=(50,), epochs=60, lr=0.01, random_state=0),
    "mdn": MixtureDensityRegressor(n_components=2, hidden=(50,), epochs=60, lr=0.004, random_state=0),
    "gcds": GCDSRegressor(hidden=(50,), epochs=100, lr=0.005, random_state=0),
    "pbp": PBPRegressor(hidden=(20,), epochs=2, random_state=0),
}
QUICK = {
    "deep-ensembles": DeepEnsembleRegressor(n_members=2, epochs=12, lr=0.03, random_state=0),
    "mc-dropout": MCDropoutRegressor(
        dropout=0.01, n_passes=10, hidden=(50,), epochs=12, lr=0.03, random_state=0
    ),
    "mdn": MixtureDensityRegressor(n_components=2, hidden=(50,), epochs=12, lr=0.03, random_state=0),
    "gcds": GCDSRegressor(n_draws=50, hidden=(50,), epochs=20, lr=0.02, random_state=0),
    "pbp": PBPRegressor(hidden=(10,), epochs=1, random_state=0),
}
EVEN = {"mc-dropout", "pbp"}
"""Methods whose noise is the same everywhere by construction."""
TOO_SURE = {"gcds": 0.3}
"""The least share of the true spread to expect: a sampler trained by KL(made || real) seeks modes."""


def fan(n=600, seed=0, even=False):
    """y = 10 + 5 x + noise that is N(0, (0.5 + x)^2), x in (0, 2); or N(0, 1) everywhere."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 2, n)
    scale = np.ones(n) if even else 0.5 + x
    return x[:, None], 10 + 5 * x + scale * rng.standard_normal(n)


@pytest.fixture(scope="module", params=LEARNERS)
def learned(request):
    """A method's name, and its prediction at x = 0.25 and 1.75."""
    X, y = fan(even=request.param in EVEN)
    model = clone(LEARNERS[request.param]).fit(X, y)
    return request.param, model, model.predict_distribution(np.array([[0.25], [1.75]]))


def test_the_mean_is_learned(learned):
    name, _, d = learned
    mean = means_of_games() if name == "gcds" else d.mean()
    assert mean == pytest.approx([11.25, 18.75], abs=0.6)


def means_of_games(n=12):
    """A game of generator and critic never rests, and is left somewhere around the mean: many, at it."""
    X, y = fan()
    games = [
        GCDSRegressor(hidden=(50,), epochs=200, batch_size=128, lr=0.005, n_draws=100, random_state=i)
        for i in range(n)
    ]
    fit_together(games, [X] * n, [y] * n)
    return np.mean([game.predict_distribution([[0.25], [1.75]]).mean() for game in games], axis=0)


def test_the_spread_is_learned(learned):
    name, _, d = learned
    low, high = d.interval(0.9).T
    wanted = np.array([1.0, 1.0]) if name in EVEN else np.array([0.75, 2.25])
    share = (high - low) / 3.29 / wanted
    assert (share < 1.35).all()
    assert (share > TOO_SURE.get(name, 0.65)).all()


def test_the_spread_grows_where_the_noise_does(learned):
    name, _, d = learned
    narrow, wide = d.std()
    assert name in EVEN or wide > 2 * narrow


def test_a_seed_fixes_the_result_and_another_changes_it(learned):
    name, _, _ = learned
    X, y = fan(60)
    a, b, c = (clone(QUICK[name]).set_params(epochs=2, random_state=seed).fit(X, y) for seed in (1, 1, 2))
    levels = [0.1, 0.9]
    wanted = a.predict_distribution(X).quantile(levels)
    np.testing.assert_array_equal(b.predict_distribution(X).quantile(levels), wanted)
    assert not np.allclose(c.predict_distribution(X).quantile(levels), wanted)


def test_the_response_s_units_are_the_prediction_s(learned):
    name, _, _ = learned
    X, y = fan(60)
    a = clone(QUICK[name]).set_params(epochs=2).fit(X, y).predict_distribution(X)
    b = clone(QUICK[name]).set_params(epochs=2).fit(X, 3 + 100 * y).predict_distribution(X)
    np.testing.assert_allclose(b.quantile(0.8), 3 + 100 * a.quantile(0.8), rtol=1e-3)
    np.testing.assert_allclose(b.std(), 100 * a.std(), rtol=1e-3)


@parametrize_with_checks(list(QUICK.values()))
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", LEARNERS)
def test_splits_fitted_together_learn_what_each_learns_alone(name):
    tables = [fan(50, seed) for seed in (1, 2)]
    together = [clone(QUICK[name]).set_params(epochs=2, random_state=i) for i in (3, 4)]
    fit_together(together, *zip(*tables, strict=True))
    for i, (model, (X, y)) in enumerate(zip(together, tables, strict=True)):
        alone = clone(QUICK[name]).set_params(epochs=2, random_state=3 + i).fit(X, y)
        a, b = (m.predict_distribution(X).quantile([0.1, 0.6]) for m in (model, alone))
        np.testing.assert_allclose(a, b, rtol=1e-3)


def test_splits_of_different_sizes_are_fitted_too():
    tables = [fan(50, 1), fan(40, 2)]
    models = [clone(QUICK["deep-ensembles"]).set_params(epochs=1) for _ in tables]
    fit_together(models, *zip(*tables, strict=True))
    alone = clone(models[1]).fit(*tables[1])
    np.testing.assert_array_equal(models[1].predict(tables[0][0]), alone.predict(tables[0][0]))


def test_a_fit_that_breaks_leaves_nothing_behind(monkeypatch):
    model = clone(QUICK["deep-ensembles"])
    monkeypatch.setattr(model, "_learn", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.fit(*fan(20))
    with pytest.raises(NotFittedError):
        model.predict([[1.0]])


@pytest.mark.parametrize("name", LEARNERS)
def test_the_benchmark_knows_every_method(name):
    method = find_method(name)
    method.check("default", "regression", {"epochs": 3})
    model = method.build["regression"]("default", {"epochs": 3}, 7)
    assert (model.epochs, model.random_state) == (3, 7)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"epochs": 0}, "epochs must be above 0, got 0"), ({"hidden": (5, 0)}, r"hidden .* got \(5, 0\)")],
)
def test_a_setting_that_cannot_be_is_refused(learned, parameters, message):
    name, _, _ = learned
    with pytest.raises(ValueError, match=message):
        clone(QUICK[name]).set_params(**parameters).fit(*fan(20))


def test_members_disagree_where_there_were_no_rows():
    X, y = fan(100)
    d = clone(LEARNERS["deep-ensembles"]).fit(X, y).predict_distribution([[1.0], [8.0]])
    near, far = d.decompose().epistemic
    assert far > 4 * near


def test_adversarial_smoothing_changes_the_fit_a_little():
    X, y = fan(100)
    plain, smooth = (
        clone(LEARNERS["deep-ensembles"]).set_params(adversarial=a).fit(X, y).predict(X) for a in (0.0, 0.01)
    )
    assert 0 < np.abs(plain - smooth).max() < 2
    with pytest.raises(ValueError, match="adversarial must be 0"):
        clone(QUICK["deep-ensembles"]).set_params(adversarial=-1.0).fit(X, y)


def test_held_out_rows_choose_the_rate_and_the_noise():
    X, y = fan(even=True)
    model = clone(LEARNERS["mc-dropout"]).fit(X, y)
    assert model.network_.rate.item() == pytest.approx(0.01)  # a third of the units dropped blurs the line
    assert model.network_.noise.item() * y.std() == pytest.approx(1.0, rel=0.2)
    assert (model.predict_distribution(X).decompose().epistemic > 0).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dropout": (0.1, 1.0)}, "dropout must be a rate"),
        ({"validation_fraction": 0.0}, "validation_fraction must lie strictly between 0 and 1"),
    ],
)
def test_dropout_refuses_rates_that_are_none(parameters, message):
    with pytest.raises(ValueError, match=message):
        clone(QUICK["mc-dropout"]).set_params(**parameters).fit(*fan(20))


def test_a_mixture_network_finds_two_branches():
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 2, (400, 1))
    branch = rng.choice([-1.0, 1.0], 400)
    y = branch * X[:, 0] + 0.1 * rng.standard_normal(400)
    d = MixtureDensityRegressor(n_components=2, hidden=(50,), epochs=80, lr=0.01, random_state=0).fit(X, y)
    d = d.predict_distribution([[1.5]])
    assert d.quantile([0.25, 0.75])[0] == pytest.approx([-1.5, 1.5], abs=0.2)
    assert d.pdf([0.0]) < 0.05 * d.pdf([1.5])
    assert d.decompose().epistemic == 0


def test_the_critic_s_exponential_goes_on_as_its_tangent():
    x = torch.tensor([-3.0, 9.0, 10.0, 12.0], requires_grad=True)
    value = bounded_exp(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    top = np.exp(10.0)
    np.testing.assert_allclose(value.detach(), [np.exp(-3), np.exp(9), top, 3 * top], rtol=1e-5)
    np.testing.assert_allclose(slope[[0, 1, 3]], [np.exp(-3), np.exp(9), top], rtol=1e-5)


@pytest.mark.parametrize(("mean", "variance"), [(0.3, 1.0), (-2.0, 0.5), (5.0, 2.0), (-8.0, 1.0)])
def test_a_rectified_gaussian_has_the_moments_of_its_integral(mean, variance):
    a = np.linspace(0, 30, 300_001)
    density = np.exp(-0.5 * (a - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
    first, second = trapezoid(a * density, a), trapezoid(a**2 * density, a)
    m, v = pbp.rectified(np.array(mean), np.array(variance))
    assert m == pytest.approx(first, rel=1e-6)
    assert v == pytest.approx(second - first**2, rel=1e-5, abs=2e-12)


def log_evidence(posterior, means, variances, x, z):
    """log Z of a row as PyTorch would have it, for its derivatives."""
    m, v = x, torch.zeros_like(x)
    for i, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        if i:
            a = m / v.sqrt()
            above, bell = torch.special.ndtr(a), (-0.5 * a.square()).exp() / math.sqrt(2 * math.pi)
            first = m * above + v.sqrt() * bell
            m, v = first, (m.square() + v) * above + m * v.sqrt() * bell - first.square()
        one = torch.ones(len(x), 1, 1)
        m, v = torch.cat([m, one], dim=2), torch.cat([v, 0 * one], dim=2)
        n = mean.shape[1]
        m, v = m @ mean / math.sqrt(n), (m.square() @ variance + v @ (mean.square() + variance)) / n
    shape, rate = posterior.noise.T
    return torch.distributions.Normal(m[:, 0, 0], (v[:, 0, 0] + rate / (shape - 1)).sqrt()).log_prob(z)


@pytest.mark.parametrize("sizes", [(4, 6, 1), (3, 5, 7, 1)])
def test_the_gradients_of_probabilistic_back_propagation_are_those_of_its_evidence(sizes):
    posterior = Posterior(sizes, generators([0, 1]))
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 1, sizes[0])), rng.standard_normal(2)
    layers, noise = posterior.layers(), posterior.noise.numpy()
    found = pbp.slopes(layers, noise, pbp.through(x, layers), z)
    weights = [*posterior.means], [*posterior.variances]
    evidence = log_evidence(posterior, *weights, torch.from_numpy(x), torch.from_numpy(z))
    wanted = torch.autograd.grad(evidence.sum(), weights[0] + weights[1])
    for slope, truth in zip([*(m for m, _ in found), *(v for _, v in found)], wanted, strict=True):
        np.testing.assert_allclose(slope, truth, rtol=1e-8, atol=1e-12)


def test_columns_named_as_categories_are_read_level_by_level():
    """Codes without an order: a straight line through them says nothing, levels say all."""
    X = np.tile(np.arange(4.0), 50)[:, None]
    y = np.array([1.0, -1.0, -1.0, 1.0])[X[:, 0].astype(int)]
    by_level = PBPRegressor(hidden=(2,), epochs=5, categorical_features=[0], random_state=0).fit(X, y)
    assert by_level.features_.encode(X[:4]).tolist() == np.eye(4).tolist()
    assert np.abs(by_level.predict(X) - y).max() < 0.3
    split = [X[:100], X[100:]], [y[:100], y[100:]]
    together = [clone(by_level), clone(by_level)]
    fit_together(together, *split)
    alone = clone(by_level).fit(split[0][1], split[1][1])
    np.testing.assert_allclose(together[1].predict(X), alone.predict(X), rtol=1e-6)


def test_probabilistic_back_propagation_without_hidden_layers_is_bayesian_regression():
    """With the noise known and no layer between, each row's update of one weight is Kalman's."""
    posterior = Posterior((1, 1), [torch.Generator().manual_seed(0)])
    mean, variance = posterior.means[0].detach().clone(), posterior.variances[0].detach().clone()
    noise = float(posterior.noise[0, 1] / (posterior.noise[0, 0] - 1))
    h = torch.tensor([2.0, 1.0]).double() / np.sqrt(2)  # what the weight and the bias are multiplied by
    pbp.see(posterior.layers(), posterior.noise.numpy(), np.array([[[2.0]]]), np.array([3.0]))
    m, v = mean[0, :, 0], variance[0, :, 0]
    gain = v * h / (h.square() @ v + noise)
    np.testing.assert_allclose(posterior.means[0].detach()[0, :, 0], m + gain * (3.0 - h @ m), rtol=1e-12)
    np.testing.assert_allclose(posterior.variances[0].detach()[0, :, 0], v - gain * h * v, rtol=1e-12)


# ------------------------------------------------------------------------------------ mixtures


@pytest.fixture
def mixture():
    """Rows that overlap, that lie far apart, that have very different widths, and a dead component."""
    weights = np.array([[0.5, 0.5], [0.1, 0.9], [0.3, 0.7], [1.0, 0.0]])
    means = np.array([[0.0, 1.0], [-50.0, 50.0], [0.0, 0.1], [2.0, 1e6]])
    scales = np.array([[1.0, 2.0], [0.1, 0.2], [1e-3, 10.0], [3.0, 1.0]])
    return GaussianMixture(weights, means, scales)


def test_quantile_inverts_the_cdf(mixture):
    q = np.array([1e-6, 0.025, 0.099, 0.101, 0.5, 0.975, 1 - 1e-6])
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(q)), np.tile(q, (4, 1)), atol=1e-9)


def test_one_component_is_a_gaussian(mixture):
    assert mixture.quantile(0.975)[3] == pytest.approx(2 + 3 * 1.959963985)
    assert mixture.interval(0.95)[3] == pytest.approx(mixture.quantile([0.025, 0.975])[3])


def test_the_density_integrates_to_one_and_to_the_moments(mixture):
    y = np.linspace(-60, 60, 400_001)
    for i in (0, 1):
        p = mixture[i : i + 1].pdf(y[None])[0]
        mean = trapezoid(p * y, y)
        assert trapezoid(p, y) == pytest.approx(1, abs=1e-9)
        assert mixture.mean()[i] == pytest.approx(mean, abs=1e-6)
        assert mixture.std()[i] ** 2 == pytest.approx(trapezoid(p * (y - mean) ** 2, y), rel=1e-6)


def test_the_log_density_is_finite_far_out(mixture):
    assert mixture[:1].logpdf(np.array([1e4])) == pytest.approx(np.log(0.25) - 0.9189385 - 9999**2 / 8)


def test_draws_follow_the_law(mixture):
    draws = mixture.sample(20_000, random_state=0)
    share = (draws <= mixture.quantile(0.3)).mean(0)
    assert share == pytest.approx(np.full(4, 0.3), abs=0.02)
    np.testing.assert_array_equal(draws, mixture.sample(20_000, random_state=0))


def test_the_spread_between_components_is_epistemic_only_for_members(mixture):
    parts = GaussianMixture(mixture.weights, mixture.means, mixture.scales, members=False)
    assert mixture.decompose().epistemic[1] == pytest.approx(0.1 * 0.9 * 100**2)
    assert (parts.decompose().epistemic == 0).all()
    np.testing.assert_allclose(parts.std(), mixture.std())


def test_the_size_of_blocks_changes_nothing(mixture, monkeypatch):
    wanted = mixture.quantile([0.2, 0.7])
    density = mixture.logpdf(wanted)
    monkeypatch.setattr("card.baselines.mixtures.BLOCK", 5)
    np.testing.assert_allclose(mixture.quantile([0.2, 0.7]), wanted, rtol=1e-9)
    np.testing.assert_array_equal(mixture.logpdf(wanted), density)
