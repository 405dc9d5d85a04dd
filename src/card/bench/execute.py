"""Run units: load, fit, predict, score; the report of each as a plain dictionary.

This is what a worker does, in whatever process or on whatever machine. It writes no reports: that is for
`card.bench.ledger`, here or in the process that sent the units.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from card.bench import chain, class_score, environment, score
from card.bench.arrays import differences, scatter
from card.bench.errors import DataNotAvailable
from card.bench.kinds import KINDS, Data
from card.bench.methods import Method, find_method
from card.bench.reports import Report
from card.bench.shelf import Clock, Fitted, Shelf, digest
from card.bench.snapshots import Snapshots, watching
from card.bench.spec import Unit

INCIDENTAL = ("checkpoint_path", "verbose", "n_jobs", "device")
"""Parameters that do not change a result."""


@dataclass(frozen=True)
class Outcome:
    """What became of one unit: its report, or the reason why there is none."""

    unit: Unit
    report: Report | None = None
    missing: str = ""
    """The data set that could not be had."""
    error: str = ""
    details: str = ""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


def execute(units: Sequence[Unit], checkpoints: Path | None = None) -> Iterator[Outcome]:
    """The outcomes of units that are fitted together (or of just one), as they come.

    With a folder for checkpoints, a fit that was killed goes on from where it was, and one that was done is
    not done again. An outcome must have been recorded before the next one is asked for.
    """
    torch.set_num_threads(1)
    try:
        data, fitted = _fitted(units, checkpoints)
    except DataNotAvailable as missing:
        yield from (Outcome(unit, missing=str(missing)) for unit in units)
        return
    except Exception as error:
        yield from [_failure(unit, error) for unit in units]
        return
    for unit, rows, one in zip(units, data, fitted, strict=True):
        outcome = _outcome(unit, rows, one, checkpoints)
        yield outcome
        if checkpoints is not None and outcome.report is not None:
            Shelf(checkpoints).drop(unit)
            Snapshots(checkpoints, unit).clear()


def _failure(unit: Unit, error: Exception) -> Outcome:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return Outcome(unit, error=reason, details="".join(traceback.format_exception(error)))


def _outcome(unit: Unit, data: Data, fitted: Fitted, checkpoints: Path | None) -> Outcome:
    """Of scoring a fitted unit; a failure here is that of no other unit."""
    try:
        report, arrays = _assess(unit, fitted.estimator, data, fitted.seconds)
        report["config"] = _config(unit, fitted.estimator, data, fitted.together)
        if "curve" in unit.arrays and checkpoints is not None:
            report["curve"] = Snapshots(checkpoints, unit).curve(fitted.estimator, data)
    except Exception as error:
        return _failure(unit, error)
    return Outcome(unit, report=report, arrays=arrays)


def _fitted(units: Sequence[Unit], checkpoints: Path | None) -> tuple[list[Data], list[Fitted]]:
    """The data of the units, and their fitted estimators: from the shelf, or fitted now."""
    kind = KINDS[units[0].kind]
    data = {unit: kind.load(unit.dataset, unit.index, unit.recipe) for unit in units}
    found = {} if checkpoints is None else {unit: Shelf(checkpoints).get(unit) for unit in units}
    known = {unit: one for unit, one in found.items() if one is not None}
    rest = [unit for unit in units if unit not in known]
    if rest:
        known |= _fit_anew(rest, [data[unit] for unit in rest], checkpoints)
    return list(data.values()), [known[unit] for unit in units]


def _fit_anew(units: Sequence[Unit], data: Sequence[Data], checkpoints: Path | None) -> dict[Unit, Fitted]:
    method, estimators = find_method(units[0].method), [built(unit) for unit in units]
    before, clock = 0.0, None
    with ExitStack() as stack:
        if checkpoints is not None and _keep_checkpoints(estimators, checkpoints / digest(units)):
            clock = Clock(checkpoints / digest(units))
            before = stack.enter_context(clock.running())
        stack.enter_context(watching(units, estimators, checkpoints))
        _, seconds = score.timed(lambda: _fit(method, estimators, data))
    share, together = (before + seconds) / len(units), len(units)
    fitted = {u: Fitted(e, share, together) for u, e in zip(units, estimators, strict=True)}
    if checkpoints is not None:
        for unit, one in fitted.items():
            Shelf(checkpoints).put(unit, one)
    if clock is not None:
        clock.forget()
    return fitted


def built(unit: Unit) -> Any:
    """The estimator of a unit, not fitted."""
    build = find_method(unit.method).build[KINDS[unit.kind].task]
    return build(unit.recipe, dict(unit.overrides), unit.seed)


def _keep_checkpoints(estimators: Sequence[Any], folder: Path) -> bool:
    """Tell the estimators where to keep checkpoints; whether they can."""
    if "checkpoint_path" not in getattr(estimators[0], "get_params", dict)():
        return False
    for estimator in estimators:
        estimator.set_params(checkpoint_path=str(folder))
    return True


def _fit(method: Method, estimators: Sequence[Any], data: Sequence[Data]) -> None:
    if len(estimators) > 1 and method.fit_together is not None:
        method.fit_together(estimators, [d.X_train for d in data], [d.y_train for d in data])
        return
    for estimator, rows in zip(estimators, data, strict=True):
        estimator.fit(rows.X_train, rows.y_train)


def _assess(
    unit: Unit, estimator: Any, data: Data, seconds_fit: float
) -> tuple[Report, Mapping[str, np.ndarray]]:
    if KINDS[unit.kind].task == "classification":
        part, seconds = class_score.assessed(estimator, data, unit.dataset)
        kept = differences(estimator, data, unit.seed) if "differences" in unit.arrays else {}
        return _report(unit, seconds_fit, seconds, part), kept
    prediction, seconds = score.timed(lambda: score.predicted(estimator, data.X_test, data.y_test))
    part = {"metrics": score.regression(prediction, data)}
    f_alone = score.mean_model(estimator, data)
    if f_alone is not None:
        part["mean_model"] = f_alone
    if unit.rescore:
        part["rescored"] = {name: _rescored(estimator, dict(new), data) for name, new in unit.rescore}
    return _report(unit, seconds_fit, seconds, part), _arrays(unit, estimator, prediction, data)


def _rescored(estimator: Any, settings: dict[str, Any], data: Data) -> dict[str, Any]:
    """The metrics of a fit with other settings of its prediction."""
    other = copy.copy(estimator).set_params(**settings)
    prediction, seconds = score.timed(lambda: score.predicted(other, data.X_test, data.y_test))
    return {"metrics": score.regression(prediction, data), "seconds_predict": round(seconds, 3)}


def _report(unit: Unit, seconds_fit: float, seconds_predict: float, part: Mapping[str, Any]) -> Report:
    return {
        **unit.identity(),
        "seconds_fit": round(seconds_fit, 3),
        "seconds_predict": round(seconds_predict, 3),
        **part,
        "version": environment.version(),
        "versions": environment.versions(find_method(unit.method).packages),
        "hardware": environment.hardware(),
    }


def _arrays(unit: Unit, estimator: Any, prediction: dict[str, Any], data: Data) -> dict[str, np.ndarray]:
    kept = scatter(prediction, data, unit.seed) if "scatter" in unit.arrays else {}
    if "chain" in unit.arrays:
        kept |= chain.samples(estimator, data, unit.seed)
    if "reverse" in unit.arrays:
        kept |= chain.reverse(estimator, data, unit.seed)
    return kept


def _config(unit: Unit, estimator: Any, data: Data, together: int) -> dict[str, Any]:
    config = {
        "kind": unit.kind,
        "overrides": _plain(dict(unit.overrides)),
        "rows": [len(data.y_train), len(data.y_test)],
        "together": together,
    }
    new = built(unit)  # one from a file may have lost what does not matter any more
    if hasattr(new, "get_params"):
        parameters = new.get_params(deep=False)
        config["parameters"] = _plain({key: parameters[key] for key in parameters if key not in INCIDENTAL})
    config["size"] = _size(estimator)
    return config


def _size(estimator: Any) -> int | None:
    """Learned numbers of the networks in a fitted estimator, where it has any."""
    model = getattr(estimator, "model_", None)
    modules = [getattr(model, part, None) for part in ("denoiser", "mean")]
    networks = [getattr(part, "network", part) for part in modules]
    found = [network for network in networks if isinstance(network, torch.nn.Module)]
    return sum(p.numel() for network in found for p in network.parameters()) or None


def _plain(value: Any) -> Any:
    """The value as JSON can hold it; what it cannot hold, by its printed form."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else repr(value)
    return value if isinstance(value, str | int | bool | None) else repr(value)
