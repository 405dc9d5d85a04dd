"""Recipes: named sets of parameters.

`modern` is what an estimator does with nothing said. `paper` reproduces the paper, with the published
code where the code produced its figures.
"""

from __future__ import annotations

from typing import Any

REGRESSION: dict[str, dict[str, Any]] = {
    "modern": {},
    "paper": {
        "mean": "mlp",
        "cv": None,
        "denoiser": "table",
        "sampler": "ancestral",
        "n_steps": 1000,
        "beta_1": 1e-4,
        "beta_T": 0.02,
        "width": 128,
        "epochs": 5000,
        "batch_size": 32,
        "lr": 1e-3,
        "ema": 0.9999,
        "amsgrad": True,
        "weight_decay": 0.0,
        "n_draws": 1000,
    },
}

CLASSIFICATION: dict[str, dict[str, Any]] = {
    "modern": {},
    "paper": {
        "mean": "mlp",
        "cv": None,
        "encoder": "linear",
        "denoiser": "table",
        "sampler": "ancestral",
        "n_steps": 1000,
        "beta_1": 1e-4,
        "beta_T": 0.02,
        "width": 128,
        "epochs": 1000,
        "batch_size": 256,
        "lr": 1e-3,
        "warmup": 0.04,
        "ema": 0.9999,
        "dropout": 0.0,
        "weight_decay": 0.0,
        "n_draws": 100,
        "proba": "temperature",
    },
}


def parameters(
    recipe: str, overrides: dict[str, Any], known: dict[str, dict[str, Any]] = REGRESSION
) -> dict[str, Any]:
    """The parameters of a recipe, some of them overridden.

    >>> parameters("paper", {"epochs": 10})["epochs"]
    10
    """
    if recipe not in known:
        raise ValueError(f"recipe must be one of {', '.join(sorted(known))}, got {recipe!r}.")
    return known[recipe] | overrides
