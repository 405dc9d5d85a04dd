"""Every model file tells people what it is."""

import zipfile

import pytest
from houses import QUICK, houses

from card import CARDRegressor
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


def test_the_card_is_in_the_model_file(model, tmp_path):
    model.save(tmp_path / "m.card")
    with zipfile.ZipFile(tmp_path / "m.card") as archive:
        assert archive.read("README.md").decode() == model_card(model)


def test_names_cannot_break_the_table():
    frame = houses(60).rename(columns={"town": "a|b\n<i>"})
    model = CARDRegressor(**QUICK).fit(frame.drop(columns="price"), frame["price"])
    assert "| a\\|b &lt;i> | category |" in model_card(model)
