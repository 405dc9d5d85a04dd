"""What is wrong is said in words: what was wanted, what came, what to do."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from card import CARDClassifier
from card.evaluation import match_labels

QUICK = {"epochs": 2, "repeats": 1, "cv": 2, "n_draws": 10, "random_state": 0}
RNG = np.random.default_rng(0)
Y = np.repeat(["a", "b", "c"], 20)
X = RNG.normal(size=(60, 3)) + np.eye(3)[np.repeat(range(3), 20)] * 3
F = np.full((60, 3), 1 / 3)


def quick(**settings) -> CARDClassifier:
    return CARDClassifier(**QUICK | {"mean": LogisticRegression()} | settings)


WRONG = {
    "one class": (lambda: quick().fit(X, np.full(60, "a")), "one class only"),
    "no labels": (lambda: quick().fit(X, None), "y to be passed"),
    "a gap among labels": (lambda: quick().fit(X, [None, *Y[1:]]), "no label in 1 of 60 rows"),
    "NaN among labels": (lambda: quick().fit(X, np.where(X[:, 0] > 0, 1, np.nan)), "NaN"),
    "measured numbers": (lambda: quick().fit(X, X[:, 0]), "Unknown label type"),
    "too few rows": (lambda: quick().fit(X[:3], Y[[0, 20, 40]]), "minimum of 4"),
    "lengths that differ": (lambda: quick().fit(X, Y[:50]), "inconsistent numbers of samples"),
    "unhashable labels": (lambda: quick().fit(X, np.array([{}] * 60, dtype=object)), "hashable"),
    "probabilities beyond 1": (
        lambda: quick(mean="given").fit((X, 2 * F), Y),
        "must sum to 1 in each row; 60",
    ),
    "negative probabilities": (lambda: quick(mean="given").fit((X, F - 1), Y), "of 0 or more"),
    "too few columns": (lambda: quick(mean="given").fit((X, np.full((60, 2), 0.5)), Y), "3 classes"),
    "no pair": (lambda: quick(mean="given").fit(X, Y), "X is a pair"),
    "noise on given": (lambda: quick(mean="given", noise=1.0).fit((X, F), Y), "noise=0"),
    "another classifier's classes": (
        lambda: quick(mean=LogisticRegression().fit(X, Y == "a")).fit(X, Y),
        "they must agree",
    ),
    "no predict_proba": (lambda: quick(mean=SVC()).fit(X, Y), "mean"),
    "auto without folds": (lambda: quick(mean="auto", cv=None).fit(X, Y), "needs cv"),
    "direct without knowledge": (
        lambda: quick(denoiser="table", proba="direct").fit(X, Y),
        "denoiser='unit'",
    ),
    "a floor above the level": (lambda: quick(floor=2.0, read_level=1.0).fit(X, Y), "below read_level"),
    "an unknown recipe": (lambda: CARDClassifier.from_recipe("soup"), "recipe must be one of"),
    "a device of no kind": (lambda: quick(device=3).fit(X, Y), "device must be"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_told(case):
    act, message = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        act()


@pytest.fixture(scope="module")
def clf() -> CARDClassifier:
    return quick().fit(X, Y)


PREDICT = {
    "a class never seen": (lambda c: c.deferral_gain(X[:2], ["a", "z"]), "does not know: z"),
    "a class never seen, held out": (
        lambda c: c.triage(X, target_accuracy=0.9, held_out=(X[:2], ["a", "z"])),
        "does not know: z",
    ),
    "another number of columns": (lambda c: c.predict(X[:, :2]), "X has 2 features"),
    "one draw to assess": (lambda c: c.assess(X, n_draws=1), "2 or more"),
    "no draws": (lambda c: c.sample(X, n_draws=0), "1 or more"),
    "a level beyond 1": (lambda c: c.assess(X, alpha=2), "alpha"),
    "neither budget nor target": (lambda c: c.triage(X), "either budget or target_accuracy"),
    "both": (lambda c: c.triage(X, budget=0.1, target_accuracy=0.9), "not both"),
    "a budget in percent": (lambda c: c.triage(X, budget=5), "between 0 and 1"),
    "no rows": (lambda c: c.predict(X[:0]), "0 sample"),
}


@pytest.mark.parametrize("case", PREDICT)
def test_mistakes_at_predict_are_told(case, clf):
    act, message = PREDICT[case]
    with pytest.raises(ValueError, match=message):
        act(clf)


def test_a_class_seen_only_when_evaluated_is_named(clf):
    with pytest.raises(ValueError, match="does not know: d"):
        match_labels(np.array(["a", "d"]), clf.classes_)


@pytest.mark.parametrize("mean", ["auto", LogisticRegression()])
def test_a_class_with_a_single_row_is_worked_with(mean):
    y = Y.astype(object)
    y[0] = "rare"
    clf = quick(mean=mean).fit(X, y)
    assert "rare" in clf.classes_
    proba = clf.predict_proba(X)
    assert proba.shape == (60, 4)
    assert (proba > 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)


def test_probabilities_of_zero_from_f_do_not_rule_a_class_out():
    f = np.eye(3)[np.repeat(range(3), 20)]
    f[::7] = f[::7][:, [1, 2, 0]]  # sure, and wrong
    clf = quick(mean="given", epochs=20).fit((X, f), Y)
    assert np.isfinite(np.log(clf.predict_proba((X, f)))).all()


def test_a_thousand_classes_are_drawn_in_bounded_memory():
    import tracemalloc

    y = np.arange(2000) % 1000
    x = np.stack([y % 10, y // 10 % 10, y // 100], axis=1) + 0.1 * RNG.normal(size=(2000, 3))
    clf = CARDClassifier(mean="given", epochs=1, cv=2, random_state=0, n_draws=100)
    f = np.full((2000, 1000), 1e-3)
    clf.fit((x, f), y)
    tracemalloc.start()
    table = clf.assess((x[:200], f[:200]), n_draws=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.shape == (200, 1006)
    assert peak < 8 * 100 * 200 * 1000 / 2  # half of all draws in float64
