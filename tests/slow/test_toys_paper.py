"""The paper's recipe, at its full budget, recovers the conditional distributions of the toys (one seed).

The six are trained in one batched call: about an hour on one core. The laws are known, so the share of
responses that falls between predicted quantiles is counted exactly, by the true CDF: on 2048 observed
responses a perfect forecaster's PICP strays by half a point, and alike in toys that share their noise.
"""

import numpy as np
import pytest
import torch

from card import CARDRegressor
from card.datasets import make_toy
from card.estimators import fit_together

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
    toys = [make_toy(name, random_state=1) for name in TOYS]
    splits = [toy.split() for toy in toys]
    models = [CARDRegressor.from_recipe("paper", **SETTINGS) for _ in TOYS]
    fit_together(models, [split[0] for split in splits], [split[2] for split in splits])
    return {
        name: (model, toy.law, split[1])
        for name, model, toy, split in zip(TOYS, models, toys, splits, strict=True)
    }


@pytest.mark.slow
@pytest.mark.xdist_group("toys")
@pytest.mark.parametrize("name", TOYS)
def test_coverage_is_right_in_every_tenth_and_overall(fitted, name):
    model, law, X_test = fitted[name]
    predicted = model.predict_distribution(X_test)
    below = law.cdf(X_test, predicted.quantile(np.arange(1, 10) / 10)).mean(axis=0)
    share = 100 * np.diff([0.0, *below, 1.0])
    low, high = law.cdf(X_test, predicted.interval(0.95)).mean(axis=0)
    qice, picp = np.abs(share - 10.0).mean(), 100 * (high - low)
    print(f"{name}: QICE {qice:.2f} %, PICP {picp:.2f} %")
    assert qice <= 1.0
    assert abs(picp - 95.0) <= 1.5
