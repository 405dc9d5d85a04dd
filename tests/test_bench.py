"""The harness: experiments as values, reports that survive, tables as functions of reports."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import joblib
import numpy as np
import pytest
import torch
from joblib._parallel_backends import ThreadingBackend
from safetensors.torch import save
from typer.testing import CliRunner

from card.bench import bars, catalog, figures, luck, reports, reproduction, runner, score, tables
from card.bench.availability import missing_data
from card.bench.class_tables import by_class, cifar10_ablation, classification, sizes
from card.bench.cli import app
from card.bench.cluster import n_workers
from card.bench.errors import BenchError
from card.bench.execute import built
from card.bench.experiments import build, load, parse_indices
from card.bench.kinds import KINDS, TOYS, UCI, Data
from card.bench.ledger import Ledger
from card.bench.meter import Meter, costs
from card.bench.render import Table, render
from card.bench.reports import append, identity, read, repair
from card.bench.shelf import Clock, digest
from card.bench.snapshots import Snapshots, _as_of
from card.bench.spec import narrow
from card.bench.summary import Cell, paper, summarise
from card.checkpoint import write_atomically
from card.classifier import CARDClassifier
from card.datasets import Images, make_toy
from card.distribution import Draws
from card.metrics import crps, nll_paper

TESTS = Path(__file__).parent
ROOT = TESTS.parent
BELL = "bench_methods:Bell"


@pytest.fixture
def experiment(tmp_path):
    """Three splits of Yacht with a method that takes no time."""
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0-2", "methods": [BELL]}
    return build("tiny", raw, source="tiny.toml")


def card_bench(*words: str, cwd: Path, **environment: str) -> subprocess.Popen:
    """The command line in a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "card.bench.cli", *words]
    return subprocess.Popen(
        command, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def without_seconds(path: Path) -> list[dict]:
    """Reports in a fixed order, without what differs from one run to the next."""
    found = [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in read(path)]
    return sorted(found, key=lambda report: str(identity(report)))


# ---------------------------------------------------------------- experiments


def test_every_experiment_file_of_the_repository_loads_in_full_and_quick_form():
    files = sorted((ROOT / "experiments").glob("*.toml"))
    assert {"uci", "toy", "boston-ablation"} <= {path.stem for path in files}
    for path in files:
        assert load(path).units()
        assert len(load(path, quick=True).units()) <= len(load(path).units())


def test_units_are_the_product_of_data_sets_variants_methods_and_splits():
    raw = {
        "kind": "uci",
        "datasets": ["yacht", "boston"],
        "splits": "0-1",
        "methods": ["card", BELL],
        "recipe": "paper",
        "overrides": [{"recipe": "paper", "dataset": "boston", "set": {"epochs": 7}}],
        "variants": [{"name": "a", "set": {}}],
    }
    units = build("x", raw).units()
    assert len(units) == 8
    assert len(set(units)) == 8
    epochs = {(u.dataset, u.method): dict(u.overrides).get("epochs") for u in units}
    assert epochs[("boston", "card")] == 7
    assert epochs[("yacht", "card")] is None
    assert {u.recipe for u in units if u.method == BELL} == {"default"}, "a method without recipes has one"


def test_a_later_override_wins_and_none_can_be_said():
    raw = {
        "kind": "uci",
        "datasets": ["yacht"],
        "splits": 0,
        "overrides": [{"set": {"epochs": 1, "cv": "none"}}, {"set": {"epochs": 2}}],
    }
    (unit,) = build("x", raw).units()
    assert dict(unit.overrides) == {"epochs": 2, "cv": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": ["yacht"]}, "t.toml: unknown key 'dataset'; did you mean 'datasets'?"),
        ({"datasets": ["yaht"]}, "t.toml: unknown data set 'yaht'; did you mean 'yacht'?"),
        ({"kind": "uki"}, "t.toml: unknown kind 'uki'; did you mean 'uci'?"),
        ({"methods": ["cart"]}, "t.toml: unknown method 'cart'; did you mean 'card'?"),
        ({"recipe": "papers"}, "t.toml: unknown recipe of card 'papers'; did you mean 'paper'?"),
        ({"splits": "0-99"}, "t.toml: unknown split 20 of yacht, which has splits 0-19; the nearest is 19"),
        (
            {"splits": "zero"},
            "t.toml: cannot read splits 'zero'; write numbers and spans such as 0-4,7, or all",
        ),
        ({"splits": 1.5}, "t.toml: key 'splits' wants text or a list or a number, not 1.5"),
        ({"seeds": "0"}, "t.toml: key 'seeds' is not for kind 'uci'; write 'splits'"),
        (
            {"overrides": [{"set": {"epoch": 3}}]},
            "t.toml: unknown parameter 'epoch'; did you mean 'epochs'?",
        ),
        (
            {"overrides": [{"recipe": "paper", "dataset": "boston", "set": {"batchsize": 32}}]},
            "t.toml: unknown parameter 'batchsize'; did you mean 'batch_size'?",
        ),
        (
            {"overrides": [{"method": "gcds", "set": {"hiden": [50]}}]},
            "t.toml: unknown parameter of gcds 'hiden'; did you mean 'hidden'?",
        ),
        (
            {"overrides": [{"datset": "yacht", "set": {}}]},
            "t.toml: unknown key 'overrides.datset'; did you mean 'overrides.dataset'?",
        ),
        (
            {"overrides": [{"epochs": 3}]},
            "t.toml: each of 'overrides' wants a table with set = { parameter = value }",
        ),
        ({"arrays": [{"keep": "scater"}]}, "t.toml: unknown arrays.keep 'scater'; did you mean 'scatter'?"),
        ({"quick": {"split": "0"}}, "t.toml: unknown key 'quick.split'; did you mean 'quick.splits'?"),
        (
            {"overrides": [{"recipe": "papr", "set": {}}]},
            "t.toml: unknown recipe 'papr'; did you mean 'paper'?",
        ),
        (
            {"rescore": [{"name": "a", "set": {"epochs": 3}}]},
            "t.toml: 'rescore' can set what the fit does not depend on, "
            "sampler, n_evaluations, n_nodes, n_draws; not 'epochs'",
        ),
        (
            {"overrides": [{"set": {"epochs": -3}}]},
            "t.toml: The 'epochs' parameter of CARDRegressor must be an int in the range [1, inf) or None. "
            "Got -3 instead.",
        ),
        (
            {"rescore": [{"name": "a", "set": {"sampler": "ddim"}}]},
            "t.toml: sampler='ddim' walks the paper's time steps and needs denoiser='table'; "
            "for 'unit' choose 'flow', 'multistep' or 'multistep-sde'.",
        ),
        ({"datasets": []}, "t.toml: name a data set"),
        ({"splits": []}, "t.toml: name a split"),
        ({"overrides": [{"method": 3, "set": {}}]}, "t.toml: key 'method' wants text, not 3"),
        (
            {"variants": [{"name": "a", "set": {}}, {"name": "a", "set": {}}]},
            "t.toml: variants want names of their own, as text; one is 'a'",
        ),
        ({"rescore": [{"set": {"sampler": "ddim"}}]}, "t.toml: key 'name' is missing; add name = ..."),
    ],
)
def test_a_mistake_in_an_experiment_is_told_with_file_key_and_remedy(change, message):
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0", **change}
    with pytest.raises(BenchError) as caught:
        build("t", raw, source="t.toml")
    assert str(caught.value) == message


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("kind = = 3")
    with pytest.raises(BenchError, match=r"bad\.toml: not a TOML file"):
        load(path)
    with pytest.raises(BenchError, match="key 'datasets' is missing; add datasets"):
        build("t", {"kind": "uci"}, source="t.toml")


