"""The paper's recipe recovers the conditional distributions of the toys (budget reduced, one seed)."""

import numpy as np
import pytest
import torch

from card import CARDRegressor
from card.datasets import make_toy
from card.metrics import picp, qice

TOYS = ["linear", "quadratic", "sinusoidal", "inverse_sinusoidal", "eight_gaussians", "full_circle"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TOYS)
def test_coverage_is_right_in_every_tenth_and_overall(name):
    torch.set_num_threads(1)
    X_train, X_test, y_train, y_test = make_toy(name, random_state=1).split()
    model = CARDRegressor.from_recipe(
        "paper",
        amsgrad=False,
        batch_size=256,
        epochs=300,
        ema=0.999,
        mean_epochs=100,
        mean_patience=None,
        standardise_x=False,
        standardise_y=False,
        sampler="multistep",
        n_evaluations=40,
        n_draws=500,
        random_state=1,
    ).fit(X_train, y_train)
    predicted = model.predict_distribution(X_test)
    edges = predicted.quantile(np.arange(1, 10) / 10)
    low, high = predicted.interval(0.95).T
    assert qice(y_test, edges) <= 1.0
    assert abs(picp(y_test, low, high) - 95.0) <= 1.5
