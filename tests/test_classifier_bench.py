"""The experiment on images: its lines have every figure that is judged, beside f alone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from card.bench.class_score import classification
from card.bench.cli import app
from card.bench.experiments import load
from card.bench.runner import batches
from card.bench.spec import narrow
from card.datasets import Images

METRICS = {"accuracy", "f_accuracy", "nll", "f_nll", "pavpu", "ece", "f_ece", "piw_correct", "piw_incorrect"}
METRICS |= {"narrowest_piw_accuracy", "rejected_accuracy", "not_rejected_accuracy", "not_rejected_count"}
METRICS |= {"aurc", "f_aurc"}


def images(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    bars = np.arange(12)[None, None, None] // 4 == y[:, None, None, None]
    return np.broadcast_to(200 * bars, (n, 1, 12, 12)).astype(np.uint8), y


def test_lines_of_the_experiment_are_written_and_shown(tmp_path, monkeypatch):
    def load(name: str) -> Images:
        (X, y), (X_test, y_test) = images(150, 0), images(60, 1)
        noisy = X_test / 255 + 0.5 * np.random.default_rng(2).normal(size=X_test.shape)
        return Images(name, X, y, noisy.astype(np.float32), y_test, ("a", "b", "c"))

    monkeypatch.setattr("card.datasets.load_image", load)
    quick = ["mean_epochs=4", "epochs=4", "batch_size=30", "mean_batch_size=30", "cv=2", "noise=0.5"]
    settings = [word for text in quick for word in ("--set", text)]
    words = "run classification --datasets noisy_mnist --methods card --variants V1 --seeds 0-1 --results"
    said = CliRunner().invoke(app, [*words.split(), str(tmp_path), *settings])
    assert said.exit_code == 0, said.output
    lines = [json.loads(line) for line in (tmp_path / "classification.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [0, 1]
    for line in lines:
        assert {
            "dataset": "noisy_mnist",
            "method": "card",
            "variant": "V1",
            "recipe": "modern",
        }.items() <= line.items()
        assert set(line["metrics"]) >= METRICS
        assert line["n_draws"] == 100
        assert [entry["class"] for entry in line["by_class"]] == ["0", "1", "2"]
        assert line["metrics"]["accuracy"] > 80
        assert {"seconds_fit", "seconds_predict"} <= set(line)
    shown = CliRunner().invoke(app, ["table", "classification", "--results", str(tmp_path)])
    assert "f of card modern" in shown.output
    assert f"{np.mean([line['metrics']['accuracy'] for line in lines]):.2f}" in shown.output


def test_variants_on_the_same_data_are_one_task():
    experiment = load(Path(__file__).parents[1] / "experiments/classification.toml")
    units = narrow(experiment, datasets=("cifar10",), indices=(0, 1)).units()
    tasks = batches(units)
    assert [[unit.variant for unit in task] for task in tasks] == [["V1", "V2", "V3", "V4"]] * 2
    assert [len({unit.index for unit in task}) for task in tasks] == [1, 1]
    assert all(len(task) == 1 for task in batches(units, together=1))


def test_an_unknown_variant_is_named(tmp_path):
    said = CliRunner().invoke(app, ["run", "classification", "--variants", "V9", "--results", str(tmp_path)])
    assert said.exit_code == 2
    assert "V9" in said.output


def test_figures_follow_their_definitions():
    classes = np.array(["a", "b"])
    y = np.array(["a", "a", "b", "b"])
    proba = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]])
    details = pd.DataFrame(
        {
            "vote": ["a", "b", "b", "a"],
            "piw_a": [0.1, 0.2, 0.3, 0.4],
            "piw_b": [0.5, 0.6, 0.1, 0.9],
            "certain": [True, False, True, True],
        }
    )
    m = classification(y, proba, np.full((4, 2), 0.5), details, classes)
    assert m["accuracy"] == 75
    assert m["f_accuracy"] == 50
    assert m["pavpu"] == 100
    assert m["piw_correct"] == pytest.approx((0.1 + 0.1) / 2)  # of the true class, where the vote is right
    assert m["piw_incorrect"] == pytest.approx((0.2 + 0.9) / 2)
    assert m["narrowest_piw_accuracy"] == 75
    assert (m["rejected_accuracy"], m["not_rejected_accuracy"], m["not_rejected_count"]) == (100, 0, 1)
    assert m["f_aurc"] == pytest.approx(0.5)
