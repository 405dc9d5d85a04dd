"""The UCI tables: right numbers, canonical splits, and every way to come by them."""

import os
import re
import zipfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from data_source import no_data_fixture, source_fixture  # noqa: F401

from card.datasets import UCI_NAMES, load_uci, uci

PACKAGED = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "wine": (1599, 11),
    "yacht": (308, 6),
}
ELSEWHERE = {"kin8nm": (8192, 8), "naval": (11934, 16), "power": (9568, 4), "protein": (45730, 9)}


def stored(name):
    path = resources.files("card.datasets") / "data" / f"{name}.npz"
    with resources.as_file(path) as file, np.load(file) as arrays:
        return dict(arrays)


def as_text(X, y):
    """The mirror's form: numbers apart by one blank, several, or tabs, in one and the same file."""
    lines = [" ".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    lines[::2] = [re.sub(" ", "   ", line) + "  " for line in lines[::2]]
    lines[::3] = [line.replace(" ", "\t") for line in lines[::3]]
    return "\n".join(lines).encode()


@pytest.fixture
def served_yacht(source, monkeypatch):
    """Yacht as if it were not packaged: it must come over the (local) network."""
    monkeypatch.setattr(uci, "MIRROR", source.url)
    monkeypatch.setitem(uci.SOURCES, "yacht", replace(uci.SOURCES["yacht"], packaged=False))
    arrays = stored("yacht")
    source.put("yacht/data/data.txt", as_text(arrays["X"], arrays["y"]))
    return source


@pytest.mark.parametrize(("name", "shape"), PACKAGED.items())
def test_five_sets_need_neither_folder_nor_network(no_data, name, shape):
    data = load_uci(name)
    assert data.X.shape == shape
    assert data.y.shape == shape[:1]
    assert len(data.feature_names) == shape[1]
    assert len(data.splits) == 20


@pytest.mark.parametrize("name", PACKAGED)
def test_the_rule_gives_the_published_splits(name):
    arrays = stored(name)
    for i, (train, test) in enumerate(load_uci(name).splits):
        np.testing.assert_array_equal(train, arrays["train_idx"][i])
        np.testing.assert_array_equal(test, arrays["test_idx"][i])


@pytest.mark.parametrize(("name", "shape"), ELSEWHERE.items())
def test_the_larger_sets_are_read_from_the_folder_and_have_the_published_splits(name, shape):
    path = Path(os.environ.get("CARD_DATA", "")) / "uci" / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"needs uci/{name}.npz in the folder CARD_DATA")
    data = load_uci(name)
    assert data.X.shape == shape
    with np.load(path) as arrays:
        assert len(data.splits) == len(arrays["train_idx"])
        for i, (train, test) in enumerate(data.splits):
            np.testing.assert_array_equal(train, arrays["train_idx"][i])
            np.testing.assert_array_equal(test, arrays["test_idx"][i])


def test_a_split_cuts_the_table_without_loss_or_overlap():
    data = load_uci("yacht")
    X_train, X_test, y_train, y_test = data.split(3)
    train, test = data.splits[3]
    np.testing.assert_array_equal(X_train, data.X[train])
    np.testing.assert_array_equal(X_test, data.X[test])
    np.testing.assert_array_equal(y_train, data.y[train])
    np.testing.assert_array_equal(y_test, data.y[test])
    assert sorted([*train, *test]) == list(range(308))


def test_a_split_that_is_not_there_is_refused():
    with pytest.raises(IndexError, match="yacht has splits 0 to 19; got 20"):
        load_uci("yacht").split(20)


@pytest.mark.parametrize(
    ("name", "columns", "n_levels"), [("boston", (3,), [2]), ("energy", (4, 6, 7), [2, 4, 6])]
)
def test_the_columns_the_paper_one_hot_encodes_have_few_levels(name, columns, n_levels):
    data = load_uci(name)
    assert data.categorical == columns
    assert [len(np.unique(data.X[:, c])) for c in columns] == n_levels


def test_columns_carry_the_names_that_fit_their_numbers():
    concrete, wine = load_uci("concrete"), load_uci("wine")
    assert (concrete.feature_names[-1], concrete.target_name) == ("age", "strength")
    assert concrete.X[:, -1].max() == 365
    assert (wine.feature_names[-1], wine.target_name) == ("alcohol", "quality")
    assert set(wine.y) <= set(range(3, 9))


def test_a_set_that_is_not_at_hand_is_downloaded_checked_and_kept(served_yacht):
    first, arrays = load_uci("yacht"), stored("yacht")
    np.testing.assert_array_equal(first.X, arrays["X"])
    np.testing.assert_array_equal(first.y, arrays["y"])
    assert (served_yacht.cache / "uci" / "yacht.txt").is_file()
    served_yacht.stop()
    np.testing.assert_array_equal(load_uci("yacht").X, first.X)  # from the cache now


def test_a_download_with_other_numbers_is_refused(served_yacht):
    arrays = stored("yacht")
    served_yacht.put("yacht/data/data.txt", as_text(arrays["X"], arrays["y"] + 1e-6))
    with pytest.raises(ValueError, match=r"yacht\.txt are not those of the yacht set .* Remove the file"):
        load_uci("yacht")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>not here</html>", "is not a table of numbers"),
        (b"1 2 3\n4 5 6\n", "should have at least 7 columns; it has 3"),
    ],
)
def test_a_download_of_another_form_is_refused(served_yacht, content, message):
    served_yacht.put("yacht/data/data.txt", content)
    with pytest.raises(ValueError, match=message):
        load_uci("yacht")


