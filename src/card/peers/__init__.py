"""What a user would pick today, behind the same face as the baselines: fit and predict_distribution.

Each adapter needs a package of others, from `pip install 'card-diffusion[peers]'`; importing this needs
none of them. `card.peers.route` tells how quantiles and draws become a distribution.
"""

from __future__ import annotations

from dataclasses import replace

from card.bench.methods import Method, of_class
from card.peers.base import PeerNotAvailable
from card.peers.boosting import (
    CatBoostGaussianRegressor,
    NGBoostRegressor,
    XGBoostDistributionRegressor,
)
from card.peers.flow import SplineFlowRegressor
from card.peers.pretrained import TabICLQuantileRegressor, TabPFNQuantileRegressor
from card.peers.quantiles import (
    ConformalGBMRegressor,
    LightGBMQuantileRegressor,
    QuantileForestRegressor,
)
from card.peers.route import QuantileGrid
from card.peers.treeffuser import TreeffuserRegressor


def _method(name: str, cls: type, *packages: str) -> tuple[str, Method]:
    return name, replace(of_class(name, cls), packages=packages)


METHODS: dict[str, Method] = dict(
    [
        _method("ngboost", NGBoostRegressor, "ngboost"),
        _method("catboost", CatBoostGaussianRegressor, "catboost"),
        _method("quantile-forest", QuantileForestRegressor, "quantile-forest"),
        _method("lightgbm-quantile", LightGBMQuantileRegressor, "lightgbm"),
        _method("xgboost-distribution", XGBoostDistributionRegressor, "xgboost-distribution"),
        _method("treeffuser", TreeffuserRegressor),
        _method("spline-flow", SplineFlowRegressor, "zuko"),
        _method("conformal-gbm", ConformalGBMRegressor),
        _method("tabpfn", TabPFNQuantileRegressor, "tabpfn"),
        _method("tabicl", TabICLQuantileRegressor, "tabicl"),
    ]
)

__all__ = [
    "METHODS",
    "CatBoostGaussianRegressor",
    "ConformalGBMRegressor",
    "LightGBMQuantileRegressor",
    "NGBoostRegressor",
    "PeerNotAvailable",
    "QuantileForestRegressor",
    "QuantileGrid",
    "SplineFlowRegressor",
    "TabICLQuantileRegressor",
    "TabPFNQuantileRegressor",
    "TreeffuserRegressor",
    "XGBoostDistributionRegressor",
]
