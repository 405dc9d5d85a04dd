"""One fit, or several of equal settings at once: from the users' tables to published models.

What belongs to one table on its way is a `Job`. With `cv=None` (the paper's recipe) all jobs train in one
batched call, through the member axis, to what each would have become alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, check_random_state

from card.checkpoint import Checkpoint, fingerprint
from card.codec import Codec, fit_codec
from card.features import Features
from card.fit import Fitting, fit_cross_fitted, fit_plain
from card.magnitude import goes_over_orders, prefers_logarithm
from card.model import Model
from card.progress import Bars
from card.train import seed_of

MIN_ROWS = 4
HELD_OUT = 0.2  # share of the rows (or groups) that conformal="split" keeps from every fitting step
OF_THE_MACHINE = {"checkpoint_path", "verbose", "n_jobs", "device", "random_state"}  # not of the fit


@dataclass
class Job:
    """A checked table and its responses, on their way through a fit."""

    X: Any
    y: np.ndarray  # (N, K)
    groups: Any
    squeeze: bool
    seed: int
    features: Features | None
    codec: Codec
    x: np.ndarray
    z: np.ndarray
    held_out: tuple[Any, np.ndarray] | None


def fit_together(
    estimators: Sequence[Any], Xs: Sequence[Any], ys: Sequence[Any], groups: Sequence[Any] | None = None
) -> None:
    """Fit several estimators of equal settings, each to its own data of equal shape."""
    groups = groups if groups is not None else [None] * len(estimators)
    if estimators[0].cv is not None and len(estimators) > 1:
        for one in zip(estimators, Xs, ys, groups, strict=True):
            fit_together(*([part] for part in one))
        return
    for estimator in estimators:
        estimator.__dict__.pop("model_", None)  # until this fit has succeeded there is none
        estimator._check_parameters()
    jobs = [_job(*one) for one in zip(estimators, Xs, ys, groups, strict=True)]
    checkpoint = _checkpoint(estimators[0], jobs)
    with Bars(bool(estimators[0].verbose)) as bars:
        fitting = estimators[0]._fitting(jobs[0].seed, bars, checkpoint)
        models = _models(jobs, fitting)
    for estimator, job, model, y in zip(estimators, jobs, models, ys, strict=True):
        _publish(estimator, job, model, y)
    if checkpoint is not None:
        checkpoint.clear()


def _job(estimator: Any, X: Any, y: Any, groups: Any) -> Job:
    """Check a table; hold rows out where that was asked for; learn features and codec from the rest."""
    seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
    X, y, squeeze = estimator._check_fit(X, y)
    held_out = None
    if estimator.conformal == "split":
        stay, leave = _hold_out(len(y), groups, seed)
        held_out = _safe_indexing(X, leave), y[leave]
        X, y = _safe_indexing(X, stay), y[stay]
        groups = None if groups is None else np.asarray(groups)[stay]
    response = _response(estimator, X, y, groups, seed)
    features, x = _encoded(estimator, X, with_logs=response == "positive")
    codec = fit_codec(y, response, estimator.standardise_y)
    z = codec.encode(y, np.random.default_rng(seed))
    return Job(X, y, groups, squeeze, seed, features, codec, x, z, held_out)


def _encoded(estimator: Any, X: Any, with_logs: bool) -> tuple[Features | None, np.ndarray]:
    if not estimator.standardise_x:
        return None, np.asarray(X, np.float32)
    features = Features.fit(X, estimator.categorical_features, with_logs)
    return features, features.transform(X)


def _response(estimator: Any, X: Any, y: np.ndarray, groups: Any, seed: int) -> str:
    """What a response is said to be or, where that is left to the data and the built-in f, what it shows."""
    if estimator.response != "auto":
        return estimator.response
    free = estimator.mean == "auto" and estimator.bounds is None
    if not free or not goes_over_orders(y):
        return "real"
    groups = None if groups is None else np.asarray(groups)
    plain, with_logs = (_encoded(estimator, X, logs)[1] for logs in (False, True))
    better = prefers_logarithm(plain, with_logs, y, groups, seed_of(seed, 19))
    return "positive" if better else "real"


def _hold_out(n: int, groups: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit on and rows to hold out; groups stay whole."""
    rng = np.random.default_rng(seed_of(seed, 13))
    units = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    chosen = rng.permutation(units.max() + 1)[: max(1, round(HELD_OUT * (units.max() + 1)))]
    out = np.isin(units, chosen)
    if n - out.sum() < MIN_ROWS:
        raise ValueError(
            f"conformal='split' leaves {n - out.sum()} rows to fit on, {MIN_ROWS} are needed: give more."
        )
    return np.flatnonzero(~out), np.flatnonzero(out)


def _checkpoint(estimator: Any, jobs: Sequence[Job]) -> Checkpoint | None:
    if estimator.checkpoint_path is None:
        return None
    settings = {k: v for k, v in estimator.get_params().items() if k not in OF_THE_MACHINE}
    settings["seeds"] = [job.seed for job in jobs]
    arrays = [array for job in jobs for array in (job.x, job.z, *group_numbers(job.groups))]
    return Checkpoint(estimator.checkpoint_path, fingerprint(settings, *arrays))


def group_numbers(groups: Any) -> list[np.ndarray]:
    """Groups of whatever type as numbers, where there are any: folds hang on them."""
    return [] if groups is None else [np.unique(np.asarray(groups), return_inverse=True)[1]]


def _models(jobs: Sequence[Job], fitting: Fitting) -> list[Model]:
    if fitting["cv"] is not None:
        (job,) = jobs
        return [fit_cross_fitted(job.x, job.z, job.codec, job.groups, fitting)]
    parts = zip(*((job.x, job.z, job.codec, job.seed) for job in jobs), strict=True)
    xs, zs, codecs, seeds = (list(part) for part in parts)
    return fit_plain(xs, zs, codecs, seeds, fitting)


def _publish(estimator: Any, job: Job, model: Model, y: Any) -> None:
    """Learned attributes appear, all at once, after success."""
    estimator.features_ = job.features
    estimator.target_names_ = target_names(y)
    estimator.seed_ = job.seed
    estimator.squeeze_ = job.squeeze
    estimator.conformal_ = estimator._calibrate(model, job) if estimator.conformal is not None else None
    estimator.n_rows_ = len(job.y)
    estimator.held_out_scores_ = estimator._held_out_scores(model, job)
    model.fold = None
    estimator.model_ = model


def target_names(y: Any) -> list[str] | None:
    """Names of the responses, where y came with names: a frame or a series."""
    names = list(y.columns) if hasattr(y, "columns") else [getattr(y, "name", None)]
    return [str(name) for name in names] if all(name not in (None, "") for name in names) else None
