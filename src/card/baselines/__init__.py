"""Competing methods behind the same face: fit and predict_distribution.

`METHODS` maps a method's name to how the benchmark builds it (see `card.bench.methods.Method`).
"""

from __future__ import annotations

from dataclasses import replace

from card.baselines.base import NetworkRegressor, fit_together
from card.baselines.dropout import MCDropoutRegressor
from card.baselines.ensembles import DeepEnsembleRegressor
from card.baselines.gcds import GCDSRegressor
from card.baselines.mdn import MixtureDensityRegressor
from card.baselines.pbp import PBPRegressor
from card.bench.methods import Method, of_class


def _together(name: str, cls: type[NetworkRegressor]) -> Method:
    """A method whose splits train in one batched run."""
    return replace(of_class(name, cls), fit_together=fit_together)


METHODS: dict[str, Method] = {
    "deep-ensembles": _together("deep-ensembles", DeepEnsembleRegressor),
    "mc-dropout": _together("mc-dropout", MCDropoutRegressor),
    "pbp": _together("pbp", PBPRegressor),
    "gcds": _together("gcds", GCDSRegressor),
    "mdn": _together("mdn", MixtureDensityRegressor),
}

__all__ = [
    "METHODS",
    "DeepEnsembleRegressor",
    "GCDSRegressor",
    "MCDropoutRegressor",
    "MixtureDensityRegressor",
    "PBPRegressor",
]
