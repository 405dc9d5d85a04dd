"""What the parameters of the classifier alone may be, for scikit-learn's validation."""

from __future__ import annotations

import numbers
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from torch import nn

from card.class_networks import NAMES
from card.sample import SAMPLERS
from card.views import AUGMENTS

OF_CLASSES: dict[str, list[Any]] = {
    "mean": [
        StrOptions({"auto", "given", *NAMES}),
        HasMethods(["fit", "predict_proba"]),
        nn.Module,
    ],
    "cv": ["cv_object", StrOptions({"auto"})],
    "encoder": [StrOptions({"auto", "linear", "lenet", "conv"}), nn.Module],
    "noise": [Interval(numbers.Real, 0, None, closed="left")],
    "copies": [Interval(numbers.Integral, 1, None, closed="left")],
    "augment": [StrOptions(set(AUGMENTS)), callable, None],
    "batch_size": [Interval(numbers.Integral, 2, None, closed="left"), None],
    "warmup": [Interval(numbers.Real, 0, 1, closed="left")],
    "mean_epochs": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "mean_batch_size": [Interval(numbers.Integral, 2, None, closed="left"), None],
    "mean_lr": [Interval(numbers.Real, 0, None, closed="neither")],
    "mean_weight_decay": [Interval(numbers.Real, 0, None, closed="left")],
    "sampler": [StrOptions({name for name in SAMPLERS if not name.endswith("-to-1")})],  # votes are of y_0
    "read_level": [Interval(numbers.Real, 0, 10, closed="neither")],
    "floor": [Interval(numbers.Real, 0, None, closed="neither")],
    "tau": [Interval(numbers.Real, 0, None, closed="neither"), None],
    "n_draws": [Interval(numbers.Integral, 2, None, closed="left")],
    "proba": [StrOptions({"auto", "f", "direct", "votes", "temperature"})],
    "piw": [StrOptions({"brier", "raw"})],
}
