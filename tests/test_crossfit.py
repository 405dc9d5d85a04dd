"""The cross-fitted mean: who saw which rows, how the learners are blended, what is promised of the result."""

import io
import json
import time

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from card.crossfit import CrossFit, blend, crossfit, defaults
from card.learners import Linear, Network, Task
from card.trees import Boosting, ExtraTrees


def table(n=120, n_columns=3, n_targets=1, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_columns)).astype(np.float32)
    z = np.stack([np.sin((k + 2) * x[:, 0]) + x[:, -1] for k in range(n_targets)], axis=1)
    z = z + noise * rng.normal(size=z.shape)
    return x, ((z - z.mean(0)) / z.std(0)).astype(np.float32)


def seconds(work):
    """Of this process, which a busy machine makes longer for everything alike."""
    start = time.process_time()
    work()
    return time.process_time() - start


QUICK = [Linear(), Network(steps=30, width=16), ExtraTrees(n_trees=5), Boosting(n_trees=10)]


class Memory(RegressorMixin, BaseEstimator):
    """Knows the rows it saw: 1 for those, 0 for others."""

    def fit(self, X, y):
        self.seen_ = {row.tobytes() for row in X}
        return self

    def predict(self, X):
        return np.array([float(row.tobytes() in self.seen_) for row in X])


# ------------------------------------------------------------------------------- who saw what


@pytest.mark.parametrize("cv", [5, KFold(3), RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)])
def test_no_model_that_saw_a_row_predicts_it_out_of_fold(cv):
    x, z = table()
    fit = crossfit(x, z, learners=Memory(), cv=cv, seed=0)
    assert fit.covered.all()
    assert np.array_equal(fit.oof, np.zeros_like(z))
    assert fit.predict(x).mean() > 0.5


def test_groups_stay_together():
    x, z = table()
    groups = np.repeat(np.arange(12), 10)
    for cv in (4, GroupKFold(4)):
        fold = crossfit(x, z, learners=Linear(), cv=cv, groups=groups, seed=0).fold
        assert all(len(set(fold[groups == g])) == 1 for g in range(12))
        assert set(fold) == {0, 1, 2, 3}


def test_more_folds_than_groups_becomes_one_fold_per_group():
    x, z = table()
    fit = crossfit(x, z, learners=Linear(), cv=5, groups=np.arange(len(x)) % 3, seed=0)
    assert fit.predict(x).shape == (3, len(x), 1)


def test_in_time_order_the_first_rows_are_not_covered():
    x, z = table()
    fit = crossfit(x, z, learners=QUICK, cv=TimeSeriesSplit(4), seed=0)
    first = 120 - 4 * (120 // 5)
    assert not fit.covered[:first].any()
    assert fit.covered[first:].all()
    assert np.array_equal(fit.fold, np.repeat([-1, 0, 1, 2, 3], 24))
    assert np.isfinite(fit.oof).all()
    assert fit.predict(x).shape == (4, 120, 1)


def test_repeats_draw_folds_of_their_own():
    x, z = table()
    one, two = (crossfit(x, z, learners=Memory(), repeats=r, seed=0) for r in (1, 2))
    assert np.array_equal(one.fold, two.fold)
    assert set(np.unique(one.predict(x))) == {0.0, 1.0}
    assert set(np.unique(two.predict(x))) == {0.0, 0.5, 1.0}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cv": 1}, "at least 2 folds of rows or groups were wanted, cv=1"),
        ({"groups": np.zeros(120)}, "cv=5 on 1 came"),
        ({"cv": [(np.arange(60), np.arange(60, 120))]}, "at least 2 folds were wanted, cv gave 1"),
        ({"learners": "trees"}, 'learners: "auto", a scikit-learn regressor or several were wanted'),
    ],
)
def test_what_cannot_be_is_said_plainly(wrong, message):
    x, z = table()
    with pytest.raises(ValueError, match=message):
        crossfit(x, z, **({"learners": Linear(), "seed": 0} | wrong))


# -------------------------------------------------------------------------------- the blend


