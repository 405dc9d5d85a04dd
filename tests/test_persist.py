import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import card
from card import CARDRegressor, ModelFileError, load

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X.sum(1) + RNG.normal(size=60)
QUICK = {"epochs": 3, "repeats": 1, "cv": 2, "random_state": 0}
PAPER = {"epochs": 2, "n_steps": 20, "beta_T": 0.4, "mean_epochs": 3, "n_draws": 20, "random_state": 0}
GOLDEN = Path(__file__).parent / "golden"

MODELS = {
    "default": lambda: CARDRegressor(**QUICK).fit(X, Y),
    "several targets": lambda: CARDRegressor(**QUICK, n_draws=30).fit(X, np.column_stack([Y, -Y])),
    "paper": lambda: CARDRegressor.from_recipe("paper", **PAPER).fit(X, Y),
    "cosine, raw x": lambda: CARDRegressor.from_recipe(
        "paper", **PAPER, schedule="cosine", standardise_x=False, prior="zero"
    ).fit(X, Y),
    "linear regression": lambda: CARDRegressor(**QUICK, mean=LinearRegression()).fit(X, Y),
    "boosting, fitted once": lambda: CARDRegressor.from_recipe(
        "paper", **PAPER, mean=GradientBoostingRegressor(n_estimators=5, random_state=0)
    ).fit(X, Y),
    "zero mean": lambda: CARDRegressor(**QUICK, mean="zero").fit(X, Y),
    "frame": lambda: CARDRegressor(**QUICK).fit(frame(X), Y),
    "counts": lambda: CARDRegressor(**QUICK, response="count", bounds=(0, 50)).fit(
        X, np.round(np.exp(X[:, 0]))
    ),
    "ordinal": lambda: CARDRegressor(**QUICK, response="ordinal").fit(X, np.round(X[:, 0])),
}


def frame(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"a": x[:, 0], "town": np.where(x[:, 1] > 0, "Ulm", "Bonn"), "b": x[:, 2]})


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_saved_one(name, tmp_path):
    model = MODELS[name]()
    model.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card")
    rows = frame(X) if name == "frame" else X
    assert np.array_equal(again.predict(rows), model.predict(rows))
    assert np.array_equal(again.predict_interval(rows), model.predict_interval(rows))
    assert np.array_equal(again.predict_mean_model(rows).mean(), model.predict_mean_model(rows).mean())
    draws = (each.sample(rows, 4, random_state=1) for each in (again, model))
    assert np.array_equal(*draws)
    again.save(tmp_path / "again.card")
    assert np.array_equal(load(tmp_path / "again.card").predict(rows), model.predict(rows))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "m.card"
    MODELS["linear regression"]().save(path)
    return path.read_bytes()


def rewritten(data: bytes, change) -> bytes:
    """The file with `change` applied to its parts."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return out.getvalue()


def edited(data: bytes, **changes) -> bytes:
    def change(parts):
        parts["manifest.json"] = json.dumps(json.loads(parts["manifest.json"]) | changes).encode()

    return rewritten(data, change)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


DAMAGES = {
    "truncated": (lambda d: d[: len(d) // 2], "truncated"),
    "empty": (lambda d: b"", "not a card model file"),
    "a text file": (lambda d: b"price,size\n1,2\n", "not a card model file"),
    "a pickle": (lambda d: pickle.dumps(Bomb()), "not a card model file"),
    "another zip": (lambda d: rewritten(d, lambda p: p.pop("manifest.json")), "no manifest.json"),
    "another format": (lambda d: edited(d, format="something"), "does not say"),
    "a newer format": (lambda d: edited(d, format_version=99), "update card-diffusion"),
    "a changed tensor": (
        lambda d: rewritten(
            d, lambda p: p.update({"tensors.safetensors": p["tensors.safetensors"][:-1] + b"x"})
        ),
        "has been changed or damaged",
    ),
    "a lost part": (lambda d: rewritten(d, lambda p: p.pop("tensors.safetensors")), "lacks its part"),
    "broken json": (lambda d: rewritten(d, lambda p: p.update({"manifest.json": b"{"})), "damaged"),
    "an unknown kind": (lambda d: edited(d, kind="Oracle"), "knows no Oracle"),
    "a missing entry": (lambda d: edited(d, model={}), "not a whole model"),
    "no checksums": (lambda d: edited(d, sha256={}), "lists no checksums"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_bad_file_is_refused_and_says_why(name, saved, tmp_path):
    damage, message = DAMAGES[name]
    path = tmp_path / "bad.card"
    path.write_bytes(damage(saved))
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_a_flipped_byte_anywhere_never_loads_silently(saved, tmp_path):
    path = tmp_path / "bad.card"
    whole = tmp_path / "good.card"
    whole.write_bytes(saved)
    good = load(whole).predict(X)
    for position in range(10, len(saved), max(1, len(saved) // 60)):
        data = bytearray(saved)
        data[position] ^= 0xFF
        path.write_bytes(bytes(data))
        try:
            other = load(path)
        except ModelFileError:
            continue
        assert np.array_equal(other.predict(X), good)  # a byte that means nothing, such as a time stamp


def test_an_untrusted_type_in_the_mean_model_is_refused(saved, tmp_path):
    import hashlib

    import skops.io

    hostile = skops.io.dumps(Bomb)

    def change(parts):
        parts["mean-0.skops"] = hostile
        manifest = json.loads(parts["manifest.json"])
        manifest["sha256"]["mean-0.skops"] = hashlib.sha256(hostile).hexdigest()
        parts["manifest.json"] = json.dumps(manifest).encode()

    path = tmp_path / "bad.card"
    path.write_bytes(rewritten(saved, change))
    with pytest.raises(ModelFileError, match="not trusted"):
        load(path)


def test_a_mean_model_that_cannot_be_stored_safely_is_refused_at_save(tmp_path):
    class Mine(LinearRegression):
        pass

    model = CARDRegressor(**QUICK, mean=Mine()).fit(X, Y)
    with pytest.raises(TypeError, match="cannot be stored safely"):
        model.save(tmp_path / "m.card")
    assert not (tmp_path / "m.card").exists()


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    model = MODELS["zero mean"]()
    path = tmp_path / "m.card"
    model.save(path)
    before = path.read_bytes()

    def full_disk(*args):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.card"]


def test_a_missing_file_and_an_unfitted_model_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model file"):
        load(tmp_path / "nowhere.card")
    with pytest.raises(NotFittedError):
        CARDRegressor().save(tmp_path / "m.card")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.card")), ids=lambda p: p.name)
def test_models_of_earlier_releases_load_and_predict_as_they_did(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    model = load(path)
    rows = np.array(expected["X"])
    if "proba" in expected:
        np.testing.assert_allclose(model.predict_proba(rows), expected["proba"], atol=1e-4)
        return
    assert np.allclose(model.predict(rows), expected["mean"], rtol=1e-4, atol=1e-4)
    assert np.allclose(model.predict_quantiles(rows, [0.1, 0.9]), expected["quantiles"], rtol=1e-4, atol=1e-4)


def test_there_is_a_golden_file_of_this_format():
    versions = []
    for path in GOLDEN.glob("*.card"):
        with zipfile.ZipFile(path) as archive:
            versions.append(json.loads(archive.read("manifest.json"))["format_version"])
    assert card.persist.FORMAT_VERSION in versions
