"""Four commands from a file to calibrated predictions; what goes wrong is told in one line."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from houses import QUICK_OPTIONS, houses
from labels import Labels
from shell import predicted, run
from typer.testing import CliRunner

import card
from card.checkpoint import Checkpoint
from card.cli import app
from card.train import Loop


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with training rows, new rows and a model."""
    folder = tmp_path_factory.mktemp("houses")
    houses().to_csv(folder / "houses.csv", index=False)
    houses(40, seed=1).to_csv(folder / "new.csv", index=False)
    run("fit", folder / "houses.csv", "--target=price", "--out", folder / "houses.card", *QUICK_OPTIONS)
    return folder


@pytest.fixture
def model(place):
    return place / "houses.card"


@pytest.fixture
def new(place):
    return place / "new.csv"


# ------------------------------------------------------------------ fit


def test_fit_guesses_the_task_and_says_so(place, tmp_path):
    out = run(
        "fit", place / "houses.csv", "--target=price", "--out", tmp_path / "m.card", *QUICK_OPTIONS
    ).stdout
    assert "regression (price holds numbers): 150 rows, 5 columns" in out
    assert card.load(tmp_path / "m.card").target_names_ == ["price"]


def test_fit_speaks_json(place, tmp_path):
    arguments = ("fit", place / "houses.csv", "--target=price", "--out", tmp_path / "m.card", "--json")
    said = json.loads(run(*arguments, *QUICK_OPTIONS).stdout)
    assert (said["task"], said["rows"], said["columns"]) == ("regression", 150, 5)


def test_rows_without_a_response_are_left_out_with_a_warning(tmp_path):
    frame = houses(60)
    frame.loc[:9, "price"] = np.nan
    frame.to_csv(tmp_path / "h.csv", index=False)
    said = run("fit", tmp_path / "h.csv", "--target=price", "--out", tmp_path / "m.card", *QUICK_OPTIONS)
    assert "10 of 60 rows have no 'price' and were left out" in said.stderr
    assert "50 rows" in said.stdout


def test_several_targets_are_predicted_side_by_side(tmp_path):
    frame = houses(60)
    frame["rent"] = frame["price"] / 100
    frame.to_csv(tmp_path / "h.csv", index=False)
    options = [
        "--target=price",
        "--target=rent",
        "--out",
        tmp_path / "m.card",
        *QUICK_OPTIONS,
        "--set=n_draws=20",
    ]
    run("fit", tmp_path / "h.csv", *options)
    table = predicted(tmp_path / "m.card", tmp_path / "h.csv", "--quantiles=0.5")
    assert list(table) == ["price_mean", "price_q0.5", "rent_mean", "rent_q0.5"]
    assert "rent" in run("evaluate", tmp_path / "m.card", tmp_path / "h.csv").stdout
    out = tmp_path / "row.png"
    said = run("explain", tmp_path / "m.card", tmp_path / "h.csv", "--row=2", "--out", out, "--json").stdout
    facts = json.loads(said)
    assert facts["rent"]["mean"] == pytest.approx(table["rent_mean"][1], rel=1e-4)
    assert facts["price"]["observed"] == frame["price"][1]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_response_of_labels_is_classified_from_fit_to_report(tmp_path):
    frame = houses(60)
    frame["cheap"] = np.where(frame["price"] < frame["price"].median(), "yes", "no")
    frame.drop(columns="price").to_csv(tmp_path / "h.csv", index=False)
    model = tmp_path / "m.card"
    options = ["--set=epochs=3", "--set=repeats=1", "--set=cv=2"]
    said = run("fit", tmp_path / "h.csv", "--target=cheap", "--out", model, *options)
    assert "classification (cheap holds labels)" in said.stdout
    table = predicted(model, tmp_path / "h.csv")
    assert list(table) == ["label", "p_no", "p_yes", "piw_no", "piw_yes", "p_value", "certain"]
    assert (table["label"] == frame["cheap"]).mean() > 0.7
    scores = json.loads(run("evaluate", model, tmp_path / "h.csv", "--json").stdout)["targets"]["cheap"]
    assert set(scores) == {"card", "f alone"}
    assert "p_yes" in run("explain", model, tmp_path / "h.csv", "--row=3", "--out", tmp_path / "x.png").stdout
    run("report", model, tmp_path / "h.csv", "--out", tmp_path / "r.html")
    assert "deferring by the confidence of f alone" in (tmp_path / "r.html").read_text()
    with zipfile.ZipFile(model) as archive:
        assert "rows held out at fit" in archive.read("README.md").decode()


