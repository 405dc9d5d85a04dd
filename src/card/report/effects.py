"""What each column of the table does to the predictions, by permutation.

Shuffle one column among the rows and predict again: how far the predicted mean moves on average is the
column's effect on the mean; how far the predicted spread moves, its effect on the spread. Nothing is
compared with observed values, so this tells what the model uses, not what is true of the world.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

BUDGET = 4000  # predictions to spend


@dataclass(frozen=True)
class Effects:
    """An entry a column; of several targets or classes a second axis."""

    names: list[str]
    mean: np.ndarray
    spread: np.ndarray

    def of(self, target: int | None) -> "Effects":
        """Those on one target."""
        if target is None:
            return self
        return Effects(self.names, self.mean[:, target], self.spread[:, target])


def column_effects(
    summary: Callable[[Any], tuple[np.ndarray, np.ndarray]],
    X: pd.DataFrame,
    seed: int = 0,
    advance: Callable[[int], None] = lambda n: None,
) -> Effects:
    """Effects of every column.

    Parameters
    ----------
    summary : table -> (centre, spread) of its predictions, (n_rows,) or (n_rows, k) each
    X : rows to try it on; as many are used as BUDGET predictions allow, at least 20
    """
    rng = np.random.default_rng(seed)
    n_rows = min(len(X), max(20, BUDGET // (X.shape[1] + 1)))
    X = X.iloc[np.sort(rng.permutation(len(X))[:n_rows])].reset_index(drop=True)
    before = summary(X)
    moved = []
    for i in range(X.shape[1]):
        shuffled = X.copy()
        shuffled.isetitem(i, X.iloc[_derangement(rng, len(X)), i].array)
        after = summary(shuffled)
        moved.append([np.abs(new - old).mean(axis=0) for new, old in zip(after, before, strict=True)])
        advance(1)
    mean, spread = (np.array(part) for part in zip(*moved, strict=True))
    return Effects([str(c) for c in X.columns], mean, spread)


def _derangement(rng: np.random.Generator, n: int) -> np.ndarray:
    """A shuffle that leaves no row in place: a turn of a random cycle."""
    cycle = rng.permutation(n)
    out = np.empty(n, dtype=int)
    out[cycle] = np.roll(cycle, 1)
    return out
