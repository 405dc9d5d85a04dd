"""What a cross-fitted mean is made of: learners that fit many training sets of one table at once.

A learner gets the whole table and J training sets (arrays of row numbers), and gives back J fitted
models that predict together: (N, D) -> (J, N, K). Networks train their J members in one batched call;
trees grow one after the other, or in parallel processes. A fitted learner stores itself as named arrays
(and, for a user's own regressor, the scikit-learn objects).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
)
from torch.nn import functional as F

from card.forest import Forest, Tree, tree_of, tree_of_nodes
from card.nn import MLP, generators
from card.train import Training, seed_of, train

Arrays = dict[str, np.ndarray]
Progress = Callable[[str, float], None]  # what is being fitted, and the share of it that is done


@dataclass(frozen=True)
class Task:
    """J training sets of one table: what a learner is asked to fit."""

    x: np.ndarray  # (N, D) float32
    z: np.ndarray  # (N, K) float32
    rows: Sequence[np.ndarray]  # J arrays of row numbers
    seeds: Sequence[int]  # J
    n_jobs: int | None = None
    progress: Progress | None = None

    def report(self, name: str, share: float) -> None:
        if self.progress is not None:
            self.progress(name, share)


@dataclass
class Stored:
    """A fitted learner in storable parts."""

    name: str
    arrays: Arrays = field(default_factory=dict)
    estimators: list[Any] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


class Fitted(Protocol):
    """J fitted models."""

    @property
    def name(self) -> str: ...

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        """(N, D) -> (J, N, K), or only the given members."""

    def store(self) -> Stored: ...


class Learner(Protocol):
    """How to fit them."""

    @property
    def name(self) -> str: ...

    def fit(self, task: Task) -> Fitted: ...


# ---------------------------------------------------------------------------------------- linear


@dataclass(frozen=True)
class Linear:
    """Ridge regression; the penalty is the one of the grid with the least leave-one-out error.

    With centred columns X = U S V', the hat matrix of penalty a is H = U S^2/(S^2 + a) U', and a row
    left out errs by (z - H z) / (1 - H_ii - 1/n): the whole grid costs one decomposition. The largest
    penalty leaves the mean alone, so a table without signal gets a constant.
    """

    name: str = "linear"
    penalties: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e9)  # times the number of rows

    def fit(self, task: Task) -> Fitted:
        models = [self._fit(task.x[rows], task.z[rows]) for rows in task.rows]
        weight, bias = (np.stack(part).astype(np.float32) for part in zip(*models, strict=True))
        task.report(self.name, 1.0)
        return FittedLinear(weight, bias, *_limits(task.z))

    def _fit(self, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, z, n = x.astype(float), z.astype(float), len(x)
        centre, level = x.mean(axis=0), z.mean(axis=0)
        u, s, vt = np.linalg.svd(x - centre, full_matrices=False)
        projected = u.T @ (z - level)
        errors, weights = [], []
        for penalty in self.penalties:
            shrink = s**2 / (s**2 + penalty * n)
            leverage = np.minimum((u**2) @ shrink + 1.0 / n, 1.0 - 1e-6)
            left_out = (z - level - u @ (shrink[:, None] * projected)) / (1.0 - leverage[:, None])
            errors.append((left_out**2).mean(axis=0))
            weights.append(vt.T @ ((s / (s**2 + penalty * n))[:, None] * projected))
        best = np.argmin(errors, axis=0)  # (K,): each target has a penalty of its own
        weight = np.stack(weights)[best, :, np.arange(z.shape[1])].T
        return weight, level - centre @ weight


@dataclass
class FittedLinear:
    weight: np.ndarray  # (J, D, K)
    bias: np.ndarray  # (J, K)
    low: np.ndarray  # (K,)
    high: np.ndarray
    name: str = "linear"

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        pick = slice(None) if members is None else list(members)
        return np.clip(x @ self.weight[pick] + self.bias[pick, None], self.low, self.high)

    def store(self) -> Stored:
        arrays = {"weight": self.weight, "bias": self.bias, "low": self.low, "high": self.high}
        return Stored(self.name, arrays)


def _limits(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The range of the responses and half as much on each side: no mean is expected beyond."""
    low, high = z.min(axis=0), z.max(axis=0)
    return low - (high - low) / 2, high + (high - low) / 2


