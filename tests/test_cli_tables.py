"""Odd tables, odd labels and odd requests through the command line: right answers, or one line that helps."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from houses import QUICK_OPTIONS, houses
from labels import Labels
from shell import predicted, run

import card
from card.app.fit import guess_task
from card.cli import settings_of
from card.files import read_chunks

LABELS = ["--set=epochs=2", "--set=repeats=1", "--set=cv=2", "--set=mean=mlp", "--set=mean_epochs=2"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    houses().to_csv(folder / "houses.csv", index=False)
    run("fit", folder / "houses.csv", "--target=price", "--out", folder / "m.card", *QUICK_OPTIONS)
    return folder / "m.card"


@pytest.fixture
def rows():
    return houses(8, seed=1).drop(columns="price")


def fit(frame, folder, *options, target="price", quick=QUICK_OPTIONS, **more):
    frame.to_csv(folder / "t.csv", index=False)
    return run(
        "fit", folder / "t.csv", f"--target={target}", "--out", folder / "m.card", *options, *quick, **more
    )


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("7", "3")])
def test_labels_with_gaps_are_known_again_at_evaluate(tmp_path, words):
    frame = houses(40)
    frame["ok"] = np.where(frame.pop("price") > 200, *words)
    frame.loc[3, "ok"] = None
    said = fit(frame, tmp_path, target="ok", quick=LABELS)
    assert "1 of 40 rows have no 'ok' and were left out" in said.stderr
    table = predicted(tmp_path / "m.card", tmp_path / "t.csv")
    names = {"p_True", "p_False"} if words[0].isalpha() else {f"p_{w}" for w in words}
    assert {c for c in table if c.startswith("p_")} - {"p_value"} == names
    assert "39 rows" in run("evaluate", tmp_path / "m.card", tmp_path / "t.csv").stdout


class Value(Labels):
    classes_ = np.array(["=no", "value"])

    def assess(self, X):
        return super().assess(X).rename(columns={"piw_no": "piw_=no", "piw_yes": "piw_value"})


def test_a_class_named_value_does_not_hide_the_p_value(tmp_path, monkeypatch):
    monkeypatch.setattr("card.app.predict.load_model", lambda path: Value())
    (tmp_path / "t.csv").write_text("a,b\n2,0\n-1,0\n")
    table = predicted("model", tmp_path / "t.csv")
    assert list(table)[1:4] == ["p_=no", "p_value_class", "piw_=no"]
    np.testing.assert_allclose(table["p_=no"] + table["p_value_class"], 1)
    np.testing.assert_allclose(table["p_value"], 1 - table[["p_=no", "p_value_class"]].max(axis=1))
    assert table["label"].tolist() == ["value", "'=no"]


def test_quantiles_of_classes_are_said_to_be_none(tmp_path, monkeypatch):
    monkeypatch.setattr("card.app.predict.load_model", lambda path: Labels())
    (tmp_path / "t.csv").write_text("a,b\n2,0\n")
    assert "are for numbers" in run("predict", "model", tmp_path / "t.csv", "--draws=3").stderr
    assert run("predict", "model", tmp_path / "t.csv").stderr == ""


class Thirty(Labels):
    """Every class as probable as its number."""

    classes_ = np.array([f"c{i}" for i in range(30)])

    def predict_proba(self, X):
        return np.tile(np.arange(30.0) / 435, (len(X), 1))

    def assess(self, X):
        return super().assess(X).join(pd.DataFrame(0.1, range(len(X)), [f"piw_{c}" for c in self.classes_]))


def test_of_many_classes_the_likeliest_are_explained(tmp_path, monkeypatch):
    monkeypatch.setattr("card.app.explain.load_model", lambda path: Thirty())
    (tmp_path / "t.csv").write_text("a,b\n2,0\n")
    said = run("explain", "model", tmp_path / "t.csv", "--row=1", "--out", tmp_path / "x.png").stdout
    assert re.findall(r"p_(c\d+)", said) == [f"c{i}" for i in range(29, 14, -1)]
    assert f"and 15 more classes, {np.arange(15).sum() / 435:.4f} together" in said


def test_prices_with_a_currency_are_not_taken_for_labels(tmp_path):
    frame = houses(40)
    frame["price"] = frame["price"].map("{:.2f} EUR".format)
    said = fit(frame, tmp_path, code=1).stderr
    assert re.search(r"holds \d+ different labels in 40 rows, such as '[\d.]+ EUR': write numbers", said)


def test_many_labels_that_occur_often_are_labels():
    frame = pd.DataFrame({"town": [f"town {i % 30}" for i in range(300)]})
    assert guess_task(frame, ["town"]) == ("classification", "town holds labels")


# --------------------------------------------------------------- columns


def test_a_column_of_numbers_with_a_stray_word_is_pointed_out(tmp_path):
    frame = houses(60)
    frame["area"] = frame["area"].astype(object)
    frame.loc[0, "area"] = "large"
    frame["sold"] = "03/04/2024"
    said = fit(frame, tmp_path).stderr.splitlines()
    n = frame["area"].notna().sum()
    assert said[0] == (
        f"warning: column 'area' is taken for text, since 1 of {n} cells are no numbers, such as 'large'"
    )
    assert "in which order are the days and months of '03/04/2024'?" in said[1]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target=price"], "a target is named once"),
        (["--drop=price"], "a target is named once, and is nothing else"),
        (["--drop=rooms", "--categorical=rooms"], "cannot be --categorical"),
        (["--drop=colour"], "has no column 'colour'; it has 'area', 'rooms'"),
        (["--device=moon"], "device='moon' cannot be used"),
        (["--set=bounds=(500, None)"], "beyond bounds"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path, options, message):
    assert message in fit(houses(20), tmp_path, *options, code=1).stderr


@pytest.mark.parametrize("value", [1e308, -1e200])
def test_a_response_too_large_to_be_squared_is_named(tmp_path, value):
    frame = houses(20)
    frame.loc[3, "price"] = value
    said = fit(frame, tmp_path, code=1).stderr
    assert f"column 'price' holds {value:g}; leave such rows out, or choose a larger unit" in said


def test_tiny_responses_are_fitted_and_scored(tmp_path):
    frame = houses(40)
    fit(frame, tmp_path)
    usual = json.loads(run("evaluate", tmp_path / "m.card", tmp_path / "t.csv", "--json").stdout)
    frame["price"] *= 1e-300
    fit(frame, tmp_path, "--force")
    tiny = json.loads(run("evaluate", tmp_path / "m.card", tmp_path / "t.csv", "--json").stdout)
    for name, change in (("crps", lambda v: v * 1e-300), ("nll_paper", lambda v: v - 300 * np.log(10))):
        scores = [said["targets"]["price"]["card"][name]["value"] for said in (usual, tiny)]
        assert scores[1] == pytest.approx(change(scores[0]), rel=1e-4)


def test_a_column_that_counts_the_rows_is_pointed_out(tmp_path):
    said = fit(houses(40).rename_axis("").reset_index(), tmp_path).stderr
    assert "column 'column 1' counts the rows" in said
    assert "--drop 'column 1' leaves it out" in said


def test_a_column_that_the_model_predicts_from_cannot_be_the_target(model, tmp_path):
    houses(10).to_csv(tmp_path / "t.csv", index=False)
    said = run("evaluate", model, tmp_path / "t.csv", "--target=rooms", code=1).stderr
    assert "'rooms': the model predicts from this column" in said


def test_settings_are_json_or_python_or_text():
    found = settings_of(["a=1", "b=[0, null]", "c=(0, None)", "d=True", "e=count"])
    assert found == {"a": 1, "b": [0, None], "c": (0, None), "d": True, "e": "count"}


def test_counts_and_bounds_reach_the_model(tmp_path):
    frame = houses(40)
    fit(frame, tmp_path, "--set=response=count", target="rooms")
    table = predicted(tmp_path / "m.card", tmp_path / "t.csv", "--quantiles=0.1,0.9")
    assert (table[["q0.1", "q0.9"]] % 1 == 0).all(axis=None)
    fit(frame, tmp_path, "--set=bounds=(0, 400)", "--force")
    bounded = predicted(tmp_path / "m.card", tmp_path / "t.csv", "--quantiles=0.0001,0.9999")
    assert (bounded["q0.0001"] >= 0).all()
    assert (bounded["q0.9999"] <= 400).all()


def test_names_with_brackets_are_printed_as_they_are(tmp_path):
    frame = houses(30).rename(columns={"price": "price [/eur]", "area": "area [m2]"})
    fit(frame, tmp_path, target="price [/eur]")
    assert "price [/eur]" in run("evaluate", tmp_path / "m.card", tmp_path / "t.csv").stdout


def test_a_wrong_cell_is_told_with_its_rows(model, rows, tmp_path):
    rows["area"] = rows["area"].astype(object)
    rows.loc[2, "area"] = "large"
    rows.to_csv(tmp_path / "t.csv", index=False)
    said = run("predict", model, tmp_path / "t.csv", code=1).stderr
    assert "t.csv, rows 1 to 8: column 'area' held numbers at fit; now it holds 'large'" in said


def test_missing_columns_are_told_beside_those_there_are(model, rows, tmp_path):
    rows.rename(columns=str.upper).to_csv(tmp_path / "t.csv", index=False)
    said = run("predict", model, tmp_path / "t.csv", code=1).stderr
    assert "lacks 'area', 'rooms', 'town', 'garden', 'sold', which the model was fitted to" in said
    assert "it has 'AREA', 'ROOMS'" in said


# ------------------------------------------------------------ JSON lines


def write_lines(frame, path):
    """Gaps are left out, as many programs do."""
    records = json.loads(frame.to_json(orient="records", date_format="iso"))
    lines = [json.dumps({k: v for k, v in record.items() if v is not None}) for record in records]
    path.write_text("\n".join(lines))


def test_json_lines_may_leave_gaps_out(model, rows, tmp_path):
    rows["town"] = None
    rows.to_csv(tmp_path / "t.csv", index=False)
    write_lines(rows, tmp_path / "t.jsonl")
    said = run("predict", model, tmp_path / "t.jsonl")
    assert "no row of the first 8 has 'town': taken for gaps" in said.stderr
    np.testing.assert_allclose(
        predicted(model, tmp_path / "t.jsonl")["mean"], predicted(model, tmp_path / "t.csv")["mean"]
    )
    (tmp_path / "other.jsonl").write_text('{"b": 1}\n')
    assert "lacks 'area'" in run("predict", model, tmp_path / "other.jsonl", code=1).stderr


def test_kept_columns_stay_under_their_names_when_rows_differ(model, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("card.app.predict.read_chunks", lambda path, encoding: read_chunks(path, 2, encoding))
    rows["note"] = [None, None, None, "x", *"abcd"]
    write_lines(rows, tmp_path / "t.jsonl")
    said = run("predict", model, tmp_path / "t.jsonl", "--keep", "--out", tmp_path / "p.csv", code=1)
    assert "a later row has a new column 'note'; only JSON lines can hold that" in said.stderr
    run("predict", model, tmp_path / "t.jsonl", "--keep", "--out", tmp_path / "p.jsonl")
    kept = pd.read_json(tmp_path / "p.jsonl", lines=True)
    assert kept["note"].fillna("").tolist() == ["", "", "", "x", *"abcd"]
    pd.testing.assert_series_equal(kept["rooms"], rows["rooms"])
    rows.to_csv(tmp_path / "t.csv", index=False)
    run("predict", model, tmp_path / "t.csv", "--keep", "--out", tmp_path / "p.parquet")
    assert pd.read_parquet(tmp_path / "p.parquet")["note"].fillna("").tolist() == ["", "", "", "x", *"abcd"]


# ------------------------------------------------- in, out, and the rest


def test_standard_input_is_read_as_csv(model, rows, tmp_path):
    text = rows.to_csv(index=False)
    (tmp_path / "t.csv").write_text(text)
    np.testing.assert_array_equal(predicted(model, "-", stdin=text), predicted(model, tmp_path / "t.csv"))
    assert "- is empty" in run("predict", model, "-", stdin="", code=1).stderr


def test_predictions_for_machines_are_json_lines(model, rows, tmp_path):
    rows.to_csv(tmp_path / "t.csv", index=False)
    said = [
        json.loads(line) for line in run("predict", model, tmp_path / "t.csv", "--json").stdout.splitlines()
    ]
    np.testing.assert_allclose(pd.DataFrame(said), predicted(model, tmp_path / "t.csv"))


def test_close_quantiles_have_columns_of_their_own(model, rows, tmp_path):
    rows.to_csv(tmp_path / "t.csv", index=False)
    table = predicted(model, tmp_path / "t.csv", "--quantiles=0.1234561,0.1234562")
    assert list(table) == ["mean", "q0.1234561", "q0.1234562"]


def test_what_is_read_is_never_replaced(model, rows, tmp_path):
    rows.to_csv(tmp_path / "t.csv", index=False)
    for out in (tmp_path / "t.csv", model):
        before = out.read_bytes()
        said = run("predict", model, tmp_path / "t.csv", "--out", out, "--force", code=1)
        assert "is a file that this command reads" in said.stderr
        assert out.read_bytes() == before
    said = fit(houses(20), tmp_path, "--out", tmp_path / "t.csv", "--force", code=1)
    assert "is a file that this command reads" in said.stderr


def test_the_version_is_printed():
    assert run("--version").stdout == f"card-diffusion {card.__version__}\n"


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "explain", "report", "demo"])
def test_help_says_what_every_option_is_for(command):
    text = run(command, "--help").stdout
    assert "<list" not in text
    assert command == "demo" or f"card {command} " in text.replace("Usage: card", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "m", "d"], "Missing option '--row'; see card explain --help"),
        (["explain", "m", "d", "--row=0"], "see card explain --help"),
        (["predict", "m", "d", "--quantiles=5,95"], "--quantiles lie between 0 and 1; got '5,95'"),
        (["frob"], "No such command 'frob'; see card --help"),
    ],
)
def test_wrong_arguments_are_told_in_one_line_too(arguments, message):
    assert message in run(*arguments, code=2).stderr