def test_spans_of_splits_are_read_as_people_write_them():
    kind = KINDS["uci"]
    assert parse_indices("0-3,7", kind) == (0, 1, 2, 3, 7)
    assert parse_indices([2, 2, 0], kind) == (2, 0)
    assert parse_indices("all", kind) is None


# --------------------------------------------------------------------- reports


def report(dataset="yacht", split=0, method="card", recipe="modern", seconds=1.0, **metrics) -> dict:
    return {
        "dataset": dataset,
        "split": split,
        "method": method,
        "recipe": recipe,
        "seed": split,
        "seconds_fit": seconds,
        "seconds_predict": 0.5,
        "metrics": metrics,
    }


def test_a_place_named_in_other_letters_is_the_same_place():
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0"}
    (unit,) = build("t", {**raw, "overrides": [{"dataset": "Yacht", "set": {"epochs": 3}}]}).units()
    assert dict(unit.overrides) == {"epochs": 3}


def test_a_report_is_written_once_whoever_finishes_it_again(tmp_path):
    path = tmp_path / "results" / "uci.jsonl"
    assert append(path, [report(rmse=1.0), report(split=1, rmse=2.0)]) == 2
    assert append(path, [report(rmse=9.0), report(recipe="paper", rmse=3.0)]) == 1
    assert [r["metrics"]["rmse"] for r in read(path)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "tail",
    [
        *(b'{"dataset": "bos', b'{"dataset": "boston"\n', b"\x00\x00\x00", b"12\n", b"{}\n", b"{\n\n"),
        *(b"\x00\n\x00\n", b'{"dataset": "boston", "method": "card", "recipe": "paper"}\n'),
    ],
)
def test_a_damaged_last_line_is_reported_and_repaired_without_losing_the_others(tmp_path, tail):
    path = tmp_path / "uci.jsonl"
    append(path, [report(split=i) for i in range(3)])
    sound = path.read_bytes()
    path.write_bytes(sound + tail)
    with pytest.warns(reports.DamagedReportWarning, match="the last line is damaged"):
        assert len(read(path)) == 3
    assert path.read_bytes() == sound + tail, "reading changes nothing"
    assert "its unit will run again" in str(repair(path))
    assert path.read_bytes() == sound
    assert repair(path) is None


def test_appending_mends_what_a_dead_writer_left(tmp_path):
    path = tmp_path / "uci.jsonl"
    append(path, [report(split=0)])
    path.write_bytes(path.read_bytes() + b'{"dataset": ')
    with pytest.warns(reports.DamagedReportWarning, match="removed it"):
        append(path, [report(split=1)])
    assert [r["split"] for r in read(path)] == [0, 1]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "uci.jsonl"
    append(path, [report(split=0)])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    append(path, [report(split=1)])
    assert [r["split"] for r in read(path)] == [0, 1]


def test_damage_before_the_last_line_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "uci.jsonl"
    append(path, [report(split=0)])
    path.write_bytes(b"<<<<<<< HEAD\n" + path.read_bytes())
    with pytest.raises(BenchError, match="line 1 is not a report"):
        read(path)


WRITER = """
import sys
from pathlib import Path
from card.bench.reports import append
name = sys.argv[2]
for i in range(60):
    one = {"dataset": name, "split": i, "method": "m", "recipe": "r", "metrics": {}, "pad": "x" * 3000}
    append(Path(sys.argv[1]), [one])
    append(Path(sys.argv[1]), [{**one, "dataset": "shared"}])
"""


def test_processes_that_append_to_one_file_leave_every_line_whole_and_none_twice(tmp_path):
    path = tmp_path / "uci.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = read(path)
    assert len(found) == 4 * 60
    assert len({identity(r) for r in found}) == 4 * 60


# ---------------------------------------------------------------------- runner


def test_a_run_reports_each_unit_once_with_the_fields_that_tables_read(experiment, tmp_path):
    summary = runner.run(experiment, tmp_path)
    assert (summary.ran, summary.done_before) == (3, 0)
    found = read(tmp_path / "tiny.jsonl")
    assert [r["split"] for r in found] == [0, 1, 2]
    fields = {"rmse", "nll", "nll_paper", "crps", "qice", "picp", "piw"}
    for one in found:
        assert set(one["metrics"]) == fields
        assert {"dataset", "method", "recipe", "seed", "seconds_fit", "seconds_predict", "version"} <= set(
            one
        )
        assert {"config", "versions", "hardware"} <= set(one)
        assert one["config"]["rows"] == [277, 31]
    again = runner.run(experiment, tmp_path)
    assert (again.ran, again.done_before) == (0, 3)


def test_the_metrics_of_a_gaussian_are_those_of_its_closed_forms(experiment, tmp_path):
    runner.run(experiment, tmp_path)
    one = read(tmp_path / "tiny.jsonl")[0]["metrics"]
    data = KINDS["uci"].load("yacht", 0, "default")
    mean, scale = data.y_train.mean(), data.y_train.std()
    z = (data.y_test - mean) / scale
    assert one["rmse"] == pytest.approx(np.sqrt(np.mean((data.y_test - mean) ** 2)))
    assert one["nll"] == pytest.approx(np.mean(0.5 * z**2) + np.log(scale) + 0.5 * np.log(2 * np.pi))
    assert one["picp"] == pytest.approx(100 * np.mean(np.abs(z) <= 1.959964))
    assert one["piw"] == pytest.approx(2 * 1.959964 * scale, rel=1e-6)
    from scipy.stats import norm

    crps = scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert one["crps"] == pytest.approx(crps.mean(), rel=1e-4)


