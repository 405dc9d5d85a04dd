"""The paper's recipe, at its full budget, recovers the conditional distributions of the toys (one seed).

The six are trained in one batched call: about an hour on one core.
"""

import numpy as np
import pytest
import torch

from card import CARDRegressor
from card.datasets import make_toy
from card.estimators import fit_together
from card.metrics import picp, qice

TOYS = ["linear", "quadratic", "sinusoidal", "inverse_sinusoidal", "eight_gaussians", "full_circle"]
SETTINGS = {
    "amsgrad": False,
    "batch_size": 256,
    "mean_epochs": 100,
    "mean_patience": None,
    "sampler": "multistep",
    "n_evaluations": 40,
    "n_draws": 400,
    "random_state": 1,
}


@pytest.fixture(scope="module")
def fitted():
    torch.set_num_threads(1)
    splits = [make_toy(name, random_state=1).split() for name in TOYS]
    models = [CARDRegressor.from_recipe("paper", **SETTINGS) for _ in TOYS]
    fit_together(models, [split[0] for split in splits], [split[2] for split in splits])
    return {name: (model, split) for name, model, split in zip(TOYS, models, splits, strict=True)}


@pytest.mark.slow
@pytest.mark.xdist_group("toys")
@pytest.mark.parametrize("name", TOYS)
def test_coverage_is_right_in_every_tenth_and_overall(fitted, name):
    model, (_, X_test, _, y_test) = fitted[name]
    predicted = model.predict_distribution(X_test)
    edges = predicted.quantile(np.arange(1, 10) / 10)
    low, high = predicted.interval(0.95).T
    assert qice(y_test, edges) <= 1.0
    assert abs(picp(y_test, low, high) - 95.0) <= 1.5