# -------------------------------------------------------------- predict


def test_predictions_have_a_line_for_each_row_and_the_promised_columns(model, new):
    table = predicted(model, new, "--quantiles=0.05,0.5,0.95", "--interval=0.9")
    assert list(table) == ["mean", "q0.05", "q0.5", "q0.95", "lower", "upper"]
    assert len(table) == 40
    np.testing.assert_allclose(table[["lower", "upper"]], table[["q0.05", "q0.95"]], rtol=1e-5)


def test_the_command_line_says_what_the_library_says(model, new):
    frame = houses(40, seed=1).drop(columns="price")
    distribution = card.load(model).predict_distribution(frame)
    table = predicted(model, new, "--quantiles=0.25")
    np.testing.assert_allclose(table["mean"], distribution.mean(), rtol=1e-5)
    np.testing.assert_allclose(table["q0.25"], distribution.quantile(0.25), rtol=1e-5)


def test_order_grouping_and_format_of_the_rows_change_nothing(model, tmp_path):
    frame = houses(30, seed=2)
    (tmp_path / "a.csv").write_text(frame.to_csv(index=False))
    expected = predicted(model, tmp_path / "a.csv")["mean"].to_numpy()

    def means(changed, name="b.csv"):
        path = tmp_path / name
        {"csv": lambda: changed.to_csv(path, index=False), "parquet": lambda: changed.to_parquet(path)}[
            name.split(".")[1]
        ]()
        return predicted(model, path)["mean"].to_numpy()

    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(means(frame[frame.columns[::-1]]), expected, **close)
    np.testing.assert_allclose(means(frame[::-1])[::-1], expected, **close)
    np.testing.assert_allclose(means(frame, "b.parquet"), expected, **close)
    for i in (0, 7, 29):
        np.testing.assert_allclose(means(frame[i : i + 1]), expected[i : i + 1], **close)


def test_a_file_with_one_town_only_is_predicted_as_in_the_full_file(model, tmp_path):
    frame = houses(60, seed=3)
    frame.to_csv(tmp_path / "all.csv", index=False)
    only = frame["town"] == "Köln"
    frame[only].to_csv(tmp_path / "only.csv", index=False)
    everything = predicted(model, tmp_path / "all.csv")[only.to_numpy()]
    np.testing.assert_allclose(predicted(model, tmp_path / "only.csv")["mean"], everything["mean"], rtol=1e-4)


def test_long_files_go_through_in_chunks(model, tmp_path, monkeypatch):
    monkeypatch.setattr("card.files.CHUNK_ROWS", 7)
    frame = houses(20, seed=4)
    frame.to_csv(tmp_path / "a.csv", index=False)
    from card.app import predict as module
    from card.files import read_chunks

    whole = predicted(model, tmp_path / "a.csv")
    monkeypatch.setattr(module, "read_chunks", lambda path, encoding: read_chunks(path, 7, encoding))
    np.testing.assert_allclose(predicted(model, tmp_path / "a.csv"), whole, rtol=1e-4)


def test_unknown_columns_are_ignored_with_a_warning_and_missing_ones_named(model, tmp_path):
    frame = houses(5)
    frame.assign(colour="red").to_csv(tmp_path / "more.csv", index=False)
    assert "ignored: 'colour'" in run("predict", model, tmp_path / "more.csv").stderr
    frame.drop(columns="town").to_csv(tmp_path / "less.csv", index=False)
    assert "lacks 'town'" in run("predict", model, tmp_path / "less.csv", code=1).stderr


