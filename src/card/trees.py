"""Extra trees and gradient-boosted trees, grown by scikit-learn, kept as flat arrays (`card.forest`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from sklearn import config_context
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, HistGradientBoostingRegressor

from card.forest import Forest, Tree, tree_of, tree_of_nodes
from card.learners import Fitted, Stored, Task, in_parallel, sklearn_seed
from card.train import seed_of


def unchecked() -> AbstractContextManager[None]:
    """Spares scikit-learn the check of every single tree's input: a quarter of the time on small tables."""
    return config_context(skip_parameter_validation=True, assume_finite=True)


@dataclass(frozen=True)
class ExtraTrees:
    """Extremely randomised trees: one forest for all targets, leaves bounded so that it stays small."""

    name: str = "extra_trees"
    n_trees: int = 100
    max_features: float = 1.0
    min_leaf: int = 1
    max_leaves: int | None = None

    def fit(self, task: Task) -> Fitted:
        grown = in_parallel(task, self.name, self._grow, len(task.rows))
        return FittedForest(Forest.pack(grown, np.zeros((len(grown), task.z.shape[1]))), self.name)

    def _grow(self, task: Task, j: int) -> list[Tree]:
        model = ExtraTreesRegressor(
            self.n_trees,
            max_features=self.max_features,
            min_samples_leaf=self.min_leaf,
            max_leaf_nodes=self.max_leaves,
            random_state=sklearn_seed(task.seeds[j]),
        )
        z = task.z[task.rows[j]]
        with unchecked():
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
    depth: int | None = 4
    max_features: float = 0.5
    subsample: float = 0.7
    min_leaf: int = 3
    max_leaves: int | None = None  # histograms with that many leaves, in place of exact splits

    def fit(self, task: Task) -> Fitted:
        n_targets = task.z.shape[1]
        grown = in_parallel(task, self.name, self._grow, len(task.rows) * n_targets)
        level = [task.z[rows].mean(axis=0) for rows in task.rows]
        return FittedForest(Forest.pack(grown, np.reshape(level, (-1, 1))), self.name, n_targets)

    def _grow(self, task: Task, i: int) -> list[Tree]:
        j, k = divmod(i, task.z.shape[1])
        x, z = task.x[task.rows[j]], task.z[task.rows[j], k].astype(float)
        grow = self._exact if self.max_leaves is None else self._binned
        with unchecked():
            return grow(x, z - z.mean(), sklearn_seed(seed_of(task.seeds[j], k)))

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
        return Stored(self.name, "forest", self.forest.state(), settings={"n_targets": self.n_targets})

    @classmethod
    def restore(cls, stored: Stored) -> FittedForest:
        return cls(Forest.from_state(stored.arrays), stored.name, **stored.settings)
