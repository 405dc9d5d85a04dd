"""Competing methods behind the same face: fit and predict_distribution, or fit and predict_proba for classes.

`METHODS` maps a method's name to how the benchmark builds it (see `card.bench.methods.Method`).
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from card.baselines.base import NetworkRegressor, fit_together
from card.baselines.bayes import BayesByBackpropClassifier
from card.baselines.class_base import NetworkClassifier
from card.baselines.class_dropout import (
    ConcreteDropoutClassifier,
    GaussianDropoutClassifier,
    MAPClassifier,
    MCDropoutClassifier,
)
from card.baselines.contextual import (
    ContextualDropoutClassifier,
    ContextualGatingClassifier,
    ContextualGatingDropoutClassifier,
    GaussianContextualDropoutClassifier,
)
from card.baselines.dropout import MCDropoutRegressor
from card.baselines.ensembles import DeepEnsembleRegressor
from card.baselines.gcds import GCDSRegressor
from card.baselines.mdn import MixtureDensityRegressor
from card.baselines.pbp import PBPRegressor
from card.bench.methods import Method, of_class

REGRESSORS: dict[str, type[NetworkRegressor]] = {
    "deep-ensembles": DeepEnsembleRegressor,
    "mc-dropout": MCDropoutRegressor,
    "pbp": PBPRegressor,
    "gcds": GCDSRegressor,
    "mdn": MixtureDensityRegressor,
}
CLASSIFIERS: dict[str, type[NetworkClassifier]] = {
    "map": MAPClassifier,
    "mc-dropout": MCDropoutClassifier,
    "gaussian-dropout": GaussianDropoutClassifier,
    "concrete-dropout": ConcreteDropoutClassifier,
    "bayes-by-backprop": BayesByBackpropClassifier,
    "contextual-gating": ContextualGatingClassifier,
    "contextual-gating-dropout": ContextualGatingDropoutClassifier,
    "contextual-dropout": ContextualDropoutClassifier,
    "contextual-dropout-gaussian": GaussianContextualDropoutClassifier,
}


def _method(name: str) -> Method:
    """For each task that there is a class for; the splits of a regressor train in one batched run."""
    families: dict[str, dict[str, Any]] = {"regression": REGRESSORS, "classification": CLASSIFIERS}
    tasks = {task: family[name] for task, family in families.items() if name in family}
    parts = {task: of_class(name, cls, task) for task, cls in tasks.items()}
    return replace(
        next(iter(parts.values())),
        build={task: part.build[task] for task, part in parts.items()},
        parameters=lambda task: list(inspect.signature(tasks[task]).parameters),
        fit_together=fit_together if "regression" in parts else None,
        validate=lambda estimator: estimator._check_parameters(),
    )


METHODS: dict[str, Method] = {name: _method(name) for name in {**REGRESSORS, **CLASSIFIERS}}

__all__ = [
    "METHODS",
    "BayesByBackpropClassifier",
    "ConcreteDropoutClassifier",
    "ContextualDropoutClassifier",
    "ContextualGatingClassifier",
    "ContextualGatingDropoutClassifier",
    "DeepEnsembleRegressor",
    "GCDSRegressor",
    "GaussianContextualDropoutClassifier",
    "GaussianDropoutClassifier",
    "MAPClassifier",
    "MCDropoutClassifier",
    "MCDropoutRegressor",
    "MixtureDensityRegressor",
    "PBPRegressor",
]