def test_keep_puts_the_input_first_and_defuses_formulas(model, tmp_path):
    frame = houses(3).drop(columns="price").assign(note=["=1+1", "plain", "@x"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    out = tmp_path / "p.csv"
    run("predict", model, tmp_path / "a.csv", "--keep", "--quantiles=0.5", "--out", out)
    table = pd.read_csv(out)
    assert list(table) == [*frame.columns, "mean", "q0.5"]
    assert table["note"].tolist() == ["'=1+1", "plain", "'@x"]


def test_draws_are_repeatable_and_differ_between_rows(model, new):
    a = predicted(model, new, "--draws=3", "--seed=5")
    assert list(a) == ["mean", "draw_1", "draw_2", "draw_3"]
    pd.testing.assert_frame_equal(a, predicted(model, new, "--draws=3", "--seed=5"))
    assert not np.allclose(a, predicted(model, new, "--draws=3", "--seed=6"))


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz", "jsonl", "parquet", "feather"])
def test_predictions_are_written_in_any_format(model, new, tmp_path, suffix):
    from card.files import read_frame

    out = tmp_path / f"p.{suffix}"
    assert f"40 predictions in {out}" in run("predict", model, new, "--out", out).stdout
    assert read_frame(out).shape == (40, 4)


# -------------------------------------------------------------- classes


@pytest.fixture
def ripe(tmp_path, monkeypatch):
    """A file of labelled rows, and a classifier in the place of the model."""
    for module in ("predict", "evaluate", "explain", "report"):
        monkeypatch.setattr(f"card.app.{module}.load_model", lambda path: Labels())
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"b": rng.normal(size=60), "a": rng.normal(0, 2, 60)})
    frame["ripe"] = np.where(rng.random(60) < 1 / (1 + np.exp(-frame["a"])), "yes", "no")
    frame.to_csv(tmp_path / "fruit.csv", index=False)
    return tmp_path / "fruit.csv"


def test_predicted_classes_have_the_promised_columns(ripe):
    table = predicted("model", ripe)
    assert list(table) == ["label", "p_no", "p_yes", "piw_no", "piw_yes", "p_value", "certain"]
    np.testing.assert_allclose(table["p_no"] + table["p_yes"], 1)
    assert ((table["label"] == "yes") == (table["p_yes"] > 0.5)).all()


def test_classes_are_evaluated_explained_and_reported(ripe, tmp_path):
    said = json.loads(run("evaluate", "model", ripe, "--json").stdout)["targets"]["ripe"]
    assert set(said["card"]) == {"accuracy", "nll_proba", "brier", "ece", "mce", "aurc", "pavpu"}
    assert said["card"]["accuracy"]["value"] > said["f alone"]["accuracy"]["value"]
    out = tmp_path / "x.png"
    said = run("explain", "model", ripe, "--row=3", "--out", out).stdout
    row = pd.read_csv(ripe).iloc[2]
    p = 1 / (1 + np.exp(-row["a"]))
    assert re.search(rf"p_yes  █+.? +{p:.4f}   piw {1 - p:.4f}", said)
    assert f"predicted {'yes' if p > 0.5 else 'no'}; observed {row['ripe']}; p-value" in said
    assert out.read_bytes().startswith(b"\x89PNG")
    facts = json.loads(run("explain", "model", ripe, "--row=3", "--out", out, "--force", "--json").stdout)
    assert facts["p_yes"] == pytest.approx(p)
    assert facts["observed"] == row["ripe"]
    run("report", "model", ripe, "--out", tmp_path / "r.html")
    assert "Who should look at what" in (tmp_path / "r.html").read_text()


def test_labels_that_the_model_does_not_know_are_named(ripe):
    ripe.write_text(ripe.read_text().replace("yes", "perhaps"))
    assert "labels the model does not know: perhaps" in run("evaluate", "model", ripe, code=1).stderr


# ------------------------------------------- evaluate, explain, report


def test_evaluate_prints_every_metric_beside_the_mean_model(model, new):
    out = run("evaluate", model, new).stdout
    for metric in ("rmse", "crps", "nll", "nll_paper", "picp", "piw", "qice"):
        assert metric in out
    said = json.loads(run("evaluate", model, new, "--json").stdout)
    y = houses(40, seed=1)["price"].to_numpy()
    mean = card.load(model).predict(houses(40, seed=1).drop(columns="price"))
    rmse = said["targets"]["price"]["card"]["rmse"]
    assert rmse["value"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-4)
    assert rmse["error"] > 0
    assert set(said["targets"]["price"]) == {"card", "f alone"}


def test_evaluate_asks_for_the_target_when_it_is_absent(model, tmp_path):
    houses(5).drop(columns="price").to_csv(tmp_path / "a.csv", index=False)
    assert "has no column 'price'" in run("evaluate", model, tmp_path / "a.csv", code=1).stderr


