"""Packed trees predict what scikit-learn's own objects predict."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, HistGradientBoostingRegressor

from card.forest import Forest, Tree, tree_of, tree_of_nodes


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    x[:, 0] = rng.integers(0, 3, 300)  # ties sit exactly on thresholds
    return x, (x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.1 * rng.normal(size=300)).astype(np.float32)


def test_extra_trees_of_two_targets(table):
    x, y = table
    model = ExtraTreesRegressor(7, random_state=0).fit(x, np.stack([y, y**2], axis=1))
    forest = Forest.pack([[tree_of(tree, 1 / 7) for tree in model.estimators_]], np.zeros((1, 2)))
    assert np.allclose(forest.predict(x)[0], model.predict(x), atol=1e-5)


def test_boosted_trees(table):
    x, y = table
    model = GradientBoostingRegressor(n_estimators=30, init="zero", random_state=0).fit(x, y)
    forest = Forest.pack([[tree_of(tree, 0.1) for tree in model.estimators_[:, 0]]], np.zeros((1, 1)))
    assert np.allclose(forest.predict(x)[0, :, 0], model.predict(x), atol=1e-5)


def test_histogram_boosting(table):
    x, y = table
    model = HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(x, y - y.mean())
    forest = Forest.pack([[tree_of_nodes(tree.nodes) for (tree,) in model._predictors]], np.zeros((1, 1)))
    assert np.allclose(forest.predict(x)[0, :, 0], model.predict(x), atol=1e-5)


def test_several_ensembles_are_told_apart_and_each_has_its_base(table):
    x, y = table
    models = [ExtraTreesRegressor(3, random_state=seed).fit(x[:200], y[:200]) for seed in range(3)]
    trees = [[tree_of(tree, 1 / 3) for tree in model.estimators_] for model in models]
    forest = Forest.pack(trees, np.array([[0.0], [10.0], [20.0]]))
    expected = np.stack([model.predict(x) + 10 * g for g, model in enumerate(models)])
    assert np.allclose(forest.predict(x)[..., 0], expected, atol=1e-5)
    assert np.array_equal(forest.predict(x, [2, 0]), forest.predict(x)[[2, 0]])


def test_chunks_and_order_change_nothing(table):
    x, y = table
    model = ExtraTreesRegressor(5, random_state=0).fit(x, y)
    forest = Forest.pack([[tree_of(tree, 1 / 5) for tree in model.estimators_]], np.zeros((1, 1)))
    whole = forest.predict(x)
    assert np.array_equal(forest.predict(x, chunk=7), whole)
    assert np.array_equal(forest.predict(x[::-1])[:, ::-1], whole)
    assert forest.predict(x[:0]).shape == (1, 0, 1)


def test_a_tree_without_branchings_is_a_constant(table):
    x, _ = table
    model = ExtraTreesRegressor(2).fit(x, np.full(len(x), 3.0))
    forest = Forest.pack([[tree_of(tree, 0.5) for tree in model.estimators_]], np.zeros((1, 1)))
    assert forest.depth == 0
    assert np.array_equal(forest.predict(x), np.full((1, len(x), 1), 3.0, np.float32))


def test_thresholds_round_down_so_that_no_row_changes_sides():
    """The nearest float32 to this threshold is the second row's x, which lies above the threshold."""
    x = np.array([[1.0], [1.0 + 2.0**-23]], np.float32)
    tree = Tree(
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        feature=np.array([0, -2, -2]),
        threshold=np.array([1.0 + 2.0**-23 - 2.0**-30, -2.0, -2.0]),
        value=np.array([[0.5], [3.0], [4.0]]),
    )
    assert Forest.pack([[tree]], np.zeros((1, 1))).predict(x).ravel().tolist() == [3.0, 4.0]


def test_stored_and_restored(table):
    x, y = table
    model = ExtraTreesRegressor(4, random_state=0).fit(x, y)
    forest = Forest.pack([[tree_of(tree, 1 / 4) for tree in model.estimators_]], np.zeros((1, 1)))
    assert np.array_equal(Forest.from_state(forest.state()).predict(x), forest.predict(x))
