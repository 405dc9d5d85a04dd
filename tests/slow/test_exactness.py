"""On toys with a known law the default recipe's CDF is the truth, and its modes are found."""

import numpy as np
import pytest
import torch

from card import CARDRegressor
from card.datasets import make_toy


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "linear",
        "quadratic",
        "log_log_linear",
        "log_log_cubic",
        "sinusoidal",
        "inverse_sinusoidal",
        "eight_gaussians",
        "full_circle",
    ],
)
def test_the_cdf_is_that_of_the_law(name):
    torch.set_num_threads(1)
    toy = make_toy(name, random_state=2)
    X_train, X_test, y_train, y_test = toy.split()
    predicted = CARDRegressor(random_state=0).fit(X_train, y_train).predict_distribution(X_test)
    error = np.abs(predicted.cdf(y_test) - toy.law.cdf(X_test[:, 0], y_test))
    assert error.mean() <= 0.015


@pytest.mark.slow
def test_epistemic_variance_grows_in_a_gap_of_the_data():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-3, -1, 400), rng.uniform(1, 3, 400)])
    y = np.sin(2 * x) + 0.1 * rng.normal(size=800)
    parts = CARDRegressor(random_state=0).fit(x[:, None], y)
    inside = parts.predict_distribution(np.linspace(-2.8, -1.2, 50)[:, None]).decompose()
    gap = parts.predict_distribution(np.linspace(-0.4, 0.4, 50)[:, None]).decompose()
    assert np.median(gap.epistemic) > 5 * np.median(inside.epistemic)
