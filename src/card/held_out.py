"""How good is a model on rows it has not seen, as far as its own training rows can tell? For model cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from card import metrics
from card.crossfit import CrossFit
from card.distribution import Distribution
from card.model import Model
from card.train import seed_of

LEVELS = np.linspace(0.025, 0.975, 39)
MOST_ROWS = 500  # judged


@dataclass
class OutOfFold:
    """A mean model that knows the rows it is asked for, and what those who had not seen them said."""

    f: np.ndarray  # (N, K)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(1, n, K); x may repeat the rows, from the first on."""
        return self.f[np.arange(len(x)) % len(self.f)][None]


def held_out_scores(
    model: Model,
    x: np.ndarray,
    y: np.ndarray,
    seed: int,
    predict: Callable[[Model, np.ndarray], Distribution],
) -> dict[str, float]:
    """rmse, crps and picp of some rows x, responses y (N,), each predicted by who has not seen it.

    That is one member of the denoiser, around the out-of-fold mean; all members together do a little better.
    """
    assert model.fold is not None
    some = np.random.default_rng(seed_of(seed, 31)).permutation(np.flatnonzero(model.fold >= 0))[:MOST_ROWS]
    parts = []
    for k in range(model.n_members):
        rows = some[model.fold[some] == k]
        if len(rows):
            member = model.member(k)
            if isinstance(model.mean, CrossFit):
                member = replace(member, mean=OutOfFold(model.mean.oof[rows]))
            predicted = predict(member, x[rows])
            quantiles = predicted.quantile(LEVELS).reshape(len(rows), -1)
            parts.append(np.column_stack([y[rows], predicted.mean().ravel(), quantiles]))
    seen = np.concatenate(parts)
    truth, mean, quantiles = seen[:, 0], seen[:, 1], seen[:, 2:]
    return {
        "rows": len(truth),
        "rmse": float(metrics.rmse(truth, mean)),
        "crps": float(metrics.crps_quantiles(truth, quantiles, LEVELS)),
        "picp": float(metrics.picp(truth, quantiles[:, 0], quantiles[:, -1])),
    }
