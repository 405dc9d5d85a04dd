"""Write the golden model files of the present format: `python tests/make_golden.py`, once per version."""

import json
from pathlib import Path

import numpy as np
import torch

from card import CARDClassifier, CARDRegressor
from card.persist import FORMAT_VERSION

GOLDEN = Path(__file__).parent / "golden"


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=40)
    small = {"epochs": 2, "width": 16, "random_state": 0}
    models = {
        "default": CARDRegressor(**small, cv=2, repeats=1, conformal="split"),
        "paper": CARDRegressor.from_recipe(
            "paper", **small, n_steps=10, beta_T=0.5, mean_epochs=2, mean_hidden=(8,), n_draws=20
        ),
    }
    GOLDEN.mkdir(exist_ok=True)
    for name, model in models.items():
        path = GOLDEN / f"{name}-v{FORMAT_VERSION}.card"
        model.fit(X, y).save(path)
        expected = {
            "X": X[:5].tolist(),
            "mean": model.predict(X[:5]).tolist(),
            "quantiles": model.predict_quantiles(X[:5], [0.1, 0.9]).tolist(),
        }
        path.with_suffix(".json").write_text(json.dumps(expected))
    _classifiers(X, np.where(X[:, 0] > 0.5, "high", np.where(X[:, 1] > 0, "left", "right")))


def _classifiers(X: np.ndarray, y: np.ndarray) -> None:
    small = {"epochs": 2, "width": 8, "random_state": 0, "n_draws": 10}
    models = {
        "classifier": CARDClassifier(**small, cv=2, repeats=1),
        "classifier-paper": CARDClassifier.from_recipe(
            "paper", **small, n_steps=10, beta_T=0.5, mean_epochs=2, mean_hidden=(8,)
        ),
    }
    for name, model in models.items():
        path = GOLDEN / f"{name}-v{FORMAT_VERSION}.card"
        model.fit(X, y).save(path)
        expected = {"X": X[:5].tolist(), "proba": model.predict_proba(X[:5]).tolist()}
        path.with_suffix(".json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
