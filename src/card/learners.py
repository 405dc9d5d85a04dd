"""What a cross-fitted mean is made of: learners that fit many training sets of one table at once.

A learner gets the whole table and J training sets (arrays of row numbers), and gives back J fitted
models that predict together: (N, D) -> (J, N, K). Networks train their J members in one batched call;
trees grow one after the other, or in parallel processes. A fitted learner stores itself as named arrays
(and, for a user's own regressor, the scikit-learn objects).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import clone
from torch.nn import functional as F

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
    """A fitted learner in storable parts; `kind` says how to put it together."""

    name: str
    kind: str
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


def sklearn_seed(seed: int) -> int:
    """A seed as scikit-learn takes it."""
    return seed % 2**32


def in_parallel(task: Task, name: str, grow: Callable[[Task, int], Any], n: int) -> list[Any]:
    """grow(task, i) for each i, in `n_jobs` processes; the result does not depend on their number."""
    bare = Task(task.x, task.z, task.rows, task.seeds)
    done = []
    for i, result in enumerate(
        Parallel(task.n_jobs, return_as="generator")(delayed(grow)(bare, i) for i in range(n))
    ):
        done.append(result)
        task.report(name, (i + 1) / n)
    return done


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
        return FittedLinear(weight, bias, *_limits(task))

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
    low: np.ndarray  # (J, K), or (K,) for all alike
    high: np.ndarray
    name: str = "linear"

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        pick = slice(None) if members is None else list(members)
        # einsum's own loop, unlike a matrix product, rounds a row alike wherever it stands
        f = np.einsum("nd,jdk->jnk", x, self.weight[pick]) + self.bias[pick, None]
        return _held(f, self.low, self.high, pick)

    def store(self) -> Stored:
        arrays = {"weight": self.weight, "bias": self.bias, "low": self.low, "high": self.high}
        return Stored(self.name, "linear", arrays)


def _limits(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """For each model (J, K) the range of the responses it learns from, and half to all of it on each side.

    No mean is expected beyond. Each model stops at a limit of its own: far from all data, where all have
    reached theirs, they would agree otherwise, and seem to be sure.
    """
    low, high = (np.stack([pick(task.z[rows], axis=0) for rows in task.rows]) for pick in (np.min, np.max))
    reach = np.linspace(0.5, 1.0, len(low), dtype=np.float32)[:, None] * (high - low)
    return low - reach, high + reach


def _held(f: np.ndarray, low: np.ndarray, high: np.ndarray, pick: Any = slice(None)) -> np.ndarray:
    """Predictions (J, N, K) of the picked models, within limits (J, K), or (K,) for all alike."""
    low, high = (each if each.ndim == 1 else each[pick, None] for each in (low, high))
    return np.clip(f, low, high)


# -------------------------------------------------------------------------------------- networks


@dataclass(frozen=True)
class Network:
    """Multi-layer perceptrons on squared error, fed with the numbers and a second view of them.

    With `bins`, the second view is a piecewise-linear encoding: a column is cut at quantiles of the table and
    bin b is clip((x - low_b) / width_b, 0, 1), so that the first layer can bend where the data are. Without,
    it is the whitened table, which brings out what nearly collinear columns differ in. Rates rise and fall in
    one cycle; there is no early stopping, hence nothing learnt from the rows of other folds.
    """

    name: str = "network"
    width: int = 128
    depth: int = 3
    steps: int = 600
    batch_size: int = 64
    lr: float = 3e-3
    weight_decay: float = 1e-2
    bins: int = 0  # a column
    most_bins: int = 1024  # of all columns together

    def fit(self, task: Task) -> Fitted:
        view = bins_of(task.x, self.bins, self.most_bins) if self.bins else whitening_of(task.x)
        inputs, z = torch.from_numpy(view(task.x)), torch.from_numpy(task.z)
        net = _perceptron([inputs.shape[1], *[self.width] * self.depth, z.shape[1]], task.seeds)
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
            return self.error(net(inputs[batch]), z[batch])

        def progress(done: int, steps: int, _: float) -> None:
            task.report(self.name, done / steps)

        train(net, loss, rows, list(task.seeds), how, progress=progress)
        return FittedNetwork(net.requires_grad_(False), view, *self.limits(task), self.name)

    def error(self, predicted: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """What each member (M,) is to make small, for predictions and responses (M, B, K)."""
        return (predicted - z).square().mean(dim=(1, 2))

    def limits(self, task: Task) -> tuple[np.ndarray, np.ndarray]:
        """Between which predictions are held."""
        return _limits(task)


def _perceptron(sizes: Sequence[int], seeds: Sequence[int]) -> MLP:
    return MLP(sizes, F.silu, generators(seeds))


def _rectangle(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Training sets of unlike size as (J, n): shorter ones begin anew."""
    return np.stack([np.resize(each, max(map(len, rows))) for each in rows])