def test_without_folder_and_network_the_error_says_what_to_do(no_data, monkeypatch):
    monkeypatch.setattr(uci, "MIRROR", "http://127.0.0.1:9")
    with pytest.raises(FileNotFoundError, match=r"downloading http.*kin8nm.* failed .*set CARD_DATA"):
        load_uci("kin8nm")


def test_the_folder_comes_before_the_network(served_yacht, monkeypatch, tmp_path):
    arrays = stored("yacht")
    (tmp_path / "mine" / "uci").mkdir(parents=True)
    np.savez(tmp_path / "mine" / "uci" / "yacht.npz", X=arrays["X"], y=arrays["y"])
    monkeypatch.setenv("CARD_DATA", str(tmp_path / "mine"))
    np.testing.assert_array_equal(load_uci("yacht").X, arrays["X"])
    assert not served_yacht.cache.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"junk", r"kin8nm\.npz is not a readable \.npz file"),
        (b"", r"kin8nm\.npz is not a readable \.npz file"),
        ({"X": np.zeros((2, 8))}, r"is not a readable \.npz file with arrays X and y"),
        ({"X": np.zeros((2, 8)), "y": np.array([None, None])}, r"is not a readable \.npz"),
        ({"X": np.zeros((2, 8)), "y": np.zeros(2)}, "are not those of the kin8nm set"),
    ],
    ids=["no zip", "empty", "array missing", "needs pickle", "other numbers"],
)
def test_a_damaged_file_in_the_folder_is_refused(no_data, monkeypatch, tmp_path, content, message):
    path = tmp_path / "uci" / "kin8nm.npz"
    path.parent.mkdir()
    if isinstance(content, dict):
        np.savez(path, **content)
    else:
        path.write_bytes(content)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        load_uci("kin8nm")


def test_a_folder_that_is_none_is_refused(no_data, monkeypatch, tmp_path):
    monkeypatch.setenv("CARD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"CARD_DATA names .*nowhere', which is not a folder"):
        load_uci("power")


def test_what_follows_the_target_is_not_used(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("1 2 3 4\n5 6 7 8\n")
    X, y = uci.read_text(path, n_features=2)
    assert (X.tolist(), y.tolist()) == ([[1, 2], [5, 6]], [3, 7])


def year_lines(n, rng):
    X = rng.normal(size=(n, 90)).round(5)
    y = rng.integers(1922, 2012, size=n)
    return X, y, "\n".join(f"{a}," + ",".join(map(repr, row)) for a, row in zip(y, X.tolist(), strict=True))


@pytest.mark.parametrize("zipped", [False, True])
def test_year_is_read_plain_or_zipped_with_its_first_rows_for_training(
    no_data, monkeypatch, tmp_path, zipped
):
    X, y, lines = year_lines(30, np.random.default_rng(0))
    if zipped:
        with zipfile.ZipFile(tmp_path / "YearPredictionMSD.txt.zip", "w") as archive:
            archive.writestr("YearPredictionMSD.txt", lines)
    else:
        (tmp_path / "YearPredictionMSD.txt").write_text(lines)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    monkeypatch.setattr(uci, "YEAR_ROWS", 30)
    monkeypatch.setattr(uci, "YEAR_TRAIN", 25)
    year = load_uci("year")
    X_train, X_test, y_train, y_test = year.split(0)
    np.testing.assert_array_equal(np.vstack([X_train, X_test]), X)
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), y)
    assert (len(y_train), len(year.splits), len(year.feature_names)) == (25, 1, 90)


def test_year_is_downloaded_from_the_archive(source, monkeypatch):
    _, y, lines = year_lines(4, np.random.default_rng(0))
    with zipfile.ZipFile(source.folder / "year.zip", "w") as archive:
        archive.writestr("YearPredictionMSD.txt", lines)
    monkeypatch.setattr(uci, "YEAR_URL", f"{source.url}/year.zip")
    monkeypatch.setattr(uci, "YEAR_ROWS", 4)
    np.testing.assert_array_equal(load_uci("year").y, y)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("YearPredictionMSD.txt", "2001,1,2\n", "should have 91 numbers in every line"),
        ("YearPredictionMSD.txt", "a,b\n", "is not a readable file of the year set"),
        (
            "YearPredictionMSD.txt",
            ",".join(["2001"] + ["0"] * 90),
            r"has 515345 rows; .* has 1\. Is it cut short",
        ),
        ("YearPredictionMSD.txt", ",".join(["7"] + ["0"] * 90), "should be a year from 1922 to 2011"),
        ("YearPredictionMSD.txt.zip", "no zip", "is not a readable file of the year set"),
    ],
)
def test_a_bad_file_of_the_year_set_is_refused(no_data, monkeypatch, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        load_uci("year")


def test_names_are_read_forgivingly_and_near_misses_answered():
    assert load_uci("Yacht").name == "yacht"
    with pytest.raises(ValueError, match=r"no UCI set named 'concret'\. Did you mean 'concrete'\?"):
        load_uci("concret")
    assert len(UCI_NAMES) == 10
