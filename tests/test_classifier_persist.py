"""A stored classifier comes back as it was; modules of the user's come back with the user's help."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from card import CARDClassifier, ModelFileError, load

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=90)
X = RNG.normal(size=(90, 4)) + np.eye(3, 4)[Y] * 2
IMAGES = (RNG.integers(0, 90, (90, 1, 12, 12)) + 160 * (np.arange(12) // 4 == Y[:, None, None, None])).astype(
    np.uint8
)
QUICK = {"epochs": 2, "repeats": 1, "cv": 2, "mean_epochs": 2, "n_draws": 10, "random_state": 0}
PAPER = QUICK | {"n_steps": 10, "beta_T": 0.6, "width": 8, "cv": None}
FITTED = LogisticRegression().fit(X, np.array(["a", "b", "c"])[Y])


def module(n_out: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, n_out))


MODELS = {
    "default": (lambda: CARDClassifier(**QUICK), X),
    "paper": (lambda: CARDClassifier.from_recipe("paper", **PAPER), X),
    "logistic regression": (lambda: CARDClassifier(**QUICK, mean=LogisticRegression()), X),
    "a fitted classifier": (lambda: CARDClassifier(**QUICK, mean=FITTED, standardise_x=False), X),
    "fitted once": (lambda: CARDClassifier(**QUICK | {"cv": None}, mean=LogisticRegression()), X),
    "frame": (
        lambda: CARDClassifier(**QUICK),
        pd.DataFrame(X, columns=list("abcd")).assign(t=["u", "v"] * 45),
    ),
    "networks": (lambda: CARDClassifier(**QUICK), IMAGES),
    "encoders": (lambda: CARDClassifier(**QUICK, mean="mlp-bn", encoder="linear", width=8), IMAGES),
    "paper on images": (lambda: CARDClassifier.from_recipe("paper", **PAPER, encoder="lenet"), IMAGES),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_classifier_is_the_saved_one(name, tmp_path):
    make, rows = MODELS[name]
    clf = make().fit(rows, np.array(["a", "b", "c"])[Y])
    clf.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card")
    assert np.array_equal(again.predict(rows), clf.predict(rows))
    np.testing.assert_array_equal(again.predict_proba(rows), clf.predict_proba(rows))
    np.testing.assert_array_equal(again.predict_mean_model(rows), clf.predict_mean_model(rows))
    pd.testing.assert_frame_equal(again.assess(rows, 10), clf.assess(rows, 10))
    assert np.array_equal(again.triage(rows, budget=0.2), clf.triage(rows, budget=0.2))
    again.save(tmp_path / "again.card")
    np.testing.assert_array_equal(load(tmp_path / "again.card").predict_proba(rows), clf.predict_proba(rows))


LABELS = {
    "booleans": lambda n: n > 0,
    "integers": lambda n: n - 1,
    "text and numbers": lambda n: np.array(["a", 1, 2.5], dtype=object)[n],
    "tuples": lambda n: [[("a", 1), ("b", 2), ("c", 3)][i] for i in n],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_keep_their_type(kind, tmp_path):
    clf = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X, LABELS[kind](Y))
    clf.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card")
    assert again.classes_.dtype == clf.classes_.dtype
    assert again.classes_.tolist() == clf.classes_.tolist()


def test_modules_are_stored_as_weights_and_asked_for_at_load(tmp_path):
    clf = CARDClassifier(**QUICK, mean=module(3), encoder=module(8)).fit(IMAGES, Y)
    clf.save(tmp_path / "m.card")
    with pytest.raises(ModelFileError, match="torch module of your own as mean"):
        load(tmp_path / "m.card")
    with pytest.raises(ModelFileError, match="torch module of your own as encoder"):
        load(tmp_path / "m.card", modules={"mean": module(3)})
    with pytest.raises(ModelFileError, match="not a whole model"):
        load(tmp_path / "m.card", modules={"mean": module(4), "encoder": module(8)})
    again = load(tmp_path / "m.card", modules={"mean": module(3, seed=1), "encoder": module(8, seed=1)})
    np.testing.assert_array_equal(again.predict_proba(IMAGES), clf.predict_proba(IMAGES))


def test_frozen_features_come_back_too(tmp_path):
    frozen = module(8).eval().requires_grad_(False)
    clf = CARDClassifier(**QUICK, mean="mlp", encoder=frozen).fit(IMAGES, Y)
    clf.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card", modules={"encoder": module(8, seed=1)})
    np.testing.assert_array_equal(again.predict_proba(IMAGES), clf.predict_proba(IMAGES))


def test_labels_that_no_file_can_hold_are_named(tmp_path):
    clf = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X, [frozenset("ab"[int(i > 0)]) for i in Y])
    with pytest.raises(TypeError, match="frozenset cannot be stored"):
        clf.save(tmp_path / "m.card")
