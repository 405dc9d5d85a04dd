"""The cross-fitted mean f(x): K folds, R repeats, a blend of learners chosen by the data.

In-sample residuals of a mean model are too small. Here each row's f comes from models that never saw
the row (out of fold), so that z - f has the size it will have on new rows. The learners' out-of-fold
predictions are blended by weights w >= 0, sum w = 1, that minimise the squared error out of fold: with
G the learners' error products E[e_a e_b], w is the minimiser of w' G w on the simplex.

At predict all models are averaged, and an average errs less than one model does. If one model's
prediction varies around the average of infinitely many by the variance V, an out-of-fold mean of R
repeats errs by E_R = E_infinity + V / R. Repeats disagree by 2 V on average, which measures V: `spread`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator
from sklearn.model_selection import GroupKFold, KFold

from card.class_learners import FittedClassifier, Softmax
from card.learners import (
    Estimator,
    Fitted,
    FittedEstimator,
    FittedLinear,
    FittedNetwork,
    Learner,
    Linear,
    Network,
    Progress,
    Stored,
    Task,
)
from card.train import seed_of
from card.trees import Boosting, ExtraTrees, FittedForest

Split = tuple[np.ndarray, np.ndarray]  # row numbers to train on, row numbers to test on


@dataclass
class CrossFit:
    """K folds x R repeats of a blend of learners.

    Attributes
    ----------
    by_repeat
        (R, N, K) out-of-fold predictions of each repeat; 0 where `covered` is False.
    covered
        (N,) whether a row was ever out of fold (a splitter in time order never tests the first rows).
    fold
        (N,) the fold of each row in the first repeat, -1 where not covered.
    spread
        (K,) variance of one model's out-of-fold prediction around the average of many; 0 for one repeat.
    weights
        (L, K) the blend: a weight per learner and target, each column summing to 1.
    learners
        L fitted learners, each of n_folds * n_repeats models, repeat by repeat.
    """

    by_repeat: np.ndarray
    covered: np.ndarray
    fold: np.ndarray
    spread: np.ndarray
    weights: np.ndarray
    learners: list[Fitted]
    n_folds: int
    n_repeats: int

    @property
    def oof(self) -> np.ndarray:
        """(N, K) out-of-fold predictions, averaged over repeats."""
        return self.by_repeat.mean(axis=0)

    @property
    def names(self) -> list[str]:
        """Of the learners, in the order of `weights`."""
        return [learner.name for learner in self.learners]

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(N, D) float32 -> (n_folds, N, K): fold by fold, averaged over repeats."""
        blend = sum(w * each.predict(x) for w, each in zip(self.weights, self.learners, strict=True))
        return np.reshape(blend, (self.n_repeats, self.n_folds, *blend.shape[1:])).mean(axis=0)

    def state(self) -> tuple[dict[str, np.ndarray], list[Any], dict[str, Any]]:
        """What predicts, in storable parts: named arrays, scikit-learn objects, plain settings."""
        parts = [learner.store() for learner in self.learners]
        arrays = {f"{i}.{name}": value for i, part in enumerate(parts) for name, value in part.arrays.items()}
        arrays |= {"weights": self.weights, "spread": self.spread}
        settings = {
            "n_folds": self.n_folds,
            "n_repeats": self.n_repeats,
            "learners": [{"name": part.name, "kind": part.kind, "settings": part.settings} for part in parts],
        }
        return arrays, [model for part in parts for model in part.estimators], settings

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], estimators: Sequence[Any], settings: dict[str, Any]
    ) -> CrossFit:
        """What `state` took apart; the training rows' own predictions are not kept."""
        learners = []
        for i, part in enumerate(settings["learners"]):
            own = {n.split(".", 1)[1]: v for n, v in arrays.items() if n.startswith(f"{i}.")}
            models = list(estimators) if part["kind"] in {"estimator", "classifier"} else []
            learners.append(restore(Stored(part["name"], part["kind"], own, models, part["settings"])))
        weights = arrays["weights"]
        return cls(
            by_repeat=np.zeros((settings["n_repeats"], 0, weights.shape[1]), np.float32),
            covered=np.zeros(0, bool),
            fold=np.zeros(0, int),
            spread=arrays["spread"],
            weights=weights,
            learners=learners,
            n_folds=settings["n_folds"],
            n_repeats=settings["n_repeats"],
        )


