"""The mean model f(x): trained first, then frozen; the diffusion is around it.

Every mean model here predicts with a leading member axis, (M, N, K). `NetworkMean` is the paper's
MLP: the number of epochs is found on 60/40 of the rows in their order, then the network starts
anew and learns from all of them. `ZeroMean` knows nothing. `RegressorMean` is any regressor
with fit and predict. For the cross-fitted mean of the default recipe see `card.crossfit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional

from card.checkpoint import Stage
from card.nn import MLP, generators
from card.train import Progress, Training, seed_of, train


class Mean(ABC):
    """A fitted mean model: rows x (N, D) -> f (M, N, K), in the model's coordinates."""

    @abstractmethod
    def predict(self, x: np.ndarray) -> np.ndarray: ...


@dataclass
class ZeroMean(Mean):
    n_targets: int

    def predict(self, x):
        return np.zeros((1, len(x), self.n_targets), dtype=np.float32)


@dataclass
class RegressorMean(Mean):
    """A fitted scikit-learn regressor of the response in the model's coordinates, or in the user's."""

    regressor: Any
    n_targets: int
    location: np.ndarray | None = None  # where the regressor speaks the user's units
    scale: np.ndarray | None = None

    def predict(self, x):
        f = np.asarray(self.regressor.predict(x)).reshape(1, len(x), self.n_targets)
        if self.location is not None:
            f = (f - self.location) / self.scale
        return f.astype(np.float32)


def is_fitted(estimator: object) -> bool:
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError, AttributeError):  # the last of one without scikit-learn's tags
        return False
    return True


def fit_regressor_mean(regressor, x: np.ndarray, z: np.ndarray, location, scale) -> RegressorMean:
    """Fit a clone in model coordinates; a regressor that is fitted already is taken as it is."""
    if is_fitted(regressor):
        return RegressorMean(regressor, z.shape[1], location, scale)
    return RegressorMean(clone(regressor).fit(x, z.ravel() if z.shape[1] == 1 else z), z.shape[1])


def leaky_relu(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.01)


class NetworkMean(Mean):
    """M MLPs, one per member; the paper's has hidden layers of 100 and 50."""

    def __init__(
        self,
        sizes: Sequence[int],
        seeds: Sequence[int],
        dropout: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.sizes, self.dropout = tuple(sizes), dropout
        self.network = MLP(self.sizes, leaky_relu, generators(seeds), dropout).to(device)

    @torch.no_grad()
    def predict(self, x):
        bias = next(self.network.parameters())
        x = torch.as_tensor(x).to(bias)
        return self.network(x.expand(len(bias), -1, -1)).cpu().numpy()


def fit_network_mean(
    x: Tensor,
    z: Tensor,
    rows: Tensor,
    seeds: Sequence[int],
    hidden: Sequence[int],
    how: Training,
    dropout: float = 0.0,
    stages: tuple[Stage | None, Stage | None] = (None, None),
    progress: Progress | None = None,
) -> NetworkMean:
    """The paper's recipe for f, for members that read rows (M, n) of a common table x, z.

    60 % of the rows in their order train and the rest validate; the number of epochs that was best
    there, member by member, is used for a fresh network on all rows.
    """
    sizes = (x.shape[1], *hidden, z.shape[1])
    cut = max(1, int(0.6 * rows.shape[1]))

    def loss_of(network: MLP):
        return lambda batch, rngs: (network(x[batch], rngs) - z[batch]).square().mean(dim=(1, 2))

    best_epoch = torch.full((len(rows),), how.epochs)
    if how.patience is not None and cut < rows.shape[1]:
        trial = NetworkMean(sizes, [seed_of(s, 1) for s in seeds], dropout, x.device)
        validation = rows[:, cut:]

        def held_out(epoch: int) -> Tensor:
            return (trial.network(x[validation]) - z[validation]).square().mean(dim=(1, 2))

        trial_seeds = [seed_of(s, 2) for s in seeds]
        trace = train(
            trial.network,
            loss_of(trial.network),
            rows[:, :cut],
            trial_seeds,
            how,
            held_out,
            stages[0],
            progress,
        )
        best_epoch = trace.best_epoch

    mean = NetworkMean(sizes, [seed_of(s, 3) for s in seeds], dropout, x.device)
    final = replace(how, epochs=int(best_epoch.max()), patience=None, evaluate_every=1)

    def epochs_to_go(epoch: int) -> Tensor:
        """Lowest when a member has had its number of epochs: there its weights are kept."""
        return (best_epoch.to(x.device) - epoch).abs().float()

    train(
        mean.network,
        loss_of(mean.network),
        rows,
        [seed_of(s, 4) for s in seeds],
        final,
        epochs_to_go if len(rows) > 1 else None,
        stages[1],
        progress,
    )
    return mean