def test_explain_sketches_the_density_and_writes_a_picture(model, new, tmp_path):
    out = tmp_path / "row.png"
    said = run("explain", model, new, "--row=17", "--out", out).stdout
    assert "█" in said
    row = houses(40, seed=1).iloc[16:17]
    assert f"observed  {row['price'].iloc[0]:.6g}" in said
    mean = card.load(model).predict(row.drop(columns="price"))[0]
    facts = json.loads(run("explain", model, new, "--row=17", "--out", out, "--force", "--json").stdout)
    assert facts["mean"] == pytest.approx(mean, rel=1e-4)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_explain_says_when_there_is_no_such_row(model, new, tmp_path):
    said = run("explain", model, new, "--row=41", "--out", tmp_path / "r.png", code=1)
    assert "has 40 rows; there is no row 41" in said.stderr


def test_report_is_written_where_asked(model, new, tmp_path):
    out = tmp_path / "report.html"
    assert "report on 40 rows" in run("report", model, new, "--out", out).stdout
    assert out.read_text().startswith("<!doctype html>")


# -------------------------------------------------------- what goes wrong


HOSTILE = {
    "empty": (b"", "is empty"),
    "header only": (b"area,price\n", "has a header but no rows"),
    "one column": (b"price\n1\n2\n3\n4\n5\n", "no column besides 'price'"),
    "ragged": (b"area,price\n1,2\n1,2,3\n", "line 3: 3 cells"),
    "wrong encoding": ("area,price\nä,2\n".encode("latin-1"), "say --encoding"),
    "target absent": (b"area,cost\n1,2\n", "has no column 'price'"),
    "target missing": (b"area,price\n1,\n2,\n", "no values at all"),
    "binary": (bytes(range(256)) * 9, "is a binary file"),
    "target infinite": (b"area,price\n1,1e999\n2,3\n5,2\n1,2\n", "infinite"),
    "too few rows": (b"area,price\n1,1.5\n2,3\n", "minimum of 4"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_training_files_are_refused_and_nothing_is_written(tmp_path, case):
    content, message = HOSTILE[case]
    (tmp_path / "h.csv").write_bytes(content)
    said = run(
        "fit", tmp_path / "h.csv", "--target=price", "--out", tmp_path / "m.card", *QUICK_OPTIONS, code=1
    )
    assert message in said.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["h.csv"]


def test_extreme_values_are_worked_with(tmp_path):
    frame = houses(60)
    frame.loc[0, "area"], frame.loc[1, "area"] = 1e308, 1e-308
    frame.to_csv(tmp_path / "h.csv", index=False)
    run("fit", tmp_path / "h.csv", "--target=price", "--out", tmp_path / "m.card", *QUICK_OPTIONS)
    assert np.isfinite(predicted(tmp_path / "m.card", tmp_path / "h.csv")).all(axis=None)


def test_ten_thousand_columns_are_worked_with(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 9, (20, 10_000))).add_prefix("c")
    X.assign(price=rng.normal(size=20)).to_csv(tmp_path / "wide.csv", index=False)
    run("fit", tmp_path / "wide.csv", "--target=price", "--out", tmp_path / "m.card", *QUICK_OPTIONS)
    assert len(predicted(tmp_path / "m.card", tmp_path / "wide.csv")) == 20


def test_model_and_data_in_each_others_place_are_told_apart(model, new, place, tmp_path):
    assert "not a card model file" in run("predict", new, new, code=1).stderr
    assert "unknown kind of file" in run("predict", model, model, code=1).stderr
    disguised = tmp_path / "model.csv"
    disguised.write_bytes(model.read_bytes())
    assert "is a zip or model file" in run("predict", model, disguised, code=1).stderr
    assert "no such model file" in run("predict", place / "none.card", new, code=1).stderr


@pytest.mark.parametrize("command", ["fit", "predict", "explain", "report", "demo"])
def test_nothing_is_replaced_without_force(model, new, tmp_path, command):
    out = tmp_path / "precious.csv"
    out.write_text("precious")
    arguments = {
        "fit": [new, "--target=price"],
        "predict": [model, new],
        "explain": [model, new, "--row=1"],
        "report": [model, new],
        "demo": [],
    }[command]
    assert "--force replaces it" in run(command, *arguments, "--out", out, code=1).stderr
    assert out.read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict"],
        ["predict", "m", "d", "--quantiles=0.5,2"],
        ["predict", "m", "d", "--quantiles=half"],
        ["predict", "m", "d", "--interval=90"],
        ["fit", "d", "--target=y", "--out=m", "--task=dance"],
        ["fit", "d", "--target=y", "--out=m", "--recipe=soup"],
        ["fit", "d", "--target=y", "--out=m", "--set=epochs"],
        ["explain", "m", "d", "--row=0"],
        ["fit", "d", "--target=y", "--out=m", "--jobs=0"],
        ["fit", "d", "--target=y", "--out=m", "--seed=-1"],
        ["unheard-of"],
    ],
)
def test_wrong_arguments_have_exit_code_2(arguments):
    run(*arguments, code=2)


