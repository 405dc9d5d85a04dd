import math

import numpy as np
import pytest
import torch

from card import CARDRegressor
from card.flow import log_density
from card.noise import even_log_snr

RNG = np.random.default_rng(0)


def test_the_flow_of_a_correlated_gaussian_has_its_log_density():
    schedule = even_log_snr(60, 0.01, 30.0)
    cov = torch.tensor([[1.0, 0.6], [0.6, 0.8]], dtype=torch.float64)
    mean = torch.tensor([0.3, -0.2], dtype=torch.float64)

    def velocity(state, k):
        """v = s r_0 - a eps = (E[r_0 | r_k] - a r_k) / s, linear in r_k."""
        a, s = float(schedule.alpha[k]), float(schedule.sigma[k])
        gain = a * cov @ torch.linalg.inv(a**2 * cov + s**2 * torch.eye(2))
        value = ((mean + (state[0] - a * mean) @ gain.T) - a * state[0]) / s
        tangents = (state[1:] @ gain.T - a * state[1:]) / s
        return torch.cat([value[None], tangents])

    r = torch.from_numpy(RNG.multivariate_normal(mean.numpy(), cov.numpy(), size=(1, 200)))
    ours = log_density(velocity, schedule, r, float(schedule.alpha[-1]) * mean)
    truth = torch.distributions.MultivariateNormal(mean, cov).log_prob(r)
    assert torch.allclose(ours, truth, atol=0.02)


@pytest.fixture(scope="module")
def fitted():
    X = RNG.normal(size=(300, 2))
    noise = RNG.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=300)
    return (
        X,
        X + noise,
        CARDRegressor(random_state=0, epochs=20, cv=2, repeats=1, n_draws=200).fit(X, X + noise),
    )


def test_the_joint_density_integrates_to_one(fitted):
    X, _, model = fitted
    side = np.linspace(-8, 8, 81)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(1, -1, 2)
    density = model.predict_distribution(X[:1]).pdf(grid)
    assert density.sum() * (side[1] - side[0]) ** 2 == pytest.approx(1.0, abs=0.02)


def test_the_joint_density_knows_that_targets_go_together(fitted):
    X, Y, model = fitted
    joint = model.predict_distribution(X).logpdf(Y).mean()
    truth = -math.log(2 * math.pi) - 0.5 * math.log(1 - 0.64) - 1.0
    independent = -math.log(2 * math.pi) - 1.0
    assert independent < joint < truth + 0.3


def test_rows_of_a_vector_prediction_can_be_picked(fitted):
    X, Y, model = fitted
    d = model.predict_distribution(X)
    assert np.allclose(d[5:9].logpdf(Y[5:9]), d.logpdf(Y)[5:9], atol=1e-4)
    assert d[5:9].mean().shape == (4, 2)


def test_a_vector_prediction_does_not_depend_on_the_other_rows_or_their_order(fitted):
    X, _, model = fitted
    whole = model.predict_quantiles(X, [0.1, 0.9])
    assert np.allclose(model.predict_quantiles(X[::-1], [0.1, 0.9])[::-1], whole, atol=1e-5)
    assert np.allclose(model.predict_quantiles(X[7:8], [0.1, 0.9]), whole[7:8], atol=1e-5)


def test_equal_rows_have_equal_predictions_but_draws_of_their_own(fitted):
    X, _, model = fitted
    twice = np.repeat(X[:1], 2, axis=0)
    first, second = model.predict(twice)
    assert np.allclose(first, second, atol=1e-6)
    draws = model.sample(twice, 50, random_state=0)
    assert not np.allclose(draws[:, 0], draws[:, 1], atol=0.1)


def test_noise_of_different_rows_is_independent(fitted):
    X, _, model = fitted
    draws = model.predict_distribution(X[:40]).draws
    residuals = (draws - draws.mean(axis=0)) / draws.std(axis=0)
    correlation = np.einsum("snk,smk->nmk", residuals, residuals) / len(draws)
    off = correlation[~np.eye(40, dtype=bool)]
    assert abs(off.mean()) < 0.01
    assert off.std() < 1.3 / np.sqrt(len(draws))
