"""What both estimators do alike: recipes, tables in, devices, files out."""

from __future__ import annotations

import numbers
import os
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted, validate_data

from card import recipes
from card.checkpoint import Checkpoint
from card.columns import frame_of_records, is_records
from card.features import Features, is_table
from card.fit import Fitting
from card.noise import SCHEDULES, Schedule
from card.progress import Bars

# What the parameters of both may be, for scikit-learn's validation.
CONSTRAINTS: dict[str, list[Any]] = {
    "repeats": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "denoiser": [StrOptions({"unit", "table"})],
    "prior": [StrOptions({"mean", "zero"})],
    "schedule": [StrOptions(set(SCHEDULES))],
    "n_steps": [Interval(numbers.Integral, 2, None, closed="left")],
    "beta_1": [Interval(numbers.Real, 0, 1, closed="neither")],
    "beta_T": [Interval(numbers.Real, 0, 1, closed="neither")],
    "width": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "epochs": [Interval(numbers.Integral, 1, None, closed="left"), None],
    "lr": [Interval(numbers.Real, 0, None, closed="neither")],
    "ema": [Interval(numbers.Real, 0, 1, closed="neither")],
    "dropout": [Interval(numbers.Real, 0, 1, closed="left")],
    "weight_decay": [Interval(numbers.Real, 0, None, closed="left")],
    "n_evaluations": [Interval(numbers.Integral, 2, None, closed="left")],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


class Estimator(BaseEstimator):
    """The scikit-learn manners of a fitted thing `model_` that reads tables."""

    _recipes: ClassVar[dict[str, dict[str, Any]]]
    _min_rows: ClassVar[int]
    features_: Features | None

    @classmethod
    def from_recipe(cls, recipe: str, **overrides: Any) -> Self:
        """An estimator with the settings of a recipe, "modern" (the default) or "paper"."""
        return cls(**recipes.parameters(recipe, overrides, cls._recipes))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_device(self, device: Any) -> None:
        if not isinstance(device, str | torch.device):
            raise ValueError(f"device must be 'auto' or the name of a torch device, got {device!r}.")
        try:
            torch.empty(0, device=torch_device(device))
        except (RuntimeError, AssertionError, NotImplementedError) as e:
            said = str(e).partition("\n")[0]
            raise ValueError(f"device={device!r} cannot be used: {said}. Use 'auto' or 'cpu'.") from None

    def _check_table(self, X: Any, reset: bool) -> Any:
        """A table as it came, or as an array of numbers; scikit-learn's errors where it is neither."""
        if is_records(X):
            X = frame_of_records(X, None if reset else getattr(self, "feature_names_in_", None))
        if is_table(X):
            _check_feature_names(self, X, reset=reset)
            if reset:
                n_rows = len(X)
                if n_rows < self._min_rows:
                    raise ValueError(
                        f"Found {n_rows} sample(s) while a minimum of {self._min_rows} is required."
                    )
                if hasattr(X, "shape"):
                    _check_n_features(self, X, reset=True)
            return X
        smallest = self._min_rows if reset else 1
        gaps = "allow-nan" if self.standardise_x else True  # only an encoding knows what to do with them
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite=gaps, ensure_min_samples=smallest
        )

    def _check_read_as_it_is(self) -> None:
        """Refuse to show encoded rows to a mean model that has learned from others."""
        if self.standardise_x:
            raise ValueError(
                "mean is fitted already and reads X as it is, while standardise_x=True encodes X first: say "
                "standardise_x=False (X then holds numbers, best of comparable size), or give it unfitted."
            )

    def _encode(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._transform(self._check_table(X, reset=False))

    def _transform(self, X: Any) -> np.ndarray:
        return np.asarray(X, dtype=np.float32) if self.features_ is None else self.features_.transform(X)

    def _fitting(self, seed: int, bars: Bars, checkpoint: Checkpoint | None) -> Fitting:
        """What the fitting functions need to know, without the rest of the estimator."""
        parameters = self.get_params(deep=False)
        return Fitting(
            parameters=parameters,
            schedule=self._schedule(),
            seed=seed,
            device=torch_device(parameters["device"]),
            bars=bars,
            checkpoint=checkpoint,
        )

    def _schedule(self) -> Schedule:
        raise NotImplementedError

    def _table_schedule(self) -> Schedule:
        """The time steps of the paper's network."""
        p = self.get_params(deep=False)
        if p["schedule"] == "cosine":
            return SCHEDULES["cosine"](p["n_steps"])
        return SCHEDULES["linear"](p["n_steps"], p["beta_1"], p["beta_T"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; `card.load` reads it back."""
        from card.persist import save

        save(self, path)


def torch_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