def test_parallel_workers_give_the_reports_of_one_process(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    runner.run(experiment, tmp_path / "one")
    runner.run(experiment, tmp_path / "two", jobs=2)
    assert without_seconds(tmp_path / "one/tiny.jsonl") == without_seconds(tmp_path / "two/tiny.jsonl")


def test_a_unit_that_fails_is_told_and_the_rest_goes_on(tmp_path):
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0-3", "methods": ["bench_methods:Broken"]}
    summary = runner.run(build("tiny", raw), tmp_path)
    assert summary.ran == 2
    assert [(f.unit.index, f.error) for f in summary.failures] == [
        (1, "RuntimeError: this split is cursed"),
        (3, "RuntimeError: this split is cursed"),
    ]


def test_missing_data_is_not_a_failure(tmp_path, monkeypatch):
    def absent(name):
        raise FileNotFoundError(name)

    monkeypatch.setattr("card.datasets.load_uci", absent)
    raw = {"kind": "uci", "datasets": ["year"], "splits": "0", "methods": [BELL]}
    summary = runner.run(build("tiny", raw), tmp_path)
    assert summary.missing == {"year": 1}
    assert not summary.failures
    assert not (tmp_path / "tiny.jsonl").exists()


def test_data_that_are_not_there_are_asked_for_once(tmp_path, monkeypatch):
    asked = []

    def absent(name):
        asked.append(name)
        raise FileNotFoundError(name)

    monkeypatch.setattr("card.datasets.load_image", absent)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    raw = {"kind": "image", "datasets": ["cifar100", "imagenet"], "seeds": "0-4"}
    summary = runner.run(build("tiny", raw), tmp_path)
    assert summary.missing == {"cifar100": 5, "imagenet": 5}
    assert asked == ["cifar100"]


def test_imagenet_is_run_from_folders_of_pictures_where_there_are_any(tmp_path, monkeypatch):
    pictures = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    assert "imagenet100" in missing_data()
    for part, shade in itertools.product(("train", "val"), (10, 200)):
        folder = tmp_path / "imagenet100" / part / f"n{shade}"
        folder.mkdir(parents=True)
        pictures.new("RGB", (70, 80), (shade, 0, 0)).save(folder / "one.png")
    assert "imagenet100" not in missing_data()
    data = KINDS["image"].load("imagenet100", 0, "modern")
    assert data.X_train.shape == (2, 3, 64, 64)
    assert data.y_test.tolist() == [0, 1]


def test_a_unit_done_with_other_settings_is_not_taken_for_done(experiment, tmp_path):
    runner.run(experiment, tmp_path)
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0", "methods": [BELL]}
    other = build("tiny", {**raw, "overrides": [{"set": {"width": 2.0}}]})
    with pytest.raises(BenchError, match="with other settings"):
        runner.run(other, tmp_path)


def test_units_that_differ_in_nothing_but_the_split_are_fitted_together():
    raw = {"kind": "uci", "datasets": ["yacht", "boston"], "splits": "0-4", "recipe": "paper"}
    sizes = [len(batch) for batch in runner.batches(build("x", raw).units(), together=4)]
    assert sizes == [4, 1, 4, 1]
    assert [len(b) for b in runner.batches(build("x", {**raw, "methods": [BELL]}).units(), 4)] == [1] * 10


def test_the_papers_recipe_is_fitted_together_unless_told_otherwise_and_shared_out_among_workers():
    raw = {"kind": "uci", "datasets": ["boston"], "splits": "all", "recipe": "paper"}
    units = build("x", raw).units()
    assert [len(batch) for batch in runner.batches(units)] == [20]
    assert [len(batch) for batch in runner.batches(units, jobs=2)] == [10, 10]
    assert [len(batch) for batch in runner.batches(units, together=1)] == [1] * 20
    modern = build("x", {**raw, "recipe": "modern"}).units()
    assert [len(batch) for batch in runner.batches(modern, together=4)] == [1] * 20, (
        "its folds are its members"
    )


def test_toys_of_equal_settings_are_fitted_together_seeds_and_all():
    groups = runner.batches(load(ROOT / "experiments/toy.toml").units())
    names = [({unit.dataset for unit in batch}, len(batch)) for batch in groups]
    alike = {"log_log_linear", "sinusoidal", "inverse_sinusoidal", "eight_gaussians", "full_circle"}
    assert [size for toys, size in names if toys <= alike] == [20, 20, 10]
    assert ({"linear"}, 10) in names, "its f is smaller"
    assert len(names) == 6


SHORT = {"epochs": 2, "n_steps": 10, "beta_T": 0.5, "mean_epochs": 2, "n_draws": 20, "width": 8}


def test_toys_fitted_together_are_those_fitted_alone(tmp_path):
    raw = {"kind": "toy", "datasets": ["sinusoidal", "full_circle"], "seeds": "0", "recipe": "paper"}
    short = {**SHORT, "epochs": 1, "mean_epochs": 1, "batch_size": 2048, "mean_patience": "none"}
    small = build("x", {**raw, "overrides": [{"set": short}]})
    runner.run(small, tmp_path / "alone", together=1)
    runner.run(small, tmp_path / "together")
    alone, both = (read(tmp_path / name / "x.jsonl") for name in ("alone", "together"))
    assert [r["config"]["together"] for r in alone + both] == [1, 1, 2, 2]
    for a, b in zip(alone, both, strict=True):
        assert a["metrics"] == pytest.approx(b["metrics"], rel=1e-4)


def test_splits_of_the_papers_recipe_fitted_together_are_those_fitted_alone(tmp_path):
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0-1", "recipe": "paper"}
    small = build("x", {**raw, "overrides": [{"set": SHORT}]})
    runner.run(small, tmp_path / "alone", together=1)
    runner.run(small, tmp_path / "together")
    alone, both = (read(tmp_path / name / "x.jsonl") for name in ("alone", "together"))
    for a, b in zip(alone, both, strict=True):
        assert a["metrics"] == pytest.approx(b["metrics"], rel=1e-4)
        assert set(a["mean_model"]) == {"rmse", "crps", "nll"}
    left = {path.name for path in (tmp_path / "together/checkpoints").iterdir()}
    assert left == {"claims"}, "a finished fit leaves no checkpoint"


def test_boston_walks_the_papers_chain_and_the_rest_may_take_fewer_steps():
    uci, toys = (narrow(load(ROOT / f"experiments/{name}.toml"), recipe="paper") for name in ("uci", "toy"))
    settings = {unit.dataset: dict(unit.overrides) for unit in uci.units() + toys.units()}
    samplers = {name: built(unit).sampler for unit in uci.units() + toys.units() for name in [unit.dataset]}
    assert {name for name, sampler in samplers.items() if sampler == "ancestral"} == {"boston"}
    rest = samplers.keys() - {"boston"}
    assert {samplers[name] for name in rest & TOYS.keys()} == {"short-chain-to-1"}
    assert {samplers[name] for name in rest - TOYS.keys()} == {"short-chain"}
    assert {settings[name]["n_evaluations"] for name in rest} == {64, 80}
    assert {built(unit).n_draws for unit in uci.units() if unit.dataset != "year"} == {1000}
    assert {name for unit in uci.units() if unit.dataset == "boston" for name, _ in unit.rescore} == {
        "short-chain 80",
        "short-chain 64",
        "multistep-sde 80",
        "multistep 40",
    }


def test_a_fit_is_scored_by_other_samplers_too(tmp_path):
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0", "recipe": "paper"}
    short, quick = {**SHORT, "n_draws": 50}, {"sampler": "multistep", "n_evaluations": 5}
    again = [{"name": "same", "set": {}}, {"name": "quick", "set": quick}]
    runner.run(build("x", {**raw, "overrides": [{"set": short}], "rescore": again}), tmp_path)
    (one,) = read(tmp_path / "x.jsonl")
    assert one["rescored"]["same"]["metrics"] == one["metrics"]
    assert one["rescored"]["quick"]["metrics"]["rmse"] != one["metrics"]["rmse"]
    assert one["config"]["parameters"]["sampler"] == "ancestral", "the fit's own settings stay"


def test_draws_are_scored_as_they_are(tmp_path):
    y, draws = np.array([0.3, -1.0]), np.random.default_rng(0).normal(size=(40, 2, 1))
    predicted = {"distribution": Draws(draws, squeeze=True)}
    predicted |= {"mean": draws.mean(0)[:, 0], "logpdf": np.zeros(2)}
    predicted |= {"quantiles": np.quantile(draws[..., 0], [0.025, 0.975, *np.arange(1, 10) / 10], axis=0).T}
    found = score.regression(predicted, Data(None, y, None, y))
    assert found["nll_paper"] == nll_paper(y, draws[..., 0])
    assert found["crps"] == crps(y, draws[..., 0])


def test_a_run_stopped_while_it_scores_does_not_fit_again(tmp_path, monkeypatch):
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0-2", "recipe": "paper"}
    small = build("x", {**raw, "overrides": [{"set": SHORT}]})
    runner.run(small, tmp_path / "unbroken")
    scored, real = [], score.predicted

    def predicted(*args):
        scored.append(args)
        if len(scored) == 2:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(score, "predicted", predicted)
        with pytest.raises(KeyboardInterrupt):
            runner.run(small, tmp_path / "broken")
    assert len(read(tmp_path / "broken/x.jsonl")) == 1, "what was scored is reported"
    monkeypatch.setattr("card.estimators.fit_together", None)
    assert runner.run(small, tmp_path / "broken").ran == 2
    broken, unbroken = (without_seconds(tmp_path / name / "x.jsonl") for name in ("broken", "unbroken"))
    assert broken == unbroken
    assert {path.name for path in (tmp_path / "broken/checkpoints").iterdir()} == {"claims"}


def test_a_unit_that_cannot_be_scored_fails_alone(tmp_path, monkeypatch):
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0-2", "recipe": "paper"}
    small = build("x", {**raw, "overrides": [{"set": SHORT}]})
    scores = [{"rmse": 1.0}, ZeroDivisionError("no rows"), {"rmse": 2.0}]

    def regression(prediction, data):
        found = scores.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(score, "regression", regression)
    summary = runner.run(small, tmp_path)
    assert [(f.unit.index, f.error) for f in summary.failures] == [(1, "ZeroDivisionError: no rows")]
    assert [r["split"] for r in read(tmp_path / "x.jsonl")] == [0, 2]


PAPER = """
kind = "uci"
datasets = ["yacht"]
splits = "0-1"
recipe = "paper"
[[overrides]]
set = { epochs = 40, n_steps = 10, beta_T = 0.5, mean_epochs = 3, n_draws = 20, width = 8 }
"""


def test_splits_that_train_together_go_on_after_a_kill(tmp_path):
    (tmp_path / "tiny.toml").write_text(PAPER)
    command = ("run", "tiny.toml", "--results")
    broken = card_bench(*command, "broken", cwd=tmp_path)
    wait_for(lambda: list(tmp_path.glob("broken/checkpoints/*/mean.safetensors")))
    broken.send_signal(signal.SIGKILL)
    broken.communicate()
    assert not read(tmp_path / "broken/tiny.jsonl")
    assert finished(card_bench(*command, "broken", cwd=tmp_path))[0] == 0
    runner.run(load(tmp_path / "tiny.toml"), tmp_path / "unbroken")
    left, right = (tmp_path / name / "tiny.jsonl" for name in ("broken", "unbroken"))
    assert [r["config"]["together"] for r in read(left)] == [2, 2]
    assert without_seconds(left) == without_seconds(right)


def test_seconds_of_a_killed_fit_are_not_forgotten(tmp_path):
    """What counts is work, by this process or a killed one, and not waiting."""

    def work(seconds: float) -> None:
        start = score.processor_seconds()
        while score.processor_seconds() < start + seconds:
            sum(range(10_000))

    clock = Clock(tmp_path / "fit", every=0.01)
    with clock.running() as before:
        assert before == 0.0
        work(0.4)
        time.sleep(0.3)
    with clock.running() as before:
        assert 0.3 < before < 0.6
        work(0.4)
        time.sleep(0.05)
    with clock.running() as before:
        assert 0.7 < before < 1.1
    clock.forget()
    with clock.running() as before:
        assert before == 0.0


def paper_units(kind="uci", **raw):
    """Units of the paper's recipe with ten epochs."""
    raw = {"kind": kind, "recipe": "paper", "overrides": [{"set": {"epochs": 10}}], **raw}
    return build("x", raw).units()


def report_of(unit, fit=1.0, predict=1.0, **more):
    """What a run says of a unit that it has done in so many seconds."""
    rows = KINDS[unit.kind].rows(unit.dataset)
    seconds = {"seconds_fit": fit, "seconds_predict": predict, "config": {"rows": [rows - 10, 10]}}
    return {**unit.identity(), "metrics": {}, **seconds, **more}


def fitted_to(epoch: int, path: Path) -> None:
    write_atomically(path, save({"epoch": torch.tensor(epoch)}))


def test_a_queue_tells_how_far_it_is_and_how_long_it_will_take(tmp_path):
    units, ledger = paper_units(datasets=["yacht"], splits="0-3"), Ledger(tmp_path, "x.jsonl")
    now = [0.0]
    meter = Meter("x", units, [tuple(units)], ledger, costs(units, []), clock=lambda: now[0])
    assert meter.look() == (0.0, "x: 0 of 4 done, 0 %")
    path = ledger.checkpoints / digest(units) / "denoiser.safetensors"
    fitted_to(5, path)
    now[0] = 60.0
    assert meter.look() == (0.25, "x: 0 of 4 done, 25 %, 3 min left")
    path.unlink()
    assert meter.look() == (0.25, "x: 0 of 4 done, 25 %, 3 min left"), "what was once fitted is not forgotten"
    append(ledger.path, [report_of(unit) for unit in units[:2]])
    assert meter.look() == (0.75, "x: 2 of 4 done, 75 %, 20 s left"), "those not yet scored count for half"
    meter.over.update(units[1:3])
    assert meter.look() == (0.875, "x: 3 of 4 done, 88 %, 9 s left"), "what failed is over as well, and once"


def test_what_units_will_take_is_told_by_the_most_alike_that_are_done(tmp_path):
    boston = paper_units(datasets=["boston"], splits="0-1")
    variants = [{"name": name, "set": {}} for name in ("long", "short")]
    long, _, short, other = paper_units(datasets=["boston"], splits="0-1", variants=variants)
    (yacht,) = paper_units(datasets=["yacht"], splits="0")
    rescored = {"other": {"metrics": {}, "seconds_predict": 25.0}}
    done = [report_of(long, 20.0, 60.0), report_of(short, 20.0, 5.0, rescored=rescored)]
    found = costs([long, other, *boston, yacht], done)
    assert found[long] == pytest.approx((20.0, 60.0))
    assert found[other] == pytest.approx((20.0, 30.0)), "its variant has been done, scored twice"
    assert found[boston[0]] == pytest.approx((20.0, 45.0)), "its data set has"
    assert found[yacht] == pytest.approx(np.array([20.0, 45.0]) * 308 / 506), "by the row"
    assert sum(costs([yacht], [])[yacht]) == 308, "with nothing done, rows alone tell"
    untimed = {**yacht.identity(), "metrics": {}, "config": {"rows": [277, 31]}}
    assert costs([yacht], [untimed]) == costs([yacht], []), "a report without seconds tells nothing"


def test_a_fit_under_way_counts_for_what_fits_take_of_a_unit(tmp_path):
    units, ledger = paper_units(datasets=["yacht"], splits="0"), Ledger(tmp_path, "x.jsonl")
    meter = Meter("x", units, [tuple(units)], ledger, costs(units, [report_of(units[0], 90.0, 10.0)]))
    fitted_to(5, ledger.checkpoints / digest(units) / "denoiser.safetensors")
    assert meter.look()[0] == pytest.approx(0.45)


def test_denoisers_that_learn_one_after_the_other_are_seen_to_move(tmp_path):
    units, ledger = paper_units("image", datasets=["noisy_mnist"], seeds="0"), Ledger(tmp_path, "x.jsonl")
    meter = Meter("x", units, [tuple(units)], ledger, costs(units, []))
    fitted_to(5, ledger.checkpoints / digest(units) / "0-denoiser-0.safetensors")
    assert meter.look()[0] == pytest.approx(0.25)


def test_a_run_killed_at_any_moment_finishes_with_the_reports_of_an_unbroken_one(tmp_path, monkeypatch):
    spec = tmp_path / "tiny.toml"
    spec.write_text(
        'kind = "uci"\ndatasets = ["yacht"]\nsplits = "0-4"\nmethods = ["bench_methods:SlowBell"]\n'
    )
    log = tmp_path / "log"
    command = ("run", "tiny.toml", "--results")
    broken = card_bench(*command, "broken", cwd=tmp_path, BENCH_LOG=str(log))
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= 3)
    broken.send_signal(signal.SIGKILL)
    broken.communicate()
    assert 1 <= len(read(tmp_path / "broken/tiny.jsonl")) < 5
    code, out = finished(card_bench(*command, "broken", cwd=tmp_path, BENCH_LOG=str(log), BENCH_SLEEP="0"))
    assert code == 0
    assert re.search(r"[1-4] run, [1-4] done before", out)
    monkeypatch.setenv("BENCH_LOG", str(log))
    monkeypatch.setenv("BENCH_SLEEP", "0")
    monkeypatch.setattr("sys.path", [*sys.path, str(TESTS)])
    assert runner.run(load(spec), tmp_path / "unbroken").ran == 5
    left, right = (tmp_path / name / "tiny.jsonl" for name in ("broken", "unbroken"))
    assert without_seconds(left) == without_seconds(right)


