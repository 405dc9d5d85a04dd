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
