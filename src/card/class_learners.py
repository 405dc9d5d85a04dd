"""Learners of classes: what the base classifier f of a table is made of.

They fit the same tasks as `card.learners`, with one-hot responses z (N, C), and predict probabilities. Some
predict scores and are made probabilities by `Softmax`, so that a linear map, a network and a forest are
stored as what they are. A training set may lack a class: its probability is then small, not undefined.

`pool` weighs learners by the log-loss of their mixture: with p_l the probability that learner l gave to the
true class of a row, the weights of the simplex that maximise the mean of log sum_l w_l p_l are the limit of
w_l <- mean of w_l p_l / sum_k w_k p_k (EM for the weights of a mixture), which never makes it worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from torch.nn import functional

from card.forest import Forest, Tree, tree_of_nodes
from card.learners import Fitted, FittedLinear, Learner, Network, Stored, Task, in_parallel, sklearn_seed
from card.train import seed_of
from card.trees import ExtraTrees, FittedForest

LEAST = -12.0  # score of a class that a training set lacks, against 0 for the others


@dataclass
class Softmax:
    """Another learner's scores made probabilities."""

    inner: Fitted

    @property
    def name(self) -> str:
        return self.inner.name

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        return softmax(self.inner.predict(x, members), axis=-1).astype(np.float32)

    def store(self) -> Stored:
        stored = self.inner.store()
        return replace(stored, kind="softmax", settings={"kind": stored.kind, "settings": stored.settings})


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: mean log-loss + penalty / 2 |W|^2, by L-BFGS."""

    name: str = "logistic"
    penalty: float = 1e-3

    def fit(self, task: Task) -> Fitted:
        models = [self._fit(task.x[rows], task.z[rows]) for rows in task.rows]
        weight, bias = (np.stack(part).astype(np.float32) for part in zip(*models, strict=True))
        task.report(self.name, 1.0)
        return Softmax(FittedLinear(weight, bias, *_no_limits(task.z), self.name))

    def _fit(self, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, z = x.astype(float), z.astype(float)
        (n, d), c = x.shape, z.shape[1]
        start = np.zeros((d + 1, c))
        start[-1] = np.log(z.mean(axis=0) + 1e-6)

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            weight, bias = np.split(flat.reshape(d + 1, c), [d])
            score = x @ weight + bias
            top = score.max(axis=1, keepdims=True)
            log_p = score - top - np.log(np.exp(score - top).sum(axis=1, keepdims=True))
            slope = (np.exp(log_p) - z) / n
            gradient = np.vstack([x.T @ slope + self.penalty * weight, slope.sum(axis=0, keepdims=True)])
            return float(-(z * log_p).sum() / n + self.penalty / 2 * (weight**2).sum()), gradient.ravel()

        found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200})
        weight, bias = np.split(found.x.reshape(d + 1, c), [d])
        return weight, bias[0]


@dataclass(frozen=True)
class ClassNetwork(Network):
    """The perceptrons of `card.learners.Network` on cross-entropy with smoothed labels."""

    name: str = "class_network"
    smoothing: float = 0.02
    weight_decay: float = 5e-2

    def fit(self, task: Task) -> Fitted:
        return Softmax(super().fit(task))

    def error(self, predicted: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        smooth = (1.0 - self.smoothing) * z + self.smoothing / z.shape[2]
        return -(smooth * functional.log_softmax(predicted, dim=2)).sum(2).mean(1)

    def limits(self, task: Task) -> tuple[np.ndarray, np.ndarray]:
        return _no_limits(task.z)


@dataclass(frozen=True)
class ClassBoosting:
    """Gradient-boosted trees on cross-entropy, by histograms, kept as flat arrays."""

    name: str = "class_boosting"
    n_trees: int = 100
    lr: float = 0.1
    max_leaves: int = 15
    min_leaf: int = 5
    max_features: float = 0.5
    l2: float = 1.0

    def fit(self, task: Task) -> Fitted:
        n_classes = task.z.shape[1]
        grown = in_parallel(task, self.name, self._grow, len(task.rows))
        trees = [ensemble for model, _ in grown for ensemble in model]
        base = np.concatenate([base for _, base in grown])[:, None]
        return Softmax(FittedForest(Forest.pack(trees, base), self.name, n_classes))

    def _grow(self, task: Task, j: int) -> tuple[list[list[Tree]], np.ndarray]:
        """An ensemble of trees for each class, and the scores they start from (C,)."""
        x, y = task.x[task.rows[j]], task.z[task.rows[j]].argmax(axis=1)
        n_classes = task.z.shape[1]
        present = np.unique(y)
        trees, base = [[_stump(0.0)] for _ in range(n_classes)], np.full(n_classes, LEAST)
        base[present] = 0.0
        if len(present) == 1:
            return trees, base
        model = HistGradientBoostingClassifier(
            max_iter=self.n_trees,
            learning_rate=self.lr,
            max_leaf_nodes=self.max_leaves,
            min_samples_leaf=self.min_leaf,
            max_features=self.max_features,
            l2_regularization=self.l2,
            early_stopping=False,
            random_state=sklearn_seed(task.seeds[j]),
        ).fit(x, y)
        scored = present[1:] if len(present) == 2 else present  # two classes have one score, of the second
        base[scored] = np.ravel(model._baseline_prediction)
        for k, c in enumerate(scored):
            trees[c] = [tree_of_nodes(step[k].nodes) for step in model._predictors]
        return _same_length(trees), base


def _stump(value: float) -> Tree:
    leaf = np.array([-1])
    return Tree(leaf, leaf, np.zeros(1, np.int64), np.zeros(1), np.full((1, 1), value))


def _same_length(ensembles: list[list[Tree]]) -> list[list[Tree]]:
    longest = max(map(len, ensembles))
    return [each + [_stump(0.0)] * (longest - len(each)) for each in ensembles]


def _no_limits(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    high = np.full(z.shape[1], np.inf, np.float32)
    return -high, high


@dataclass(frozen=True)
class Classifier:
    """A scikit-learn classifier with predict_proba, cloned for each training set."""

    classifier: Any
    name: str = "classifier"

    def fit(self, task: Task) -> Fitted:
        return FittedClassifier(in_parallel(task, self.name, self._fit, len(task.rows)), task.z.shape[1])

    def _fit(self, task: Task, j: int) -> Any:
        x, y = task.x[task.rows[j]], task.z[task.rows[j]].argmax(axis=1)
        if (y == y[0]).all():  # many a classifier refuses a fold with one class
            return DummyClassifier(strategy="prior").fit(x, y)
        return seeded_clone(self.classifier, task.seeds[j]).fit(x, y)


def seeded_clone(estimator: Any, seed: int) -> Any:
    """An unfitted copy; random states left open are closed."""
    model = clone(estimator)
    names = sorted(
        n for n, v in model.get_params().items() if n.split("__")[-1] == "random_state" and v is None
    )
    return model.set_params(**{name: sklearn_seed(seed_of(seed, i)) for i, name in enumerate(names)})


@dataclass
class FittedClassifier:
    """J classifiers of the classes' numbers."""

    models: list[Any]
    n_classes: int
    name: str = "classifier"

    def predict(self, x: np.ndarray, members: Sequence[int] | None = None) -> np.ndarray:
        picked = self.models if members is None else [self.models[j] for j in members]
        out = np.zeros((len(picked), len(x), self.n_classes), np.float32)
        for p, model in zip(out, picked, strict=True):
            p[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(x)
        return out

    def store(self) -> Stored:
        return Stored(self.name, "classifier", estimators=self.models, settings={"n_classes": self.n_classes})


def class_defaults(n: int, n_columns: int, n_classes: int) -> list[Learner]:
    """The built-in learners, their sizes by the numbers of rows, columns and classes.

    Networks take 400 (n / 1000)^0.7 steps, no less than 100 and no more than 3000. Boosted trees are grown in
    100 rounds of a tree for each class, in fewer where the classes are many; extra trees up to 20,000 rows.
    """
    effort = min(1.0, n / 250)
    steps = max(60, round(400 * effort * float(np.clip((n / 1000) ** 0.7, 0.25, 7.5))))
    rounds = int(np.clip(600 / max(n_classes, 2), 5, 100) * max(effort, 0.3))
    learners: list[Learner] = [
        Logistic(penalty=1e-3),
        Logistic("logistic_strong", penalty=3e-2),
        ClassNetwork(steps=steps, batch_size=64 if n <= 2500 else 256),
    ]
    if n_classes <= 50:
        leaves = 15 if n <= 5000 else 31
        learners.append(ClassBoosting(n_trees=max(10, rounds), max_leaves=leaves))
    if n <= 20_000:
        share = min(1.0, max(n_columns**-0.5, 1.0 / n_columns))
        trees = ExtraTrees(n_trees=max(20, round(80 * effort)), max_features=share, max_leaves=1000)
        learners.append(trees)
    return learners


def pool(predictions: np.ndarray, z: np.ndarray, least: float = 0.02, n_iterations: int = 300) -> np.ndarray:
    """Weights of a mixture by log-loss, the same for each class: (L, N, C), (N, C) -> (L, C).

    >>> z = np.eye(2)[[0, 1, 1]]
    >>> pool(np.stack([0.8 * z + 0.1, np.full((3, 2), 0.5)]), z)[:, 0].round(2).tolist()
    [1.0, 0.0]
    """
    true = np.maximum(predictions[:, np.arange(len(z)), z.argmax(axis=1)].astype(float), 1e-9)  # (L, N)
    w = mixture_weights(true, n_iterations)
    keep = w >= min(least, w.max())
    w = np.where(keep, w, 0.0) / w[keep].sum()
    return np.repeat(w[:, None], z.shape[1], axis=1).astype(np.float32)


def mixture_weights(true: np.ndarray, n_iterations: int = 300) -> np.ndarray:
    """(L,) weights of the mixture under which the true classes' probabilities (L, N) are likeliest."""
    w = np.full(len(true), 1.0 / len(true))
    for _ in range(n_iterations):
        share = w[:, None] * true
        w = (share / share.sum(axis=0)).mean(axis=1)
    return w