def finished(process: subprocess.Popen) -> tuple[int, str]:
    """Exit code and standard output."""
    out, _ = process.communicate()
    return process.returncode, out


def wait_for(happened, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_two_runs_of_one_command_at_a_time_leave_each_unit_once(tmp_path):
    spec = tmp_path / "tiny.toml"
    spec.write_text(
        'kind = "uci"\ndatasets = ["yacht"]\nsplits = "0-5"\nmethods = ["bench_methods:SlowBell"]\n'
    )
    log = tmp_path / "log"
    both = [card_bench("run", "tiny.toml", cwd=tmp_path, BENCH_LOG=str(log)) for _ in range(2)]
    assert [finished(process)[0] for process in both] == [0, 0]
    assert sorted(r["split"] for r in read(tmp_path / "results/tiny.jsonl")) == list(range(6))
    assert len(log.read_text().splitlines()) == 6, "and share the work: nothing is fitted twice"


def test_a_dask_cluster_of_two_workers_runs_the_same_command(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    raw = {"kind": "uci", "datasets": ["yacht"], "splits": "0-3", "methods": [BELL]}
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster:
        address = cluster.scheduler_address
        assert n_workers("dask", address) == 2
        runner.run(build("tiny", raw), tmp_path / "dask", backend="dask", address=address)
    runner.run(build("tiny", raw), tmp_path / "here")
    assert without_seconds(tmp_path / "dask/tiny.jsonl") == without_seconds(tmp_path / "here/tiny.jsonl")


def test_ray_gets_as_many_tasks_at_a_time_as_it_has_processors(tmp_path, monkeypatch, experiment):
    """Ray itself, a large package, is played by threads."""
    said = []
    ray = ModuleType("ray")
    ray.init = lambda **words: said.append(words["address"])
    ray.cluster_resources = lambda: {"CPU": 2.0}
    ray.shutdown = lambda: said.append("shutdown")
    plugin = ModuleType("ray.util.joblib")
    plugin.register_ray = lambda: joblib.register_parallel_backend("ray", ThreadingBackend)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.util.joblib", plugin)
    assert runner.run(experiment, tmp_path, backend="ray", address="head:6379").ran == 3
    assert sorted(r["split"] for r in read(tmp_path / "tiny.jsonl")) == [0, 1, 2]
    assert said == 2 * ["head:6379", "shutdown"], "once to ask for its size, once to work"


# ---------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "uci", "--datasets", "bostn"], "unknown data set 'bostn'; did you mean 'boston'?"),
        (["run", "uci", "--methods", "crad"], "unknown method 'crad'; did you mean 'card'?"),
        (["run", "uci", "--datasets", "boston", "--splits", "20"], "the nearest is 19"),
        (["run", "uci", "--recipe", "papr"], "unknown recipe of card 'papr'; did you mean 'paper'?"),
        (["run", "uci", "--set", "epocs=3"], "unknown parameter of card 'epocs'; did you mean 'epochs'?"),
        (["run", "uci", "--set", "epochs"], "cannot read --set 'epochs'; write key=value"),
        (["run", "uci", "--set", "sampler=multistp"], "The 'sampler' parameter of CARDRegressor must be"),
        (["run", "uci", "--datasets", ","], "name a data set"),
        (["run", "boston-ablation", "--variants", "T=1000"], "did you mean 'T=1000 prior=zero'?"),
        (["run", "boston-ablation", "--variants", "T=1000 prior=zer"], "did you mean 'T=1000 prior=zero'?"),
        (["run", "uci", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["run"], "Missing argument 'experiment'"),
        (["rn"], "No such command 'rn'. Did you mean 'run'? see card bench --help"),
        (["run", "boston-ablation", "--variants", ","], "name a variant"),
        (["run", "uci", "--variants", "V1"], "uci has no variants"),
        (
            ["run", "boston-ablation", "--set", "prior=zero"],
            "--set prior: variant 'T=1000 prior=zero' sets it to 'zero'",
        ),
        (["figure", "toys", "--recipe", "papr"], "unknown recipe 'papr'; did you mean 'paper'?"),
        (["list", "--experiments", "nowhere"], "nowhere"),
        (["run", "toy", "--seeds", "-1"], "cannot read seeds '-1'"),
        (["table", "uci", "--methods", "crd"], "unknown method 'crd'; did you mean 'card'?"),
        (["table", "uci", "--recipe", "papers"], "unknown recipe 'papers'; did you mean 'paper'?"),
        (["run", "ucii"], "unknown experiment 'ucii'; did you mean 'uci'?"),
        (["run", "toy", "--splits", "0"], "toy has seeds: use --seeds"),
        (["run", "uci", "--backend", "dask"], "--backend dask needs --address"),
        (["run", "uci", "--backend", "dusk"], "unknown backend 'dusk'; did you mean 'dask'?"),
        (["run", "uci", "--methods", "nowhere:Thing"], "cannot be imported"),
        (["table", "ucy"], "unknown table 'ucy'; did you mean 'uci'?"),
        (["table", "uci", "--format", "latx"], "unknown format 'latx'; did you mean 'latex'?"),
        (["figure", "toyz"], "unknown figure 'toyz'; did you mean 'toys'?"),
        (["page", "nowhere.md"], "nowhere.md: no such page"),
        (["figure", "toys"], "nothing in results for figure 'toys' yet; run: card bench run toy"),
    ],
)
def test_a_mistake_is_one_line_exit_code_2_and_nothing_written(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words, prog_name="card bench")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not result.stdout
    assert list(tmp_path.iterdir()) == []


def test_run_table_and_list_work_together_and_quick_results_stay_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(TESTS)])
    words = ["--methods", BELL, "--datasets", "yacht", "--splits", "0-1"]
    assert "2 run, 0 done before -> results/uci.jsonl" in invoke("run", "uci", *words)
    assert "1 run, 0 done before -> results/quick/uci.jsonl" in invoke("run", "uci", "--quick", *words[:4])
    assert len(read(tmp_path / "results/uci.jsonl")) == 2
    shown = invoke("table", "uci", "--methods", BELL)
    assert f"{BELL}" in shown
    assert "best cells" in shown
    invoke("table", "uci", "--methods", "all", "--format", "latex", "--out", "table.tex")
    assert r"\begin{tabular}" in (tmp_path / "table.tex").read_text()
    listed = invoke("list")
    assert "uci" in listed
    assert "experiments" in listed