def test_blend_equals_the_best_pair_in_closed_form():
    """Two learners with errors of variance a, b and covariance c: w = (b - c) / (a + b - 2 c)."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(5000, 1))
    errors = rng.multivariate_normal([0, 0], [[1.0, 0.3], [0.3, 2.0]], size=5000).T[:, :, None]
    a, b = (errors[i, :, 0] @ errors[i, :, 0] for i in (0, 1))
    c = errors[0, :, 0] @ errors[1, :, 0]
    assert blend(z + errors, z, ridge=0.0)[0, 0] == pytest.approx((b - c) / (a + b - 2 * c), abs=1e-6)


def test_blend_leaves_the_useless_out_and_each_target_has_its_own():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2))
    good, bad = z + 0.1 * rng.normal(size=z.shape), 5 * rng.normal(size=z.shape)
    weights = blend(np.stack([np.stack([good[:, 0], bad[:, 1]], 1), np.stack([bad[:, 0], good[:, 1]], 1)]), z)
    assert weights.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_table_without_signal_gets_a_constant():
    x, _ = table(n=300)
    z = np.random.default_rng(1).normal(size=(300, 1)).astype(np.float32)
    fit = crossfit(x, z, learners=QUICK, seed=0)
    assert fit.predict(x).std() < 0.25
    assert 0.97 * z.var() < np.mean((fit.oof - z) ** 2) < 1.05 * z.var()  # below: a row was seen


def test_a_straight_line_is_left_to_the_linear_learner():
    x, _ = table(n=200)
    fit = crossfit(x, x @ np.array([[1.0], [2.0], [-1.0]], np.float32), learners=QUICK, seed=0)
    assert fit.names == ["linear"]
    assert np.allclose(fit.oof[:, 0], x @ [1, 2, -1], atol=0.01)


def test_ridge_penalty_is_the_best_one_left_out():
    """The closed form of the leave-one-out error against leaving rows out one by one."""
    x, z = table(n=30, noise=1.0)
    candidates = []
    for penalty in Linear().penalties:
        errors = [
            z[i] - Ridge(penalty * 30).fit(np.delete(x, i, 0), np.delete(z, i, 0)).predict(x[i : i + 1])
            for i in range(30)
        ]
        candidates.append(np.mean(np.square(errors)))
    best = Linear().penalties[int(np.argmin(candidates))]
    fit = Linear().fit(Task(x, z, [np.arange(30)], [0]))
    expected = Ridge(best * 30).fit(x.astype(float), z).predict(x)
    assert np.allclose(fit.predict(x)[0].ravel(), expected.ravel(), atol=1e-4)


def test_trees_and_networks_each_win_where_they_should():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 4)).astype(np.float32)
    steps = np.where(x[:, :1] > 0.2, 1.0, -1.0) * np.where(x[:, 1:2] > -0.3, 1.0, 0.2)
    smooth = np.sin(2 * x @ np.ones((4, 1))) + 0.5 * (x[:, :1] * x[:, 1:2])
    z = np.concatenate([steps, smooth / smooth.std()], axis=1).astype(np.float32)
    fit = crossfit(x, z, repeats=1, seed=0)
    share = {name: fit.weights[i] for i, name in enumerate(fit.names)}
    networks = sum(weight for name, weight in share.items() if name.startswith("network"))
    assert networks[0] < 0.5 < networks[1]


# ------------------------------------------------------------------------------- the spread


class Noisy(RegressorMixin, BaseEstimator):
    """Predicts 0 plus noise of a known variance that belongs to the fitted model and the row."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.seed_ = self.random_state
        return self

    def predict(self, X):
        keys = np.abs(X[:, 0] * 1e6).astype(int)
        return np.array([0.3 * np.random.default_rng([self.seed_, key]).normal() for key in keys])


@pytest.mark.parametrize("repeats", [2, 4])
def test_spread_is_the_variance_of_one_model(repeats):
    x, z = table(n=1000)
    fit = crossfit(x, z, learners=Noisy(), repeats=repeats, seed=0)
    assert fit.spread[0] == pytest.approx(0.09, rel=0.15)
    assert fit.oof.var() == pytest.approx(0.09 / repeats, rel=0.15)


def test_spread_of_a_model_without_chance_on_fixed_folds_is_zero():
    x, z = table()
    assert crossfit(x, z, learners=LinearRegression(), cv=KFold(4), seed=0).spread[0] == 0.0
    assert crossfit(x, z, learners=LinearRegression(), repeats=1, seed=0).spread[0] == 0.0


# ------------------------------------------------------------------------------ invariances


def same(a: CrossFit, b: CrossFit, x) -> bool:
    pairs = [(a.oof, b.oof), (a.fold, b.fold), (a.spread, b.spread), (a.predict(x), b.predict(x))]
    return all(np.array_equal(one, other) for one, other in pairs)


def test_what_is_set_aside_no_model_sees():
    x, z = table()
    aside = np.arange(len(x)) % 7 == 0
    other = np.where(aside[:, None], 1e6, z).astype(np.float32)
    one, two = (crossfit(x, each, learners=QUICK, aside=aside, seed=0) for each in (z, other))
    assert same(one, two, x)
    assert (one.covered == ~aside).all()
    assert ((one.fold < 0) == aside).all()
    assert not same(one, crossfit(x, z, learners=QUICK, seed=0), x)


def test_a_seed_repeats_bit_for_bit_and_another_differs():
    x, z = table()
    first = crossfit(x, z, learners=QUICK, seed=7)
    assert same(first, crossfit(x, z, learners=QUICK, seed=7), x)
    assert not np.array_equal(first.oof, crossfit(x, z, learners=QUICK, seed=8).oof)


def test_two_processes_give_what_one_gives():
    x, z = table()
    alone, together = (crossfit(x, z, learners=[*QUICK, Ridge()], seed=0, n_jobs=n) for n in (1, 2))
    assert same(alone, together, x)


