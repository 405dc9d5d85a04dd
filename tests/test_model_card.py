"""Every model file tells people what it is."""

import re
import zipfile

import numpy as np
import pytest
from houses import QUICK, houses
from sklearn.tree import DecisionTreeRegressor

from card import CARDRegressor, load
from card.model_card import model_card


@pytest.fixture(scope="module")
def model():
    frame = houses(80)
    return CARDRegressor(**QUICK).fit(frame.drop(columns="price"), frame["price"])


def test_the_card_names_the_response_the_columns_and_what_was_learned(model):
    text = model_card(model, {"crps": 1.25})
    assert text.startswith("# CARDRegressor: price\n")
    assert "| town | category | yes | 3 levels: Bonn, Köln, Ulm |" in text
    assert "| garden | boolean | no |" in text
    assert "- crps: 1.25" in text
    assert "- `epochs`: 3" in text
    assert "- card-diffusion 0" in text
    assert "Fitted to 80 rows of 5 columns." in text
    assert re.search(
        r"- out of fold, 80 rows, .*: rmse [\d.]+, crps [\d.]+, inside the 95 % interval [\d.]+ %", text
    )


def test_held_out_scores_are_of_models_that_have_not_seen_the_rows():
    """The response is noise: who has not seen a row cannot do better than its size."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    tree = DecisionTreeRegressor(random_state=0)
    model = CARDRegressor(mean=tree, cv=4, epochs=3, repeats=3, random_state=0).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.7
    assert 1.0 < model.held_out_scores_["rmse"] < 1.8
    assert model.held_out_scores_["rows"] == model.n_rows_ == 200


def test_what_was_told_survives_the_file(model, tmp_path):
    model.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card")
    assert (again.n_rows_, again.held_out_scores_) == (80, model.held_out_scores_)


def test_the_card_is_in_the_model_file(model, tmp_path):
    model.save(tmp_path / "m.card")
    with zipfile.ZipFile(tmp_path / "m.card") as archive:
        assert archive.read("README.md").decode() == model_card(model)


def test_names_cannot_break_the_table():
    frame = houses(60).rename(columns={"town": "a|b\n<i>"})
    model = CARDRegressor(**QUICK).fit(frame.drop(columns="price"), frame["price"])
    assert "| a\\|b &lt;i> | category |" in model_card(model)