class View:
    """Numbers and a second view of them, side by side: (N, D) -> (N, D + P)."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self.arrays = arrays

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, self.second(x)], axis=1, dtype=np.float32)

    def second(self, x: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class Bins(View):
    """The column, the lower end and the width of each bin: three arrays (P,)."""

    def second(self, x: np.ndarray) -> np.ndarray:
        column, low, width = (self.arrays[name] for name in ("column", "low", "width"))
        return np.clip((x[:, column] - low) / width, 0, 1) - np.float32(0.5)


class Whitening(View):
    """A centre (D,) and a map (D, P)."""

    def second(self, x: np.ndarray) -> np.ndarray:
        return (x - self.arrays["centre"]) @ self.arrays["map"]


def bins_of(x: np.ndarray, bins: int, most: int = 1024) -> Bins:
    """Cuts at quantiles; none for columns of two values, and fewer where columns are many."""
    bins = max(1, min(bins, most // x.shape[1]))
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)).astype(np.float32)) for column in x.T]
    cut = [(d, low, high - low) for d, e in enumerate(edges) if len(e) > 2 for low, high in pairwise(e)]
    column, low, width = np.array(cut, np.float32).reshape(-1, 3).T
    return Bins(column=column.astype(np.int64), low=low, width=width)


def whitening_of(x: np.ndarray, smallest: float = 1e-4) -> Whitening:
    """Principal components in unit variance, but for those of a scale below `smallest` of the first's."""
    centre = x.mean(axis=0, dtype=float)
    size, axes = np.linalg.eigh(np.cov(x.T.astype(float), bias=True).reshape(x.shape[1], -1))
    keep = size > max(smallest**2 * size[-1], 1e-12)
    return Whitening(
        centre=centre.astype(np.float32), map=(axes[:, keep] / np.sqrt(size[keep])).astype(np.float32)
    )


@dataclass
class FittedNetwork:
    net: MLP
    view: View
    low: np.ndarray  # (J, K), or (K,) for all alike
    high: np.ndarray
    name: str = "network"

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None, chunk: int = 512) -> np.ndarray:
        net = self.net if members is None else _pick(self.net, members)
        n_members = len(net.state_dict()["layers.0.weight"])
        parts = [
            net(torch.from_numpy(self.view(x[i : i + chunk])).expand(n_members, -1, -1)).numpy()
            for i in range(0, max(len(x), 1), chunk)
        ]
        pick = slice(None) if members is None else list(members)
        return _held(np.concatenate(parts, axis=1), self.low, self.high, pick)

    def store(self) -> Stored:
        arrays = {f"net.{name}": value.numpy() for name, value in self.net.state_dict().items()}
        arrays |= {f"view.{name}": value for name, value in self.view.arrays.items()}
        return Stored(self.name, "network", arrays | {"low": self.low, "high": self.high})

    @classmethod
    def restore(cls, stored: Stored) -> FittedNetwork:
        weights = {
            name: torch.from_numpy(value.copy()) for name, value in _under(stored.arrays, "net.").items()
        }
        view = _under(stored.arrays, "view.")
        made = Whitening(**view) if "map" in view else Bins(**view)
        return cls(_from_weights(weights), made, stored.arrays["low"], stored.arrays["high"], stored.name)


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


def _pick(net: MLP, members: Sequence[int]) -> MLP:
    """The chosen members as a network of their own."""
    return _from_weights({name: value[list(members)] for name, value in net.state_dict().items()})


def _from_weights(weights: dict[str, torch.Tensor]) -> MLP:
    layers = [weights[f"layers.{i}.weight"] for i in range(len(weights) // 2)]
    net = _perceptron([layers[0].shape[1], *[layer.shape[2] for layer in layers]], range(len(layers[0])))
    net.load_state_dict(weights)
    return net.requires_grad_(False)


# ---------------------------------------------------------------------------- the user's regressor


@dataclass(frozen=True)
class Estimator:
    """A scikit-learn regressor, cloned for each training set and each target."""

    regressor: Any
    name: str = "estimator"

    def fit(self, task: Task) -> Fitted:
        n_targets = task.z.shape[1]
        models = in_parallel(task, self.name, self._fit, len(task.rows) * n_targets)
        return FittedEstimator(models, n_targets)

    def _fit(self, task: Task, i: int) -> Any:
        j, k = divmod(i, task.z.shape[1])
        model = clone(self.regressor)
        loose = {
            n: v for n, v in model.get_params().items() if n.split("__")[-1] == "random_state" and v is None
        }
        model.set_params(**dict.fromkeys(loose, sklearn_seed(seed_of(task.seeds[j], k))))
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
        return Stored(self.name, "estimator", estimators=self.models, settings={"n_targets": self.n_targets})