def test_order_and_grouping_of_rows_change_nothing_at_predict():
    x, z = table()
    fit = crossfit(x, z, learners=QUICK, seed=0)
    whole = fit.predict(x)
    assert np.allclose(fit.predict(x[::-1])[:, ::-1], whole, atol=1e-5)
    assert np.allclose(
        np.concatenate([fit.predict(x[i : i + 1]) for i in range(len(x))], 1), whole, atol=1e-5
    )
    assert fit.predict(x[:0]).shape == (5, 0, 1)


def test_networks_trained_together_equal_networks_trained_alone():
    x, z = table()
    rows = [np.arange(0, 80), np.arange(40, 120), np.arange(20, 100)]
    how = Network(steps=40, width=16)
    together = how.fit(Task(x, z, rows, [5, 6, 7])).predict(x)
    alone = how.fit(Task(x, z, rows[1:2], [6])).predict(x)
    assert np.allclose(together[1], alone[0], atol=1e-5)


@pytest.mark.parametrize("regressor", [None, make_pipeline(StandardScaler(), Ridge())])
def test_stored_and_restored_without_pickle(regressor):
    x, z = table(n_targets=2)
    fit = crossfit(x, z, learners=QUICK if regressor is None else regressor, seed=0)
    arrays, estimators, settings = fit.state()
    assert all(isinstance(value, np.ndarray) for value in arrays.values())
    file = io.BytesIO(skops.io.dumps(estimators))
    assert skops.io.get_untrusted_types(file=file) == []
    back = CrossFit.from_state(arrays, skops.io.loads(file.getvalue()), json.loads(json.dumps(settings)))
    assert np.array_equal(back.predict(x), fit.predict(x))
    assert back.names == fit.names


# ------------------------------------------------------------------------------- all sorts of data


@pytest.mark.parametrize(
    "regressor", [Ridge(), RandomForestRegressor(5), make_pipeline(StandardScaler(), Ridge())]
)
def test_a_users_regressor_takes_the_learners_place(regressor):
    x, z = table(n_targets=2)
    fit = crossfit(x, z, learners=regressor, seed=0)
    assert fit.names == ["estimator"]
    assert fit.weights.tolist() == [[1.0, 1.0]]
    assert not hasattr(regressor, "n_features_in_")
    assert same(fit, crossfit(x, z, learners=regressor, seed=0), x)


def awkward():
    rng = np.random.default_rng(0)
    x, z = table(n=60)
    yield "twenty rows", x[:20], z[:20]
    yield "four rows", x[:4], z[:4]
    yield "one column", x[:, :1], z
    yield "500 columns", rng.normal(size=(60, 500)).astype(np.float32), z
    yield "duplicates", np.repeat(x[:10], 6, axis=0), z
    yield "one distinct row", np.repeat(x[:1], 60, axis=0), z
    yield "constant response", x, np.zeros_like(z)
    yield "constant in one fold's view", x, (np.arange(60)[:, None] == 3).astype(np.float32)
    yield "heavy tails", np.tan(x / 2), (rng.standard_cauchy((60, 1)) / 50).astype(np.float32)
    yield "several targets", x, np.concatenate([z, -z, 0 * z], axis=1)


@pytest.mark.parametrize(("x", "z"), [pytest.param(x, z, id=name) for name, x, z in awkward()])
def test_any_table_gets_finite_predictions(x, z):
    fit = crossfit(x, z, seed=0)
    assert fit.oof.shape == z.shape
    assert np.isfinite(fit.oof).all()
    assert (fit.spread >= 0).all()
    assert np.isfinite(fit.predict(np.concatenate([x, 100 * x]))).all()
    low, high = z.min(0) - np.ptp(z, 0), z.max(0) + np.ptp(z, 0)
    assert ((fit.predict(100 * x) >= low - 1e-5) & (fit.predict(100 * x) <= high + 1e-5)).all()


def test_small_tables_are_quick():
    x, z = table(n=100)
    crossfit(x, z, seed=0)
    ours = seconds(lambda: crossfit(x, z, seed=0))
    forest = ExtraTreesRegressor(300, random_state=0)
    assert ours < 20 * seconds(lambda: forest.fit(x, z[:, 0])), "about 8 times, on an idle core or a busy one"


@pytest.mark.parametrize("n", [4, 20, 250, 5_000, 50_000, 500_000])
def test_the_rule_of_sizes_holds_at_any_number_of_rows(n):
    names = [learner.name for learner in defaults(n)]
    assert len(names) == len(set(names))


def test_progress_is_told():
    x, z = table()
    told = []
    crossfit(x, z, learners=QUICK, seed=0, progress=lambda name, share: told.append((name, share)))
    assert {name for name, share in told if share == 1.0} == {learner.name for learner in QUICK}
    assert all(0 < share <= 1 for _, share in told)