def crossfit(
    x: np.ndarray,
    z: np.ndarray,
    *,
    learners: str | Any | Sequence[Any] = "auto",
    cv: int | Any | Iterable[Split] = 5,
    repeats: int | str = "auto",
    groups: np.ndarray | None = None,
    aside: np.ndarray | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    pool: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> CrossFit:
    """Fit a cross-fitted blend.

    Parameters
    ----------
    x, z
        (N, D) and (N, K) float32: encoded features and standardised responses.
    learners
        "auto" for the built-in ones, sized by `defaults`; or a scikit-learn regressor; or several.
    cv
        Folds: a number (shuffled, anew for each repeat), a splitter, or pairs of row numbers.
    repeats
        How often the folds are fitted; "auto" is 2, but 1 beyond 50,000 rows.
    groups
        Rows of one group stay in one fold.
    aside
        (N,) whether a row belongs to no fold and is kept from all models.
    progress
        Called with a learner's name and the share of it that is done.
    pool
        (predictions out of fold (L, N, K), z) -> weights (L, K); `blend` if not given.
    """
    x, z = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(z, np.float32)
    use = np.arange(len(x)) if aside is None else np.flatnonzero(~aside)
    n_repeats = (2 if len(x) <= 50_000 else 1) if repeats == "auto" else int(repeats)
    cv = cv if isinstance(cv, int | np.integer) or hasattr(cv, "split") else list(cv)
    chosen = _learners(learners, len(use))
    groups = None if groups is None else groups[use]
    folds = [
        [(use[train], use[test]) for train, test in _splits(x[use], z[use], cv, groups, fold_seed)]
        for fold_seed in (seed_of(seed, repeat) % 2**32 for repeat in range(n_repeats))
    ]
    splits = [split for repeat in folds for split in repeat]
    rows = [train for train, _ in splits]
    fitted, predicted = [], []
    for i, learner in enumerate(chosen):
        seeds = [seed_of(seed, n_repeats, i, j) for j in range(len(rows))]
        fitted.append(learner.fit(Task(x, z, rows, seeds, n_jobs, progress)))
        predicted.append(_out_of_fold(fitted[-1], x, z, splits, n_repeats))
    predictions = np.stack(predicted)  # (L, R, N, K), NaN where a row was never out of fold
    covered = ~np.isnan(predictions[0, :, :, 0]).any(axis=0)
    weights = (pool or blend)(predictions[:, :, covered].mean(axis=1), z[covered])
    kept = np.flatnonzero(weights.max(axis=1) > 0)
    blended = np.einsum("lk,lrnk->rnk", weights[kept], predictions[kept][:, :, covered])
    return CrossFit(
        by_repeat=_spread_out(blended, covered),
        covered=covered,
        fold=_fold_of(folds[0], covered),
        spread=_disagreement(blended),
        weights=weights[kept],
        learners=[fitted[i] for i in kept],
        n_folds=len(folds[0]),
        n_repeats=n_repeats,
    )


def blend(predictions: np.ndarray, z: np.ndarray, ridge: float = 1e-3, least: float = 0.02) -> np.ndarray:
    """Weights on the simplex that minimise the squared error, for each target: (L, N, K) -> (L, K).

    The minimiser of w' G w on the simplex is u / sum u with u >= 0 minimising u' G u - 2 sum u, a
    non-negative least squares problem in a root of G. A small ridge decides between learners that agree;
    learners that would get less than `least` are left out.

    >>> z = np.array([[1.0], [-1.0], [2.0], [0.0]])
    >>> blend(np.stack([z + 0.1, z - 0.1, 0 * z]), z).round(2).ravel().tolist()
    [0.5, 0.5, 0.0]
    """
    errors = (predictions - z).astype(float)
    weights = np.zeros((len(errors), z.shape[1]))
    for k in range(z.shape[1]):
        gram = errors[:, :, k] @ errors[:, :, k].T / max(len(z), 1)
        use = np.arange(len(gram))
        while True:
            w = _simplex(gram[np.ix_(use, use)], ridge)
            if w.min() >= least:
                break
            use = np.delete(use, w.argmin())
        weights[use, k] = w
    return weights.astype(np.float32)


def _simplex(gram: np.ndarray, ridge: float) -> np.ndarray:
    scale = np.trace(gram) / len(gram)
    if scale == 0:  # every learner is right everywhere
        return np.full(len(gram), 1 / len(gram))
    root = np.linalg.cholesky(gram / scale + ridge * np.diag(np.diag(gram / scale) + 1e-9))
    u, _ = nnls(root.T, np.linalg.solve(root, np.ones(len(gram))))
    return u / u.sum()


def defaults(n: int) -> list[Learner]:
    """The built-in learners, their sizes by the number of rows n.

    Networks take 600 (n / 1000)^0.7 steps, no less than 600 and no more than 4000. Up to 2500 rows they are
    96 wide and read batches of 64 and at most 128 bins; beyond, they are 160 wide and read batches of 256.
    Up to 2500 rows boosted trees split exactly, log2(n / 30) levels deep but no less than 4 and no more than
    6, and extra trees join in; beyond, boosted trees use histograms and have n / 100 leaves, no less than 31
    and no more than 255. Below 250 rows all are cut in proportion.
    """
    effort, small = min(1.0, n / 250), n <= 2500
    steps = round(600 * effort * np.clip((n / 1000) ** 0.7, 1, 6.7))
    if small:
        network = Network(steps=max(40, steps), width=96, batch_size=64, most_bins=128)
    else:
        network = Network(steps=steps, width=160, batch_size=256, weight_decay=5e-2)
    networks = [network, replace(network, name="network_bins", bins=16)]
    if not small:
        leaves = int(np.clip(n // 100, 31, 255))
        return [Linear(), *networks, Boosting(lr=0.1, depth=None, min_leaf=10, max_leaves=leaves)]
    depth = int(np.clip(round(np.log2(n / 30)), 4, 6))
    boosting = Boosting(n_trees=max(40, round(300 * effort)), lr=0.07 if effort == 1 else 0.1, depth=depth)
    extra_trees = ExtraTrees(n_trees=max(10, round(40 * effort)), max_features=0.5)
    return [Linear(), *networks, extra_trees, boosting]


def _learners(learners: Any, n: int) -> list[Learner]:
    if isinstance(learners, str):
        if learners != "auto":
            raise ValueError(
                f'learners: "auto", a scikit-learn regressor or several were wanted, {learners!r} came'
            )
        return defaults(n)
    several = learners if isinstance(learners, Sequence) else [learners]
    return [Estimator(each) if isinstance(each, BaseEstimator) else each for each in several]


def _splits(x: np.ndarray, z: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int) -> list[Split]:
    if isinstance(cv, int | np.integer):
        n_units = len(x) if groups is None else len(np.unique(groups))
        if n_units < 2 or cv < 2:
            raise ValueError(
                f"at least 2 folds of rows or groups were wanted, cv={cv} on {n_units} came; give more data"
            )
        splitter = KFold if groups is None else GroupKFold
        cv = splitter(min(int(cv), n_units), shuffle=True, random_state=seed)
    pairs = cv.split(x, z, groups) if hasattr(cv, "split") else cv
    splits = [(np.asarray(train), np.asarray(test)) for train, test in pairs]
    if len(splits) < 2:
        raise ValueError(f"at least 2 folds were wanted, cv gave {len(splits)}; give more folds")
    return splits


def folds_of(x: np.ndarray, z: np.ndarray, cv: Any, groups: np.ndarray | None, seed: int) -> np.ndarray:
    """(N,) the fold that tests each row, -1 where none does."""
    splits = _splits(x, z, cv, groups, seed_of(seed, 0) % 2**32)
    covered = np.isin(np.arange(len(x)), np.concatenate([test for _, test in splits]))
    return _fold_of(splits, covered)


def _out_of_fold(
    fitted: Fitted, x: np.ndarray, z: np.ndarray, splits: Sequence[Split], n_repeats: int
) -> np.ndarray:
    """(R, N, K): for each repeat the mean prediction of the models that did not see a row, else NaN."""
    total = np.zeros((n_repeats, *z.shape), np.float32)
    count = np.zeros((n_repeats, len(x), 1), np.float32)
    for j, (_, test) in enumerate(splits):
        repeat = j * n_repeats // len(splits)
        total[repeat, test] += fitted.predict(x[test], [j])[0]
        count[repeat, test] += 1
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _spread_out(values: np.ndarray, covered: np.ndarray) -> np.ndarray:
    out = np.zeros((len(values), len(covered), values.shape[2]), np.float32)
    out[:, covered] = values
    return out


def _fold_of(splits: Sequence[Split], covered: np.ndarray) -> np.ndarray:
    fold = np.full(len(covered), -1)
    for k, (_, test) in reversed(list(enumerate(splits))):
        fold[test] = k
    return np.where(covered, fold, -1)


def check_folds(fold: np.ndarray, n_folds: int) -> None:
    """Refuse folds (N,) of which one has no row of its own, on which its denoiser could be judged."""
    for k in range(n_folds):
        if not (fold == k).any():
            raise ValueError(
                f"folds that test rows of their own were wanted, but all rows of fold {k} are tested by "
                "earlier ones too; give a splitter without repeats, and say repeats=... instead"
            )


def _disagreement(blended: np.ndarray) -> np.ndarray:
    """(R, N, K) -> (K,): the variance between repeats, averaged over rows."""
    if len(blended) < 2:
        return np.zeros(blended.shape[2], np.float32)
    return blended.var(axis=0, ddof=1, dtype=float).mean(axis=0).astype(np.float32)


def restore(stored: Stored) -> Fitted:
    """The fitted learner that `store` took apart."""
    match stored.kind:
        case "linear":
            return FittedLinear(**stored.arrays, name=stored.name)
        case "network":
            return FittedNetwork.restore(stored)
        case "forest":
            return FittedForest.restore(stored)
        case "estimator":
            return FittedEstimator(stored.estimators, **stored.settings, name=stored.name)
        case "classifier":
            return FittedClassifier(stored.estimators, **stored.settings, name=stored.name)
        case "softmax":
            return Softmax(restore(replace(stored, **stored.settings)))
    raise ValueError(f"a learner of this version was wanted, {stored.kind!r} came; update card")
