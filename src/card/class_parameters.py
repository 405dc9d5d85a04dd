"""What the classifier's parameters may be, for scikit-learn's validation."""

from __future__ import annotations

import numbers
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from torch import nn

from card.class_networks import NAMES
from card.noise import SCHEDULES
from card.views import AUGMENTS

SAMPLERS = {"ancestral", "ddim", "multistep", "multistep-sde"}
CONSTRAINTS: dict[str, list[Any]] = {
    "mean": [
        StrOptions({"auto", "given", *NAMES}),
        HasMethods(["fit", "predict_proba"]),
        nn.Module,
    ],
    "cv": ["cv_object", StrOptions({"auto"})],
    "repeats": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "encoder": [StrOptions({"auto", "linear", "lenet", "conv"}), nn.Module],
    "noise": [Interval(numbers.Real, 0, None, closed="left")],
    "copies": [Interval(numbers.Integral, 1, None, closed="left")],
    "augment": [StrOptions(set(AUGMENTS)), callable, None],
    "denoiser": [StrOptions({"unit", "table"})],
    "prior": [StrOptions({"mean", "zero"})],
    "schedule": [StrOptions(set(SCHEDULES))],
    "n_steps": [Interval(numbers.Integral, 2, None, closed="left")],
    "beta_1": [Interval(numbers.Real, 0, 1, closed="neither")],
    "beta_T": [Interval(numbers.Real, 0, 1, closed="neither")],
    "width": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "epochs": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "batch_size": [Interval(numbers.Integral, 2, None, closed="left"), None],
    "lr": [Interval(numbers.Real, 0, None, closed="neither")],
    "warmup": [Interval(numbers.Real, 0, 1, closed="left")],
    "ema": [Interval(numbers.Real, 0, 1, closed="neither")],
    "dropout": [Interval(numbers.Real, 0, 1, closed="left")],
    "weight_decay": [Interval(numbers.Real, 0, None, closed="left")],
    "mean_epochs": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "mean_batch_size": [Interval(numbers.Integral, 2, None, closed="left"), None],
    "mean_lr": [Interval(numbers.Real, 0, None, closed="neither")],
    "mean_weight_decay": [Interval(numbers.Real, 0, None, closed="left")],
    "sampler": [StrOptions(SAMPLERS)],
    "n_evaluations": [Interval(numbers.Integral, 2, None, closed="left")],
    "read_level": [Interval(numbers.Real, 0, 10, closed="neither")],
    "floor": [Interval(numbers.Real, 0, None, closed="neither")],
    "tau": [Interval(numbers.Real, 0, None, closed="neither"), None],
    "n_draws": [Interval(numbers.Integral, 2, None, closed="left")],
    "proba": [StrOptions({"auto", "f", "direct", "votes", "temperature"})],
    "piw": [StrOptions({"brier", "raw"})],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