def test_a_quick_run_of_the_toys_ends_with_their_table_and_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(TESTS)])
    (tmp_path / "experiments").mkdir()
    raw = (ROOT / "experiments/toy.toml").read_text()
    short = raw[: raw.index("[[quick.overrides]]")] + '[[quick.arrays]]\nkeep = "scatter"\n'
    (tmp_path / "experiments/toy.toml").write_text(short)
    append(tmp_path / "results/toy.jsonl", [{**report("linear", rmse=9.0), "recipe": "modern"}])
    committed = (tmp_path / "results/toy.jsonl").read_bytes()
    said = invoke("run", "toy", "--quick", "--methods", BELL, "--jobs", "1")
    assert f"RMSE, {BELL}" in said
    assert "8 run, 0 done before -> results/quick/toy.jsonl" in said
    drawn = {path.name for path in (tmp_path / "results/quick/figures").iterdir()}
    assert drawn == {"toys.png", "toys.svg", "coverage.png", "coverage.svg"}
    assert (tmp_path / "results/toy.jsonl").read_bytes() == committed


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_says_that_it_mends_a_damaged_line_and_runs_its_unit_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(TESTS)])
    words = ["run", "uci", "--methods", BELL, "--datasets", "yacht", "--splits", "0-2"]
    invoke(*words)
    path = tmp_path / "results/uci.jsonl"
    whole = without_seconds(path)
    path.write_bytes(path.read_bytes()[:-100])
    shown = CliRunner().invoke(app, ["table", "uci", "--methods", BELL])
    assert shown.exit_code == 0
    assert "the last line is damaged" in shown.stderr
    again = CliRunner().invoke(app, words)
    assert "removed it, its unit will run again" in again.stderr
    assert "1 run, 2 done before" in again.stdout
    assert without_seconds(path) == whole


