"""The demo on packaged data: a table to read and a picture to look at."""

import json

from houses import QUICK_OPTIONS
from typer.testing import CliRunner

from card.cli import app


def test_the_demo_scores_both_examples_beside_f_alone_and_draws_them(tmp_path):
    out = tmp_path / "demo.png"
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--json", *QUICK_OPTIONS])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    for example in ("toy", "Concrete"):
        for method in ("card", "f alone"):
            assert set(said[example][method]) == {"rmse", "crps", "nll", "picp", "qice"}
    assert out.read_bytes().startswith(b"\x89PNG")
    assert len(said["predictions"]) == 4
    assert set(said["predictions"][0]) == {"mean", "lower", "upper", "observed"}
    report = (tmp_path / "demo.html").read_text(encoding="utf-8")
    assert "<h2>Reliability</h2>" in report
    assert "units of strength" not in report  # it is drawn, not written
    assert "strength" in report


def test_the_demo_speaks_to_people(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo.png"), *QUICK_OPTIONS])
    assert result.exit_code == 0, result.output
    for words in ("f alone", "(card predict)", "(card explain)", "█", "demo.png", "demo.html (card report)"):
        assert words in result.stdout
