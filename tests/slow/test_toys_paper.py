"""The paper's recipe recovers the conditional distributions of the toys (one seed), on a budget of its own.

The network is the paper's, the chain the one of a hundred steps from its ablation, so that each row of
the time table is met ten times as often; batches are a quarter as large, the rate three times as high, and
the average of the weights is short enough to forget where they began. Noise is drawn anew on the way: the
errors of a network that predicts eps add up along a flow without noise, and are forgotten with it. The six
train in one batched call, about twenty minutes on one core.

The laws are known, so the share of responses that falls between predicted quantiles is counted exactly, by
the true CDF: on 2048 observed responses a perfect forecaster's PICP strays by half a point.
"""

import numpy as np
import pytest
import torch

from card import CARDRegressor
from card.datasets import make_toy
from card.estimators import fit_together

TOYS = ["linear", "quadratic", "sinusoidal", "inverse_sinusoidal", "eight_gaussians", "full_circle"]
SETTINGS = {
    "n_steps": 100,
    "beta_1": 0.001,
    "beta_T": 0.175,
    "epochs": 400,
    "batch_size": 64,
    "lr": 0.003,
    "ema": 0.9998,
    "amsgrad": False,
    "mean_epochs": 50,
    "mean_patience": None,
    "sampler": "multistep-sde",
    "n_evaluations": 100,
    "n_draws": 400,
    "random_state": 1,
}
ROWS = 512  # of the test rows, for the draws take as long as the training


@pytest.fixture(scope="module")
def fitted():
    torch.set_num_threads(1)
    toys = [make_toy(name, random_state=1) for name in TOYS]
    splits = [toy.split() for toy in toys]
    models = [CARDRegressor.from_recipe("paper", **SETTINGS) for _ in TOYS]
    fit_together(models, [split[0] for split in splits], [split[2] for split in splits])
    return {
        name: (model, toy.law, split[1][:ROWS])
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