def test_a_failed_unit_is_told_in_one_line_with_exit_code_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(TESTS)])
    words = ["run", "uci", "--datasets", "yacht", "--splits", "0-1", "--methods", "bench_methods:Broken"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "1 run, 0 done before, 1 failed" in result.stdout
    assert result.stderr.strip() == (
        "failed: yacht split 1 bench_methods:Broken default: RuntimeError: this split is cursed"
    )


# ---------------------------------------------------------------------- tables


def test_a_cell_is_mean_and_population_deviation_and_says_how_many():
    cell = summarise([report(split=i, rmse=v) for i, v in enumerate([1.0, 3.0])], "rmse")
    assert cell == Cell(2.0, 1.0, 2)
    assert cell.text(full=20) == "2.00 ± 1.00 (2)"
    assert cell.text(full=2) == "2.00 ± 1.00"
    assert summarise([report()], "rmse") is None
    assert summarise([report(rmse=None)], "rmse").mean == np.inf


def test_the_papers_own_counts_of_best_cells_come_out_of_its_own_figures():
    counts = {t.title.split()[0]: dict(zip(t.columns, t.rows[-1], strict=True)) for t in tables.uci([])}
    assert counts["RMSE"]["CARD (paper)"] == "9"
    assert counts["NLL"]["CARD (paper)"] == "8"


def test_our_column_is_set_beside_the_papers_in_its_units_and_missing_data_is_said():
    ours = [report("kin8nm", i, rmse=0.06, nll_paper=-1.4, qice=0.8, picp=95.0) for i in range(20)]
    rmse, nll, _, picp = tables.uci(ours, missing={"year"})[:4]
    rows = {row[0]: dict(zip(rmse.columns, row, strict=True)) for row in rmse.rows}
    assert rows["kin8nm"]["card modern"] == "6.00 ± 0.00", "times 100, as the paper prints it"
    assert rows["kin8nm"]["CARD (paper)"] == "6.32 ± 0.18"
    assert rows["year"]["card modern"] == "data not available"
    assert rows["boston"]["card modern"] == "—"
    assert rows["best cells"]["card modern"] == "1"
    assert dict(zip(nll.columns, nll.rows[3], strict=True))["card modern"] == "-1.40 ± 0.00"
    place = (list(UCI).index("kin8nm"), picp.columns.index("card modern"))
    assert place in picp.best, "the best PICP is the one nearest 95"


def test_a_perfect_forecasters_floor_agrees_with_simulation():
    rng = np.random.default_rng(0)
    shares = rng.multinomial(51, [0.1] * 10, size=20000) / 51
    assert bars.qice_floor(51) == pytest.approx(100 * np.abs(shares - 0.1).mean(), rel=0.01)


def test_bars_count_a_cell_met_by_the_paper_by_the_floor_or_by_the_errors():
    def verdict(metric, value, dataset="boston"):
        named = {"rmse": "rmse", "nll": "nll_paper", "qice": "qice", "picp": "picp"}[metric]
        (one,) = bars.verdicts([report(dataset, **{named: value})])
        return one.as_good, one.better

    assert verdict("rmse", 2.61) == (True, False), "as good as CARD, not better than the best of five"
    assert verdict("rmse", 2.60) == (True, True)
    assert verdict("rmse", 2.62) == (False, False)
    assert verdict("nll", 2.34) == (True, True)
    assert verdict("qice", 1.15 * bars.qice_floor(51) - 0.01) == (True, True)
    assert verdict("qice", 4.5) == (False, False)
    assert verdict("picp", 97.2) == (True, True), "within two standard errors of 95"
    assert verdict("picp", 97.4) == (False, False)
    assert verdict("rmse", 0.0632, "kin8nm") == (True, False), "compared in the paper's units"


def test_bars_print_their_counts():
    metrics = {"rmse": 2.5, "nll": 2.3, "nll_paper": 2.3, "qice": 3.0, "picp": 95.0, "crps": 1.2}
    ours = [{**report("boston", **metrics), "mean_model": {"rmse": 2.5, "crps": 1.3, "nll": 2.6}}]
    cells, limits, gain = bars.bars(ours)
    assert "4 of 4" in cells.notes[0]
    assert ("exact NLL", "boston", "2.3000 (1)", "2.32", "yes") in limits.rows
    assert gain.rows == (("boston", "-7.7 %", "+0.0 %", "yes"),)


@pytest.mark.parametrize(
    ("dataset", "metrics", "verdict"),
    [
        ("boston", {"rmse": 2.61 - 0.63}, "reproduced"),
        ("boston", {"rmse": 2.61 - 0.64}, "better"),
        ("boston", {"rmse": 2.61 + 0.64}, "not"),
        ("boston", {"nll": 1.0, "nll_paper": 2.35 + 0.12}, "reproduced"),
        ("boston", {"picp": 93.24 + 3.6}, "not"),
        ("concrete", {"picp": 95.0}, "better"),
        ("naval", {"rmse": 0.000245}, "reproduced"),
        ("naval", {"rmse": 0.000255}, "not"),
        ("kin8nm", {"rmse": 0.0650}, "reproduced"),
        ("year", {"rmse": 8.71}, "not"),
    ],
)
def test_a_cell_is_reproduced_better_or_not(dataset, metrics, verdict):
    (one,) = reproduction.comparisons([report(dataset, recipe="paper", **metrics)])
    assert one.verdict == verdict


def test_shares_are_told_for_every_method_of_the_paper():
    toy = {k: v for k, v in report("linear", recipe="paper", rmse=0.07, qice=5.0).items() if k != "split"}
    lines = [
        report("boston", 0, "card", "paper", rmse=2.5, qice=3.0),
        report("boston", 1, "card", "paper", rmse=2.7, qice=3.0),
        report("boston", 0, "card", "modern", rmse=9.0, qice=9.0),
        toy,
        {**report("boston", recipe="paper", rmse=2.0), "variant": "T=10 prior=f"},
        report("yacht", 0, "pbp", "default", rmse=0.1),
        report("yacht", 0, "ngboost", "default", rmse=0.1),
    ]
    shares, *parts = reproduction.reproduction(lines)
    assert shares.rows == (
        ("card: UCI", "2", "2", "0", "0", "100 %", "100 %"),
        ("card: toys", "2", "1", "0", "1", "50 %", "50 %"),
        ("card: Boston ablation", "1", "0", "1", "0", "0 %", "100 %"),
        ("card: all, the ablation at y_1", "4", "3", "0", "1", "75 %", "75 %"),
        ("pbp: UCI", "1", "0", "1", "0", "0 %", "100 %"),
    )
    assert parts[0].rows[0] == ("boston", "RMSE", "2.60 ± 0.10 (2)", "2.61 ± 0.63", "reproduced")
    assert parts[2].rows[0][0] == "T = 10, N(f(x), I)"


def test_samplers_are_set_side_by_side():
    one = report("boston", recipe="paper", rmse=2.6, nll_paper=2.3, qice=3.0, picp=94.0)
    quick = {"metrics": {"rmse": 2.7, "nll_paper": 2.5, "qice": 3.1, "picp": 93.0}, "seconds_predict": 0.1}
    (table,) = reproduction.samplers([{**one, "rescored": {"multistep 40": quick}}])
    assert table.columns == ("metric", "the chain", "multistep 40", "CARD (paper)", "verdicts")
    assert table.rows[0] == ("RMSE", "2.600", "2.700", "2.61 ± 0.63", "all reproduced")
    assert table.rows[1][-1] == "differ"
    assert table.rows[-1][:3] == ("seconds a split", "0.5", "0.1")


def test_a_page_is_made_anew_by_one_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    append(tmp_path / "results/uci.jsonl", [report("boston", recipe="paper", rmse=2.6)])
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n<!-- card bench table reproduction -->\nold\n<!-- end -->\n\nwords\n\n"
        "<!-- card bench table uci --methods all --recipe paper -->\n<!-- end -->\n"
    )
    assert "made anew" in invoke("page", "page.md")
    text = page.read_text()
    assert "| boston | RMSE | 2.60 (1) | 2.61 ± 0.63 | reproduced |" in text
    assert "| card paper |" in text
    assert "\nold\n" not in text
    assert "\n\nwords\n\n" in text
    assert "as it was" in invoke("page", "page.md")


