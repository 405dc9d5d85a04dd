"""The classifier's promises: shapes, invariances, honest probabilities, who should look."""

from copy import deepcopy

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from card import CARDClassifier
from card.metrics import nll_proba
from card.mixture import fit_mixture, fit_pool, pooled

QUICK = {"epochs": 8, "repeats": 1, "cv": 3, "random_state": 0}
PAPER = {
    "epochs": 100,
    "lr": 5e-3,
    "batch_size": 32,
    "ema": 0.95,
    "n_steps": 15,
    "beta_T": 0.5,
    "n_draws": 30,
}
PAPER |= {"mean_epochs": 8, "width": 32, "random_state": 0}
RNG = np.random.default_rng(0)
X, NUMBER = load_iris(return_X_y=True)
X = X + 0.3 * RNG.normal(size=X.shape)
Y = np.array(["setosa", "versicolor", "virginica"])[NUMBER]


@pytest.fixture(scope="module")
def modern() -> CARDClassifier:
    return CARDClassifier(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def paper() -> CARDClassifier:
    return CARDClassifier.from_recipe("paper", **PAPER).fit(X, Y)


@pytest.fixture(params=["modern", "paper"])
def clf(request) -> CARDClassifier:
    return request.getfixturevalue(request.param)


def test_everything_has_the_promised_shape(clf):
    proba = clf.predict_proba(X)
    assert proba.shape == clf.predict_mean_model(X).shape == (150, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(clf.predict_mean_model(X).sum(axis=1), 1)
    assert np.array_equal(clf.predict(X), clf.classes_[proba.argmax(axis=1)])
    assert clf.sample(X, n_draws=7, random_state=0).shape == (7, 150, 3)
    table = clf.assess(X, n_draws=20, alpha=0.01)
    piw = [f"piw_{c}" for c in clf.classes_]
    assert list(table) == ["label", "vote", "vote_share", "probability", *piw, "p_value", "certain"]
    assert np.array_equal(table["label"], clf.predict(X))
    np.testing.assert_allclose(table["probability"], proba.max(axis=1))
    assert np.array_equal(table["certain"], table["p_value"] < 0.01)


def test_it_learns(clf):
    assert (clf.predict(X) == Y).mean() > 0.85


def test_predictions_do_not_depend_on_the_other_rows_or_their_order(clf):
    order = np.random.default_rng(1).permutation(150)
    whole, table = clf.predict_proba(X), clf.assess(X, 30)
    np.testing.assert_allclose(clf.predict_proba(X[order]), whole[order], atol=1e-6)
    one_by_one = np.concatenate([clf.predict_proba(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(one_by_one, whole[:20], atol=1e-6)
    pd.testing.assert_frame_equal(
        clf.assess(X[order], 30), table.iloc[order].reset_index(drop=True), atol=1e-4, rtol=1e-4
    )


def test_draws_do_not_depend_on_how_many_rows_are_drawn_at_once(clf, monkeypatch):
    whole = clf.sample(X, 9, random_state=3)
    assert np.array_equal(clf.sample(X, 9, random_state=3), whole)
    assert not np.array_equal(clf.sample(X, 9, random_state=4), whole)
    np.testing.assert_allclose(clf.sample(X[:13], 9, random_state=3), whole[:, :13], atol=1e-5)
    monkeypatch.setattr("card.class_model.BLOCK", 1)
    monkeypatch.setattr("card.class_model.TILE", 7)
    np.testing.assert_allclose(clf.sample(X, 9, random_state=3), whole, atol=1e-5)


def test_rows_are_drawn_independently_of_each_other(modern):
    same = modern.sample(np.repeat(X[:1], 2, axis=0), 50, random_state=0)
    assert abs(np.corrcoef(same[:, 0, 0], same[:, 1, 0])[0, 1]) < 0.5


@pytest.mark.parametrize("recipe", ["modern", "paper"])
def test_a_random_state_repeats_a_fit_bit_for_bit(recipe, modern, paper):
    settings, first = {"modern": (QUICK, modern), "paper": (PAPER, paper)}[recipe]
    again = CARDClassifier.from_recipe(recipe, **settings).fit(X, Y)
    assert np.array_equal(again.predict_proba(X), first.predict_proba(X))


def test_renaming_the_classes_renames_the_predictions(modern):
    other = CARDClassifier(**QUICK).fit(X, NUMBER)
    assert np.array_equal(modern.predict_proba(X), other.predict_proba(X))
    assert np.array_equal(other.predict(X), np.searchsorted(modern.classes_, modern.predict(X)))


LABELS = {
    "strings": lambda n: np.array(["a", "b", "c"])[n],
    "booleans": lambda n: n > 0,
    "integers": lambda n: n * 10 - 5,
    "whole floats": lambda n: n.astype(float),
    "pandas categories": lambda n: pd.Series(pd.Categorical.from_codes(n, ["x", "y", "z"])),
    "numbers and text": lambda n: np.array([1, "one", 2.5], dtype=object)[n],
    "tuples": lambda n: [[("a", 1), ("b", 2), ("b", 3)][i] for i in n],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_come_back_as_they_were(kind):
    labels = LABELS[kind](NUMBER)
    clf = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X, labels)
    predicted = clf.predict(X)
    assert set(predicted.tolist()) <= set(list(labels))
    assert np.mean([p == t for p, t in zip(predicted.tolist(), list(labels), strict=True)]) > 0.8


def test_tables_of_every_kind_are_read():
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["town"] = np.where(NUMBER == 0, "Ulm", "Bonn")
    frame.loc[::7, "a"] = np.nan
    clf = CARDClassifier(**QUICK).fit(frame, Y)
    whole = clf.predict_proba(frame)
    assert (clf.predict(frame) == Y).mean() > 0.85
    np.testing.assert_allclose(clf.predict_proba(pl.from_pandas(frame)), whole, atol=1e-6)
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(frame.drop(columns="town"))


# ------------------------------------------------------------------------ base classifiers


def test_a_fitted_classifier_is_taken_as_it_is():
    f = LogisticRegression(max_iter=1000).fit(X, Y)
    clf = CARDClassifier(**QUICK, mean=f, standardise_x=False).fit(X, Y)
    np.testing.assert_allclose(clf.predict_mean_model(X), f.predict_proba(X), atol=2e-3)


def test_a_fitted_classifier_is_not_shown_encoded_rows():
    with pytest.raises(ValueError, match="reads X as it is"):
        CARDClassifier(**QUICK, mean=LogisticRegression(max_iter=1000).fit(X, Y)).fit(X, Y)


def test_a_classifier_is_cross_fitted_and_the_result_does_not_lose_to_it():
    forest = RandomForestClassifier(20, random_state=0)
    clf = CARDClassifier(**QUICK, mean=forest).fit(X[::2], Y[::2])
    held_out = nll_proba(NUMBER[1::2], clf.predict_proba(X[1::2]))
    assert held_out <= nll_proba(NUMBER[1::2], clf.predict_mean_model(X[1::2])) + 0.02


def test_probabilities_themselves_serve_as_base_classifier():
    f = LogisticRegression(max_iter=1000).fit(X[::2], Y[::2]).predict_proba(X)
    clf = CARDClassifier(**QUICK, mean="given").fit((X, f), Y)
    np.testing.assert_allclose(clf.predict_mean_model((X, f)), f, atol=2e-3)
    assert (clf.predict((X, f)) == Y).mean() > 0.85
    with pytest.raises(ValueError, match="X is a pair"):
        clf.predict(X)


def test_groups_stay_together_and_any_splitter_serves():
    groups = np.arange(150) // 5
    CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X, Y, groups=groups)
    quick = QUICK | {"cv": GroupKFold(2)}
    clf = CARDClassifier(**quick, mean=LogisticRegression()).fit(X, Y, groups=groups)
    assert clf.model_.n_members == 2


def test_two_classes_do():
    x, y = load_breast_cancer(return_X_y=True)
    clf = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(x[:300], y[:300])
    assert (clf.predict(x[300:]) == y[300:]).mean() > 0.9


# ------------------------------------------------------------------------- confidence


def test_held_out_probabilities_never_lose_to_f():
    """On the rows they are chosen by: f itself is among the choices."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=400)
    for spread in (0.5, 2.0, 6.0):
        f = rng.dirichlet(np.ones(3), size=400) + spread * np.eye(3)[y] * rng.random((400, 1))
        f /= f.sum(axis=1, keepdims=True)
        noise = rng.dirichlet(np.ones(3), size=400)
        pool = pooled(f, noise, *fit_pool(f, noise, y))
        candidates = {"f": f, "direct": pool, "votes": noise, "temperature": noise}
        p = fit_mixture(candidates, y)(candidates)
        assert nll_proba(y, p) <= nll_proba(y, f) + 1e-6


def test_overconfidence_is_mended():
    """A base classifier that is far too sure is softened by what happens out of fold."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    p = 1 / (1 + np.exp(-x[:, 0]))
    y = (rng.random(600) < p).astype(int)
    sure = np.stack([1 - p, p], axis=1) ** 5
    sure /= sure.sum(axis=1, keepdims=True)
    clf = CARDClassifier(mean="given", epochs=30, random_state=0).fit((x[:400], sure[:400]), y[:400])
    test = (x[400:], sure[400:])
    best = nll_proba(y[400:], np.stack([1 - p, p], axis=1)[400:])
    assert nll_proba(y[400:], sure[400:]) > best + 0.3
    assert nll_proba(y[400:], clf.predict_proba(test)) < best + 0.05


def test_doubtful_rows_are_sent_to_a_person(modern):
    for by in ("auto", "piw", "p_value", "margin"):
        sent = modern.triage(X, budget=0.2, by=by)
        assert sent.sum() == 30
    wrong = modern.predict(X) != Y
    sent = modern.triage(X, budget=0.3)
    assert wrong[sent].mean() > 2 * wrong[~sent].mean()


def test_a_wanted_accuracy_is_kept_by_the_rows_that_stay(modern):
    few, many = (modern.triage(X, target_accuracy=a) for a in (0.9, 0.99))
    assert few.sum() <= many.sum() < len(X)
    assert (modern.predict(X) == Y)[~few].mean() > 0.85


def test_a_model_that_saw_all_rows_asks_for_others(paper):
    with pytest.raises(ValueError, match="give held_out"):
        paper.triage(X, target_accuracy=0.9)
    assert paper.triage(X, budget=0.1).sum() == 15
    sent = paper.triage(X, target_accuracy=0.9, held_out=(X[::2], Y[::2]))
    assert sent.dtype == bool


def test_the_gain_over_deferring_by_f_is_told(modern):
    gain = modern.deferral_gain(X, Y)
    assert gain.gain == pytest.approx(gain.f_aurc - gain.aurc)


@pytest.mark.parametrize("sampler", ["ancestral", "short-chain", "ddim", "multistep", "multistep-sde"])
def test_every_sampler_serves_both_networks(clf, sampler):
    before = clf.sampler
    try:
        clf.set_params(sampler=sampler)
        draws = clf.sample(X, 30, random_state=0)
        assert np.isfinite(draws).all()
        if clf.denoiser == "unit":
            assert (draws.mean(axis=0).argmax(axis=1) == clf.predict_proba(X).argmax(axis=1)).mean() > 0.9
    finally:
        clf.set_params(sampler=before)


@pytest.mark.parametrize(
    ("sampler", "n_evaluations"), [("ancestral", 4), ("multistep", 20), ("multistep-sde", 20)]
)
def test_few_steps_say_of_each_row_what_a_long_chain_says(modern, sampler, n_evaluations):
    between = np.linspace(X[50:100].mean(axis=0), X[100:].mean(axis=0), 60)  # versicolor to virginica

    def assessed(sampler, n_evaluations):
        clf = deepcopy(modern).set_params(sampler=sampler, n_evaluations=n_evaluations)
        clf.schedule_ = clf._schedule()
        return clf.assess(between, n_draws=400)

    chain, few = assessed("ancestral", 300), assessed(sampler, n_evaluations)
    assert (few["vote"] == chain["vote"]).mean() > 0.95
    assert (few["certain"] == chain["certain"]).mean() > 0.95
    assert spearmanr(few["piw_versicolor"], chain["piw_versicolor"]).statistic > 0.9


def test_an_unfitted_classifier_says_so():
    for method in ("predict", "predict_proba", "assess", "sample", "predict_mean_model"):
        with pytest.raises(NotFittedError):
            getattr(CARDClassifier(), method)(X)
    with pytest.raises(NotFittedError):
        CARDClassifier().triage(X, budget=0.1)


def test_an_interrupted_fit_leaves_no_model(monkeypatch):
    clf = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X, Y)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("card.class_fit.train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, Y)
    with pytest.raises(NotFittedError):
        clf.predict(X)


def test_triage_goes_by_the_doubt(modern):
    doubt = modern.doubt(X)
    assert doubt.shape == (150,)
    assert doubt[modern.triage(X, budget=0.1)].min() >= doubt[~modern.triage(X, budget=0.1)].max()


def test_noise_and_doubt_are_parts_of_the_entropy(clf):
    noise, doubt = clf.decompose(X)
    assert noise.shape == doubt.shape == (150,)
    assert (noise >= 0).all()
    assert (doubt >= 0).all()
    p = clf.predict_proba(X)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    np.testing.assert_allclose(noise + doubt, entropy, atol=0.05)
    assert clf.denoiser == "unit" or doubt.max() < 1e-9  # one member has nobody to disagree with
    order = np.random.default_rng(0).permutation(150)
    np.testing.assert_allclose(clf.decompose(X[order]).epistemic, doubt[order], atol=1e-6)


def test_a_list_of_text_and_numbers_keeps_both():
    labels = [(1, "one", 2)[k] for k in np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.6]))]
    clf = CARDClassifier(**QUICK).fit(X, labels)
    assert set(clf.classes_.tolist()) == {1, "one", 2}
    assert set(clf.predict(X).tolist()) <= {1, "one", 2}


def test_a_gain_wants_a_label_for_every_row():
    clf = CARDClassifier(**QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        clf.deferral_gain(X, Y[:10])


@pytest.mark.parametrize(("dtype", "values"), [("boolean", [False, True]), ("Int64", [3, 7])])
def test_labels_of_pandas_own_types_come_back_as_what_they_are(dtype, values):
    clf = CARDClassifier(**QUICK).fit(
        X, pd.Series(np.array(values)[(X[:, 0] > np.median(X[:, 0])).astype(int)], dtype=dtype)
    )
    assert clf.classes_.tolist() == values
    assert type(clf.classes_.tolist()[0]) is type(values[0])


def test_a_class_of_one_row_leaves_folds_with_one_class_to_a_users_classifier():
    labels = np.where(np.arange(len(X)) == 3, "b", "a")
    clf = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X, labels)
    assert clf.predict_proba(X).sum(1) == pytest.approx(1.0)
    assert clf.classes_.tolist() == ["a", "b"]
