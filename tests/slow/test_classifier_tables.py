"""Tables, cross-validated: at least as good as the base classifier alone, and better calibrated."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import StratifiedKFold

from card import CARDClassifier
from card.metrics import accuracy, ece, nll_proba

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_digits])
def test_never_loses_to_its_base_classifier(load):
    X, y = load(return_X_y=True)
    card, f = (np.zeros((len(y), y.max() + 1)) for _ in range(2))
    for learn, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        clf = CARDClassifier(random_state=0).fit(X[learn], y[learn])
        card[test], f[test] = clf.predict_proba(X[test]), clf.predict_mean_model(X[test])
    figures = {
        name: {"accuracy": accuracy(y, p.argmax(1)), "nll": nll_proba(y, p), "ece": ece(y, p)}
        for name, p in (("card", card), ("f", f))
    }
    print(load.__name__, figures)
    assert figures["card"]["accuracy"] >= figures["f"]["accuracy"]
    assert figures["card"]["nll"] <= figures["f"]["nll"]
    assert figures["card"]["ece"] < figures["f"]["ece"]
