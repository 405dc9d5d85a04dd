"""Folds of rows with classes: every class has its share in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class ClassFolds:
    """A number of folds in which every class has its share, or the user's own splitter or splits."""

    cv: Any
    seed: int

    def split(self, x: np.ndarray, z: np.ndarray, groups: Any = None) -> Iterator[Split]:
        y = z.argmax(axis=1) if z.ndim == 2 else z
        cv = 5 if isinstance(self.cv, str) else self.cv
        if hasattr(cv, "split"):
            yield from cv.split(x, y, groups)
        elif not isinstance(cv, int | np.integer):
            yield from cv
        elif groups is not None:
            n_folds = min(int(cv), len(np.unique(groups)))
            yield from GroupKFold(n_folds, shuffle=True, random_state=self.seed % 2**32).split(x, y, groups)
        else:
            fold = folds_by_class(y, min(int(cv), len(y)), self.seed)
            yield from ((np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1))


def folds_by_class(y: np.ndarray, n_folds: int, seed: int) -> np.ndarray:
    """(n,) fold numbers of nearly equal frequency, overall and in each class.

    >>> folds_by_class(np.array([0, 0, 1, 1]), 2, seed=0)[:2].sum()
    np.int64(1)
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(y))
    order = shuffled[np.argsort(y[shuffled], kind="stable")]
    fold = np.empty(len(y), int)
    fold[order] = np.arange(len(y)) % n_folds
    return rng.permutation(n_folds)[fold]