# -------------------------------------------------------------------------------------- networks


@dataclass(frozen=True)
class Network:
    """Multi-layer perceptrons on numbers and their piecewise-linear encoding, trained on squared error.

    The encoding cuts a column at quantiles of the table; bin b of it is clip((x - low_b) / width_b, 0, 1),
    so that a first layer can bend where the data are. Rates rise and fall in one cycle; there is no
    early stopping, hence nothing learnt from the rows of other folds.
    """

    name: str = "network"
    width: int = 128
    depth: int = 3
    steps: int = 600
    batch_size: int = 64
    lr: float = 3e-3
    weight_decay: float = 1e-2
    bins: int = 8

    def fit(self, task: Task) -> Fitted:
        cuts = _cuts(task.x, self.bins)
        inputs, z = torch.from_numpy(_encode(task.x, cuts)), torch.from_numpy(task.z)
        net = self._net(inputs.shape[1], z.shape[1], task.seeds)
        rows = torch.from_numpy(_rectangle(task.rows))
        batch_size = min(self.batch_size, rows.shape[1])
        how = Training(
            epochs=max(1, round(self.steps / -(-rows.shape[1] // batch_size))),
            batch_size=batch_size,
            lr=self.lr,
            final_lr=0.0,
            warmup=0.1,
            betas=(0.9, 0.99),
            weight_decay=self.weight_decay,
            clip=1.0,
        )

        def loss(batch: torch.Tensor, _: object) -> torch.Tensor:
            return (net(inputs[batch]) - z[batch]).square().mean(dim=(1, 2))

        def progress(done: int, steps: int, _: float) -> None:
            task.report(self.name, done / steps)

        train(net, loss, rows, list(task.seeds), how, progress=progress)
        return FittedNetwork(net.requires_grad_(False), cuts, *_limits(task.z), asdict(self))

    def _net(self, n_in: int, n_out: int, seeds: Sequence[int]) -> MLP:
        return MLP([n_in, *[self.width] * self.depth, n_out], F.silu, generators(seeds))


def _rectangle(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Training sets of unlike size as (J, n): shorter ones begin anew."""
    return np.stack([np.resize(each, max(map(len, rows))) for each in rows])


def _cuts(x: np.ndarray, bins: int) -> np.ndarray:
    """(3, P): the column, the lower end and the width of each bin; none for columns of two values."""
    bins = min(bins, 1024 // x.shape[1])
    found = []
    for d, column in enumerate(x.T):
        edges = (
            np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)).astype(np.float32)) if bins > 1 else []
        )
        if len(edges) > 2:
            found += [(d, low, high - low) for low, high in pairwise(edges)]
    return np.array(found, np.float32).reshape(-1, 3).T.copy()


def _encode(x: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Numbers and their bins, side by side: (N, D + P)."""
    column, low, width = cuts
    bins = np.clip((x[:, column.astype(int)] - low) / width, 0, 1) - 0.5
    return np.concatenate([x, bins], axis=1, dtype=np.float32)


@dataclass
class FittedNetwork:
    net: MLP
    cuts: np.ndarray
    low: np.ndarray
    high: np.ndarray
    settings: dict[str, Any]
    name: str = "network"

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None, chunk: int = 512) -> np.ndarray:
        net = self.net if members is None else _pick(self.net, members)
        n_members = len(net.layers[0].weight)
        parts = [
            net(torch.from_numpy(_encode(x[i : i + chunk], self.cuts)).expand(n_members, -1, -1)).numpy()
            for i in range(0, max(len(x), 1), chunk)
        ]
        return np.clip(np.concatenate(parts, axis=1), self.low, self.high)

    def store(self) -> Stored:
        arrays = {f"net.{name}": value.numpy() for name, value in self.net.state_dict().items()}
        arrays |= {"cuts": self.cuts, "low": self.low, "high": self.high}
        return Stored(self.name, arrays, settings=self.settings)

    @classmethod
    def restore(cls, stored: Stored) -> FittedNetwork:
        weights = {
            n[4:]: torch.from_numpy(v.copy()) for n, v in stored.arrays.items() if n.startswith("net.")
        }
        n_in, n_out = weights["layers.0.weight"].shape[1], len(stored.arrays["low"])
        how = Network(**stored.settings)
        net = how._net(n_in, n_out, range(len(weights["layers.0.weight"])))
        net.load_state_dict(weights)
        arrays = [stored.arrays[name] for name in ("cuts", "low", "high")]
        return cls(net.requires_grad_(False), *arrays, stored.settings)


def _pick(net: MLP, members: Sequence[int]) -> MLP:
    """The chosen members as a network of their own."""
    n_in = net.layers[0].weight.shape[1]
    sizes = [n_in, *[layer.weight.shape[2] for layer in net.layers]]
    picked = MLP(sizes, net.activation, generators(range(len(members))))
    picked.load_state_dict({name: value[list(members)] for name, value in net.state_dict().items()})
    return picked.requires_grad_(False)


# ----------------------------------------------------------------------------------------- trees


@dataclass(frozen=True)
class ExtraTrees:
    """Extremely randomised trees: one forest for all targets, leaves bounded so that it stays small."""

    name: str = "extra_trees"
    n_trees: int = 100
    max_features: float = 1.0
    min_leaf: int = 1
    max_leaves: int | None = None

    def fit(self, task: Task) -> Fitted:
        grown = _parallel(task, self.name, self._grow, len(task.rows))
        return FittedForest(Forest.pack(grown, np.zeros((len(grown), task.z.shape[1]))), self.name)

    def _grow(self, task: Task, j: int) -> list[Tree]:
        model = ExtraTreesRegressor(
            self.n_trees,
            max_features=self.max_features,
            min_samples_leaf=self.min_leaf,
            max_leaf_nodes=self.max_leaves,
            random_state=_state(task.seeds[j]),
        )
        z = task.z[task.rows[j]]
        model.fit(task.x[task.rows[j]], z[:, 0] if z.shape[1] == 1 else z)
        return [tree_of(tree, 1.0 / self.n_trees) for tree in model.estimators_]


@dataclass(frozen=True)
class Boosting:
    """Gradient-boosted trees on squared error: exact splits on small tables, histograms on large ones.

    Each tree sees a random share of the rows (small tables) and each split a random share of the
    columns: the trees differ, and their sum is smoother.
    """

    name: str = "boosting"
    n_trees: int = 300
    lr: float = 0.07
    depth: int = 4
    max_features: float = 0.5
    subsample: float = 0.7
    min_leaf: int = 3
    max_leaves: int | None = None  # histograms with that many leaves, in place of exact splits

    def fit(self, task: Task) -> Fitted:
        n_targets = task.z.shape[1]
        grown = _parallel(task, self.name, self._grow, len(task.rows) * n_targets)
        level = [task.z[rows].mean(axis=0) for rows in task.rows]
        return FittedForest(Forest.pack(grown, np.reshape(level, (-1, 1))), self.name, n_targets)

    def _grow(self, task: Task, i: int) -> list[Tree]:
        j, k = divmod(i, task.z.shape[1])
        x, z = task.x[task.rows[j]], task.z[task.rows[j], k].astype(float)
        grow = self._exact if self.max_leaves is None else self._binned
        return grow(x, z - z.mean(), _state(seed_of(task.seeds[j], k)))

    def _exact(self, x: np.ndarray, z: np.ndarray, seed: int) -> list[Tree]:
        model = GradientBoostingRegressor(
            n_estimators=self.n_trees,
            learning_rate=self.lr,
            max_depth=self.depth,
            subsample=self.subsample,
            max_features=self.max_features,
            min_samples_leaf=self.min_leaf,
            init="zero",
            random_state=seed,
        ).fit(x, z)
        return [tree_of(tree, self.lr) for tree in model.estimators_[:, 0]]

    def _binned(self, x: np.ndarray, z: np.ndarray, seed: int) -> list[Tree]:
        model = HistGradientBoostingRegressor(
            max_iter=self.n_trees,
            learning_rate=self.lr,
            max_leaf_nodes=self.max_leaves,
            max_depth=self.depth,
            max_features=self.max_features,
            min_samples_leaf=self.min_leaf,
            early_stopping=False,
            random_state=seed,
        ).fit(x, z)
        return [tree_of_nodes(tree.nodes) for (tree,) in model._predictors]


def _state(seed: int) -> int:
    """A seed as scikit-learn takes it."""
    return seed % 2**32


def _parallel(task: Task, name: str, grow: Callable[[Task, int], Any], n: int) -> list[Any]:
    """grow(task, i) for each i, in `n_jobs` processes; the result does not depend on their number."""
    bare = Task(task.x, task.z, task.rows, task.seeds)
    done = []
    for i, result in enumerate(
        Parallel(task.n_jobs, return_as="generator")(delayed(grow)(bare, i) for i in range(n))
    ):
        done.append(result)
        task.report(name, (i + 1) / n)
    return done


@dataclass
class FittedForest:
    forest: Forest  # J ensembles of K values, or J K ensembles of one
    name: str
    n_targets: int = 1  # ensembles that make up one model

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        k = self.n_targets
        pick = None if members is None else [j * k + i for j in members for i in range(k)]
        out = self.forest.predict(x, pick)  # (J k, N, V)
        return out if k == 1 else out[..., 0].reshape(-1, k, len(x)).transpose(0, 2, 1)

    def store(self) -> Stored:
        return Stored(self.name, self.forest.state(), settings={"n_targets": self.n_targets})

    @classmethod
    def restore(cls, stored: Stored) -> FittedForest:
        return cls(Forest.from_state(stored.arrays), stored.name, **stored.settings)


# ---------------------------------------------------------------------------- the user's regressor


@dataclass(frozen=True)
class Estimator:
    """A scikit-learn regressor, cloned for each training set and each target."""

    regressor: Any
    name: str = "estimator"

    def fit(self, task: Task) -> Fitted:
        n_targets = task.z.shape[1]
        models = _parallel(task, self.name, self._fit, len(task.rows) * n_targets)
        return FittedEstimator(models, n_targets)

    def _fit(self, task: Task, i: int) -> Any:
        j, k = divmod(i, task.z.shape[1])
        model = clone(self.regressor)
        loose = {
            n: v for n, v in model.get_params().items() if n.split("__")[-1] == "random_state" and v is None
        }
        model.set_params(**dict.fromkeys(loose, _state(seed_of(task.seeds[j], k))))
        return model.fit(task.x[task.rows[j]], task.z[task.rows[j], k])


@dataclass
class FittedEstimator:
    models: list[Any]  # J K
    n_targets: int
    name: str = "estimator"

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        k = self.n_targets
        n_models = len(self.models) // k
        picked = [
            self.models[j * k + i]
            for j in (range(n_models) if members is None else members)
            for i in range(k)
        ]
        out = np.stack([np.asarray(model.predict(x), np.float32).reshape(len(x)) for model in picked])
        return out.reshape(-1, k, len(x)).transpose(0, 2, 1)

    def store(self) -> Stored:
        return Stored(self.name, estimators=self.models, settings={"n_targets": self.n_targets})


def restore(stored: Stored) -> Fitted:
    """The fitted learner that `store` took apart."""
    match stored.name:
        case "linear":
            return FittedLinear(**stored.arrays)
        case "network":
            return FittedNetwork.restore(stored)
        case "extra_trees" | "boosting":
            return FittedForest.restore(stored)
        case "estimator":
            return FittedEstimator(stored.estimators, **stored.settings)
    raise ValueError(f"a learner of this version was wanted, {stored.name!r} came; update card")
