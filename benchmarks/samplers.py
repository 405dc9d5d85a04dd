"""Accuracy against cost of the samplers, for docs/choosing-a-sampler.md.

    python benchmarks/samplers.py          # or only the last part: python benchmarks/samplers.py short

First r_0 ~ N(0.7, 0.3^2) with the perfect denoiser, whose answer is known; then the network of the paper,
trained for a minute on the inverse sinusoidal toy: QICE and CRPS of 200 draws per row; then one trained too
briefly, on the linear toy: how wide its draws are.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy.special import ndtri

from card import CARDRegressor
from card.datasets import make_toy
from card.metrics import crps, qice
from card.noise import linear
from card.sample import make_sampler

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from oracles import gaussian_denoiser

COSTS = (6, 10, 16, 24, 50)


def known_answer() -> None:
    schedule = linear()
    rng = torch.Generator().manual_seed(0)

    def normal() -> torch.Tensor:
        return torch.randn(200_000, generator=rng)

    print("| sampler | evaluations | std (true 0.3) |\n|---|---|---|")
    for name in ("ddim", "multistep", "multistep-sde", "ancestral"):
        for n in COSTS if name != "ancestral" else (1000,):
            sampler = make_sampler(name, schedule, n)
            draws = sampler(gaussian_denoiser(schedule, 0.7, 0.3), normal(), normal)
            print(f"| {name} | {sampler.n_evaluations} | {float(draws.std()):.3f} |")


def trained_network() -> None:
    X, X_test, y, y_test = make_toy("inverse_sinusoidal", random_state=0).split()
    X_test, y_test = X_test[:400], y_test[:400]
    model = CARDRegressor.from_recipe(
        "paper", batch_size=256, epochs=300, ema=0.999, mean_epochs=20, mean_patience=None, random_state=0
    ).fit(X, y)
    print("\n| sampler | evaluations | QICE % | CRPS | seconds |\n|---|---|---|---|---|")
    for name in ("ddim", "multistep", "multistep-sde", "ancestral"):
        for n in COSTS if name != "ancestral" else (1000,):
            start = time.perf_counter()
            draws = model.set_params(sampler=name, n_evaluations=n).sample(X_test, 200, random_state=0)
            seconds = time.perf_counter() - start
            edges = np.quantile(draws, np.arange(1, 10) / 10, axis=0).T
            row = f"{qice(y_test, edges):.2f} | {crps(y_test, draws):.4f} | {seconds:.1f}"
            print(f"| {name} | {n} | {row} |", flush=True)


def short_training() -> None:
    toy = make_toy("linear", random_state=1)
    X, X_test, y, _ = toy.split()
    model = CARDRegressor.from_recipe(
        "paper",
        amsgrad=False,
        batch_size=256,
        epochs=100,
        ema=0.999,
        mean_epochs=30,
        mean_patience=None,
        random_state=1,
    ).fit(X, y)
    low, high = toy.law.quantile(X_test[:1], [0.16, 0.84])[0]
    truth = (high - low) / np.subtract(*ndtri([0.84, 0.16]))
    print("\n| sampler | evaluations | spread over the law's | PICP % |\n|---|---|---|---|")
    for name, n, rows in (
        ("multistep", 40, 200),
        ("multistep-sde", 40, 200),
        ("multistep-sde", 80, 200),
        ("ancestral", 1000, 50),
    ):
        model.set_params(sampler=name, n_evaluations=n, n_draws=400)
        predicted = model.predict_distribution(X_test[:rows])
        low, high = toy.law.cdf(X_test[:rows], predicted.interval(0.95)).mean(axis=0)
        print(
            f"| {name} | {n} | {predicted.std().mean() / truth:.2f} | {100 * (high - low):.1f} |", flush=True
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] != ["short"]:
        known_answer()
        trained_network()
    short_training()
