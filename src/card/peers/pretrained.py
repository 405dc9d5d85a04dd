"""Networks trained beforehand on made-up tables: they read the training rows as context and learn nothing.

TabPFN (Hollmann et al. 2025) and TabICL (Qu et al. 2025). Both need weights, files of a hundred megabytes
that come with licences of their own, so nothing is downloaded here: a file is looked for where the data are,
as `weights/tabpfn-regressor.ckpt` and `weights/tabicl-regressor.ckpt` under CARD_DATA, or taken from
`model_path`. Without it the benchmark says that the weights are not available and goes on.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from card.bench.errors import DataNotAvailable
from card.datasets import fetch
from card.peers.base import need
from card.peers.quantiles import QuantilePeer
from card.peers.route import LEVELS


class PretrainedPeer(QuantilePeer):
    """A network whose weights are a file on this machine."""

    package: ClassVar[str]
    model_path: str | None

    def __init__(self, model_path: str | None = None, random_state: int | None = None) -> None:
        self.model_path, self.random_state = model_path, random_state

    @abstractmethod
    def _network(self, module: Any, weights: Path, seed: int) -> Any:
        """The package's estimator."""

    def _learn(self, X, y, seed):
        weights = self._weights()
        return self._network(need(self.package, self.package), weights, seed).fit(X, y)

    def _weights(self) -> Path:
        name = f"weights/{self.package}-regressor.ckpt"
        path = Path(self.model_path) if self.model_path else fetch.locate([name])
        if path is None or not path.exists():
            raise DataNotAvailable(f"{self.package} weights ({path or name + ' under CARD_DATA'})")
        return path


class TabPFNQuantileRegressor(PretrainedPeer):
    """TabPFN with its defaults.

    Parameters
    ----------
    model_path
        File of weights; if not given, `weights/tabpfn-regressor.ckpt` under CARD_DATA.
    random_state
        Seed of everything random.
    """

    package = "tabpfn"

    def _network(self, module, weights, seed):
        return module.TabPFNRegressor(
            model_path=weights, device="cpu", random_state=seed, ignore_pretraining_limits=True
        )

    def _values(self, X):
        return np.column_stack(self.model_.predict(X, output_type="quantiles", quantiles=list(LEVELS)))


class TabICLQuantileRegressor(PretrainedPeer):
    """TabICL with its defaults.

    Parameters
    ----------
    model_path
        File of weights; if not given, `weights/tabicl-regressor.ckpt` under CARD_DATA.
    random_state
        Seed of everything random.
    """

    package = "tabicl"

    def _network(self, module, weights, seed):
        return module.TabICLRegressor(
            model_path=weights, allow_auto_download=False, device="cpu", n_jobs=1, random_state=seed
        )

    def _values(self, X):
        return np.asarray(self.model_.predict(X, output_type="quantiles", alphas=list(LEVELS)))


__all__ = ["TabICLQuantileRegressor", "TabPFNQuantileRegressor"]