def test_the_short_table_has_a_line_for_each_set_run_and_marks_the_better_of_two():
    found = [report(split=i, rmse=0.4, nll_paper=1.0, qice=5.0, picp=97.0) for i in range(2)]
    (table,) = catalog.TABLES["glance"].build([*found, report(method="pbp", rmse=0.1)], ())
    assert table.rows == (
        ("yacht", "2 of 20", "0.40", "0.65", "1.00", "0.90", "5.00", "8.03", "97.00", "99.84"),
    )
    assert table.best == {(0, 2), (0, 5), (0, 6), (0, 8)}


def test_the_short_table_of_images_sets_f_and_the_paper_beside_the_default_recipe():
    metrics = {"accuracy": 91.0, "f_accuracy": 90.5, "nll": 0.3, "f_nll": 0.4}
    one = {"dataset": "cifar10", "method": "card", "variant": "V1", "recipe": "modern", "seed": 0}
    runs = [{**one, "metrics": metrics | {"piw_correct": 0.02, "piw_incorrect": 0.2}}]
    runs += [{**one, "dataset": "cifar100", "metrics": metrics}, {**runs[0], "variant": "V2"}]
    (table,) = catalog.TABLES["images"].build(runs, ())
    first, second = table.rows
    assert first == ("cifar10", "1", "91.00", "90.50", "90.93", "0.30", "0.40", "0.46", "10.0", "9.1")
    assert second[:4] == ("cifar100", "1", "91.00", "90.50")
    assert second[8] == "—", "no widths, no quotient"


def test_every_table_can_be_made_from_nothing_and_says_so():
    for entry in catalog.TABLES.values():
        for table in entry.build([], {"cifar100", "year"}):
            for form in ("text", "markdown", "latex", "csv"):
                assert render(table, form)
    text = "\n".join(render(t) for t in classification([], {"cifar100"}))
    assert "data not available" in text


def test_the_law_of_a_toy_is_scored_on_the_rows_of_the_reports_beside_it():
    runs = [{"dataset": "sinusoidal", "seed": s, "method": "card", "recipe": "paper"} for s in (0, 2)]
    reports = [{**run, "metrics": {"rmse": 0.0, "qice": 0.6, "picp": 94.0}} for run in runs]
    rows = [make_toy("sinusoidal", random_state=s, variant="authors").split() for s in (0, 2)]
    errors = [r.y_test - r.X_test[:, 0] - 0.3 * np.sin(2 * np.pi * r.X_test[:, 0]) for r in rows]
    covered = [100 * np.mean(np.abs(e) <= 1.959964 * 0.08) for e in errors]
    (table,) = luck.toy_law(reports)
    (row,) = table.rows
    assert row[:3] == ("Sinusoidal", "2", "0.60 ± 0.00")
    assert row[7] == f"{np.mean(covered):.2f} ± {np.std(covered):.2f}", "of the same noise"
    assert row[8] == "94.81 ± 0.54"
    assert row[9] == "94.93 ± 0.54", "as far apart as the paper's own ten runs"
    (table,) = luck.toy_law([{**r, "recipe": "modern"} for r in reports])
    assert len(table.rows[0]) == 8, "other rows than the paper's"
    law = [luck.scores_of_the_law("linear", seed, "paper")["qice"] for seed in range(20)]
    assert np.mean(law) == pytest.approx(0.53, abs=0.06), "the floor of a perfect forecaster at 2048 rows"


def test_toys_ablation_and_classes_find_their_rows():
    toy = {**report("linear", rmse=0.05, qice=0.5, picp=95.0), "recipe": "paper"}
    del toy["split"]
    (table,) = tables.toy([toy])
    assert table.rows[0][:3] == ("Linear", "0.07 ± 0.02", "0.05 (1)")
    variant = {**report("boston", recipe="paper", rmse=2.5), "variant": "T=500 prior=zero"}
    (table,) = tables.boston_ablation([variant, report("boston", recipe="paper", rmse=2.6)])
    assert table.rows[3][:5] == ("500", "0.0001 to 0.04", "N(0, I)", "2.70 ± 0.68", "2.50 (1)")
    assert table.rows[0][4] == "2.60 (1)", "the main experiment's"
    early = {**variant, "rescored": {"y_1": {"metrics": {"rmse": 2.4, "picp": 99.0}}}}
    draws, state = tables.boston_ablation([early, variant])
    assert draws.rows[3][4] == "2.50 ± 0.00 (2)"
    assert (state.rows[3][4], state.rows[3][-1]) == ("2.40 (1)", "99.00 (1)")
    found = {c.part: c.ours.mean for c in reproduction.comparisons([early]) if c.metric.key == "rmse"}
    assert found == {"card: Boston ablation": 2.5, "card: Boston ablation, y_1": 2.4}
    assert len(table.rows) == len(paper()["boston_prior_ablation"])
    names = {v["name"] for v in load_raw("boston-ablation")["variants"]} | {"T=1000 prior=f"}
    assert names == {tables.ablation_variant(e["T"], e["prior"]) for e in paper()["boston_prior_ablation"]}
    one = {
        "dataset": "cifar10",
        "method": "card",
        "variant": "V1",
        "recipe": "paper",
        "seed": 0,
        "metrics": {"accuracy": 91.0, "f_accuracy": 90.5, "pavpu": 91.2, "piw_correct": 0.02},
        "by_class": [{"class": "1", "accuracy": 92.0, "piw_correct": 0.03}],
    }
    text = render(next(t for t in classification([one]) if t.title.startswith("cifar10")))
    assert re.search(r"f of card paper +90\.50 \(1\)", text)
    assert "2.00 (1)" in text, "PIW is printed times 100"
    assert cifar10_ablation([one])[0].rows[0][4:6] == ("90.93 ± 0.02", "91.00 (1)")
    both = cifar10_ablation([one, {**one, "recipe": "paper" if one["recipe"] == "modern" else "modern"}])
    assert [row[0] for row in both[0].rows][:3] == ["V1", "V1", "V2"], "a row for each recipe"
    (classes,) = (t for t in by_class([one]) if t.title.startswith("cifar10"))
    assert classes.rows[1][:4] == ("here", "1", "92.00", "3.00")
    assert render(sizes([one])[0])