def test_an_unknown_setting_is_named(place, tmp_path):
    said = run(
        "fit",
        place / "houses.csv",
        "--target=price",
        "--out",
        tmp_path / "m.card",
        "--set=colour=red",
        code=1,
    )
    assert "no setting named 'colour'" in said.stderr


def test_debug_shows_the_traceback(model):
    result = CliRunner().invoke(app, ["predict", str(model), "none.csv", "--debug"])
    assert isinstance(result.exception, ValueError)


def test_bench_belongs_to_the_command_line():
    assert "card bench" in run("bench", "--help").stdout


def test_help_does_not_wait_for_torch():
    code = "import sys, card.cli; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def interrupted(folder: Path, pattern: str, *arguments, code: str = "pass") -> str:
    """What a command says on standard error when Ctrl-C comes as soon as the folder has such a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; from card.cli import main; main()", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob(pattern)) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    return stderr


def test_ctrl_c_leaves_no_half_written_file(model, tmp_path):
    """The command is interrupted while it writes the predictions of a long file."""
    long, out = tmp_path / "long.csv", tmp_path / "p.csv"
    pd.concat([houses(150)] * 200).to_csv(long, index=False)
    said = interrupted(tmp_path, ".p.csv*.part", "predict", model, long, "--out", out)
    assert said == "card: interrupted; nothing was written\n"
    assert [p.name for p in tmp_path.iterdir()] == ["long.csv"]


def test_ctrl_c_while_a_model_is_saved_leaves_the_old_one(place, tmp_path, monkeypatch):
    def half(self, path):
        path.write_bytes(b"half a mod")
        raise KeyboardInterrupt

    out = tmp_path / "m.card"
    out.write_text("the old one")
    monkeypatch.setattr("card.CARDRegressor.save", half)
    arguments = ["fit", place / "houses.csv", "--target=price", "--out", out, "--force", *QUICK_OPTIONS]
    assert run(*arguments, code=1).stderr == "card: interrupted; nothing was written\n"
    assert [p.name for p in tmp_path.iterdir()] == ["m.card"]
    assert out.read_text() == "the old one"


def test_ctrl_c_in_the_middle_of_a_fit_leaves_no_model_and_says_how_to_go_on(place, tmp_path):
    often = "import card.checkpoint as c; c.Checkpoint.__init__.__defaults__ = (0.0,)"  # after every epoch
    folder, out = tmp_path / "halfway", tmp_path / "m.card"
    options = ["--target=price", "--out", out, "--checkpoint", folder, "--set=mean=zero", "--set=epochs=5000"]
    said = interrupted(folder, "[!.]*", "fit", place / "houses.csv", *options, code=often)
    assert said == f"card: interrupted; the same command continues from {folder}\n"
    assert [p.name for p in tmp_path.iterdir()] == ["halfway"]


def test_an_interrupted_fit_goes_on_from_its_checkpoint_to_the_model_of_an_unbroken_one(
    place, tmp_path, monkeypatch
):
    data, folder = place / "houses.csv", tmp_path / "halfway"
    command = ["fit", data, "--target=price", "--seed=0", "--set=mean=zero", "--set=epochs=36", "--out"]
    run(*command, tmp_path / "unbroken.card")

    epochs, judge = [], Loop.judge  # which looks at the held-out rows every six epochs

    def counted(self, held_out):
        epochs.append(self.epoch)
        if epochs == [6, 12, 18]:
            raise KeyboardInterrupt
        return judge(self, held_out)

    monkeypatch.setattr(Checkpoint.__init__, "__defaults__", (0.0,))
    monkeypatch.setattr(Loop, "judge", counted)
    broken = [*command, tmp_path / "broken.card", "--checkpoint", folder]
    assert "the same command continues" in run(*broken, code=1).stderr
    run(*broken)
    assert epochs == [6, 12, 18, 18, 24, 30, 36]
    answers = [run("predict", tmp_path / f"{name}.card", data).stdout for name in ("unbroken", "broken")]
    assert answers[0] == answers[1]
