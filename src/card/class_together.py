"""One classifier, or several around one base classifier f: from the user's rows to published models.

Classifiers that differ in their denoisers alone (the paper's variants of prior and inputs, say) share f: it
is fitted once, and each denoiser starts from it as it would have started from its own. They share the
networks that read pixels, too, where those are to learn alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length
from torch import nn

from card.base import fit_base, mean_columns
from card.checkpoint import Checkpoint, fingerprint
from card.class_fit import OF_THE_ENCODERS, Judged, fit_around, teach_encoders
from card.class_model import ClassModel
from card.features import Features
from card.fit import Fitting
from card.images import check_images, is_images
from card.labels import as_labels, encode_labels
from card.mean import is_fitted
from card.progress import Bars
from card.together import OF_THE_MACHINE, group_numbers, target_names

OF_THE_DENOISER = {
    *("prior", "mean_input", "schedule", "n_steps", "beta_1", "beta_T", "width", "epochs", "batch_size"),
    *("lr", "warmup", "ema", "dropout", "weight_decay", "sampler", "n_evaluations", "read_level", "floor"),
    *("tau", "n_draws", "proba", "piw"),
}
"""Parameters in which classifiers around one f may differ."""


@dataclass(frozen=True)
class _Job:
    """Checked rows and labels, on their way through a fit."""

    classes: np.ndarray
    number: np.ndarray  # (N,) of the class
    given: np.ndarray | None  # (N, C) probabilities of f that came with the rows
    x: np.ndarray
    image_shape: tuple[int, ...] | None
    features: Features | None
    columns: np.ndarray | None  # of the classes in a fitted f
    seed: int
    target_names: list[str] | None


def fit_around_one(estimators: Sequence[Any], X: Any, y: Any, groups: Any = None) -> None:
    """Fit classifiers to the same rows; of the parameters only those of the denoiser may differ."""
    for estimator in estimators:
        estimator.__dict__.pop("model_", None)  # until this fit has succeeded there is none
        estimator._check_parameters()
    _check_alike(estimators)
    seed = int(check_random_state(estimators[0].random_state).randint(2**31 - 1))
    jobs = [_job(estimator, X, y, seed) for estimator in estimators]
    checkpoint = _checkpoint(estimators, jobs[0], groups)
    with Bars(bool(estimators[0].verbose)) as bars:
        fittings = [
            _fitting(estimator, job, bars, checkpoint)
            for estimator, job in zip(estimators, jobs, strict=True)
        ]
        job = jobs[0]
        base = fit_base(job.x, job.number, len(job.classes), groups, job.given, fittings[0])
        fitted, encoders = [], {}
        for i, fitting in enumerate(fittings):
            fitting = replace(fitting, prefix=f"{i}-") if len(estimators) > 1 else fitting
            how = tuple(repr(fitting[name]) for name in OF_THE_ENCODERS)
            if how not in encoders:
                encoders[how] = teach_encoders(*base, job.x, job.number, fitting)
            fitted.append(fit_around(*base, encoders[how], job.x, fitting))
    for estimator, job, fitting, (model, judged) in zip(estimators, jobs, fittings, fitted, strict=True):
        _publish(estimator, job, fitting, judged, model)
    if checkpoint is not None:
        checkpoint.clear()


def _check_alike(estimators: Sequence[Any]) -> None:
    first, *others = (estimator.get_params(deep=False) for estimator in estimators)
    for other in others:
        differ = [name for name in first if repr(first[name]) != repr(other[name])]
        theirs = sorted(set(differ) - OF_THE_DENOISER)
        if theirs:
            raise ValueError(f"Classifiers around one f must agree in {', '.join(theirs)}.")


def _job(estimator: Any, X: Any, y: Any, seed: int) -> _Job:
    """Check rows and labels; learn features."""
    X, given = estimator._pair(X)
    if not is_images(X):
        estimator._check_table(X, reset=True)
    labels = as_labels(y)
    check_consistent_length(X, labels, *([given] if given is not None else []))
    if is_images(X) and len(X) < estimator._min_rows:
        raise ValueError(f"Found {len(X)} sample(s) while a minimum of {estimator._min_rows} is required.")
    classes, number = encode_labels(labels)
    if given is not None and given.shape[1] != len(classes):
        raise ValueError(f"y has {len(classes)} classes, the probabilities have {given.shape[1]} columns.")
    shape, features, x = _read(estimator, X)
    known = not isinstance(estimator.mean, str | nn.Module) and is_fitted(estimator.mean)
    columns = mean_columns(estimator.mean, classes) if known else None
    if known and not is_images(X):
        estimator._check_read_as_it_is()
    return _Job(classes, number, given, x, shape, features, columns, seed, target_names(y))


def _read(estimator: Any, X: Any) -> tuple[tuple[int, ...] | None, Features | None, np.ndarray]:
    """(shape of an image, encoding of a table, encoded rows)."""
    if is_images(X):
        x = check_images(X)
        estimator.n_features_in_ = int(np.prod(x.shape[1:]))
        return x.shape[1:], None, x
    X = estimator._check_table(X, reset=True)
    if not estimator.standardise_x:
        return None, None, np.asarray(X, np.float32)
    features = Features.fit(X, estimator.categorical_features)
    return None, features, features.transform(X)


def _checkpoint(estimators: Sequence[Any], job: _Job, groups: Any) -> Checkpoint | None:
    path = estimators[0].checkpoint_path
    if path is None:
        return None
    settings = [
        {name: _named(value) for name, value in estimator.get_params().items() if name not in OF_THE_MACHINE}
        for estimator in estimators
    ]
    arrays = [job.x, job.number] if job.given is None else [job.x, job.number, job.given]
    return Checkpoint(
        path, fingerprint({"settings": settings, "seed": job.seed}, *arrays, *group_numbers(groups))
    )


def _named(value: Any) -> Any:
    """A function by its name, which, unlike its printed form, is the same in the next process."""
    return getattr(value, "__qualname__", value) if callable(value) else value


def _fitting(estimator: Any, job: _Job, bars: Bars, checkpoint: Checkpoint | None) -> Fitting:
    fitting = estimator._fitting(job.seed, bars, checkpoint)
    return replace(fitting, parameters=fitting.parameters | {"mean_columns": job.columns})


def _publish(estimator: Any, job: _Job, fitting: Fitting, judged: Judged, model: ClassModel) -> None:
    """Learned attributes appear, all at once, after success."""
    estimator.classes_ = job.classes
    estimator.image_shape_ = job.image_shape
    estimator.features_ = job.features
    estimator.seed_ = job.seed
    estimator.schedule_ = fitting.schedule
    estimator.tau_ = judged.tau
    estimator.mixture_ = judged.mixture
    estimator.experience_ = judged.experience
    estimator.target_names_ = job.target_names
    estimator.n_rows_ = len(job.number)
    estimator.model_ = model