def load_raw(name: str) -> dict:
    import tomllib

    return tomllib.loads((ROOT / "experiments" / f"{name}.toml").read_text())


def test_special_characters_survive_each_format():
    table = Table("100 % & more", ("a|b", "c_d"), (("1 ± 2", "x,y"),), frozenset({(0, 0)}))
    assert r"100 \% \& more" in render(table, "latex")
    assert r"\textbf{1 $\pm$ 2}" in render(table, "latex")
    assert r"a\|b" in render(table, "markdown")
    assert "**1 ± 2**" in render(table, "markdown")
    assert '100 % & more,1 ± 2,"x,y"' in render(table, "csv")


# --------------------------------------------------------------------- figures


def test_toys_keep_arrays_and_their_figures_are_drawn_from_them(tmp_path, monkeypatch):
    raw = {"kind": "toy", "datasets": ["linear", "full_circle"], "seeds": "0-1", "methods": [BELL]}
    runner.run(build("toy", {**raw, "arrays": [{"keep": "scatter"}]}), tmp_path)
    kept = sorted(path.name for path in (tmp_path / "arrays").iterdir())
    assert len(kept) == 2, "of the first seed only"
    for name in ("toys", "coverage"):
        paths = figures.draw(name, tmp_path, tmp_path / "out")
        assert [p.suffix for p in paths] == [".png", ".svg"]
        assert all(p.stat().st_size > 5000 for p in paths)
    assert json.loads((tmp_path / "toy.jsonl").read_text().splitlines()[0])["seed"] == 0
    assert "split" not in read(tmp_path / "toy.jsonl")[0]


def test_the_chain_of_the_papers_recipe_is_heard_from_noise_to_response(tmp_path):
    short = {"epochs": 5, "n_steps": 20, "beta_T": 0.5, "mean_epochs": 2, "n_draws": 20, "width": 8}
    raw = {"kind": "uci", "datasets": ["boston"], "splits": "0-1", "recipe": "paper"}
    keeps = [{"keep": "chain"}, {"keep": "reverse", "all": True}]
    runner.run(build("uci", {**raw, "arrays": keeps, "overrides": [{"set": short}]}), tmp_path)
    first, second = sorted((tmp_path / "arrays").iterdir())
    with np.load(first) as kept:
        assert kept["times"].tolist() == [1, 4, 8, 12, 16, 20]
        assert kept["q"].shape == (6, 51)
        assert kept["p"].shape == (6, 2048 // 51, 51)
        assert kept["metric_times"][0] == 0
        noise, response = kept["q"][-1] - kept["y"], kept["q"][0] - kept["y"]
        assert np.abs(response).mean() < 0.2 * np.abs(noise).mean(), "q at t = 1 is close to the response"
    with np.load(second) as kept:
        assert "q" not in kept, "samples of the first split only"
        assert kept["rmse"].shape == kept["metric_times"].shape
    assert figures.draw("chains", tmp_path, tmp_path)[0].name == "chain-boston.png"
    assert figures.draw("reverse", tmp_path, tmp_path)


def test_q_q_plots_and_curves_are_kept_of_classifiers_and_drawn(tmp_path, monkeypatch):
    def load(name: str) -> Images:
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=120)
        X = (100 * y[:, None, None, None] + rng.integers(100, size=(120, 1, 8, 8))).astype(np.uint8)
        return Images(name, X[:80], y[:80], X[80:], y[80:], ("a", "b"))

    monkeypatch.setattr("card.datasets.load_image", load)
    short = {"epochs": 20, "n_steps": 20, "beta_T": 0.5, "mean_epochs": 1, "batch_size": 40, "width": 8}
    short |= {"mean_batch_size": 40, "encoder": "linear", "mean": "mlp", "n_draws": 30}
    raw = load_raw("priors")
    raw = {**raw, "overrides": [{"set": short}]}
    runner.run(build("priors", raw), tmp_path)
    reports_ = read(tmp_path / "priors.jsonl")
    assert reports_
    for one in reports_:
        assert [epoch for epoch, _ in one["curve"]] == list(range(2, 21, 2))
        assert all(0 <= accuracy <= 100 for _, accuracy in one["curve"])
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"claims"}
    assert [path.name for path in figures.draw("efficiency", tmp_path, tmp_path)] == [
        "efficiency-noisy_mnist.png",
        "efficiency-noisy_mnist.svg",
    ]
    (tmp_path / "priors.jsonl").rename(tmp_path / "classification.jsonl")
    for path in (tmp_path / "arrays").iterdir():
        with np.load(path) as kept:
            assert kept["differences"].shape == (16, 30)
        path.rename(path.with_name(path.name.replace("priors", "classification")))
    assert figures.draw("qq", tmp_path, tmp_path)[0].name == "qq-noisy_mnist.png"


def test_the_last_state_of_a_fit_without_averages_is_the_fitted_network(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 1, 4, 4)).astype(np.float32), np.arange(40) % 2
    short = {"epochs": 4, "n_steps": 10, "beta_T": 0.5, "mean_epochs": 1, "batch_size": 8, "width": 4}
    model = CARDClassifier.from_recipe("paper", **short, ema=1e-9, random_state=0, n_draws=2)
    model.set_params(checkpoint_path=str(tmp_path / "fit"))
    unit = build("x", {"kind": "image", "datasets": ["cifar10"], "seeds": "0"}).units()[0]
    kept = Snapshots(tmp_path, unit)
    with kept.watching(model):
        model.fit(X, y)
    assert len(list(kept.folder.iterdir())) == 4
    other = _as_of(model, kept.folder / "4.safetensors")
    assert np.allclose(other.sample(X, 3, random_state=0), model.sample(X, 3, random_state=0), atol=1e-5)
    early = _as_of(model, kept.folder / "1.safetensors")
    assert not np.allclose(early.sample(X, 3, random_state=0), model.sample(X, 3, random_state=0), atol=1e-2)


def test_every_command_of_the_page_on_reproduction_is_one_that_works(tmp_path, monkeypatch):
    page = ROOT / "docs/reproduction.md"
    lines = re.findall(r"^card bench .*|(?<=`)card bench [^`]*(?=`)", page.read_text(), flags=re.M)
    lines += re.findall(r"card bench .*", (ROOT / "Makefile").read_text())
    assert len(lines) > 15
    monkeypatch.setattr(runner, "run", lambda experiment, results, **_: runner.Summary(results))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/reproduction.md").write_text(page.read_text())
    for line in dict.fromkeys(lines):
        _, _, *words = shlex.split(line, comments=True)
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0 or "for figure" in result.stderr, (line, result.output)


def test_narrowing_checks_anew(experiment):
    with pytest.raises(BenchError, match="unknown split 77"):
        narrow(experiment, indices=(77,))
