"""The command line in this process; what goes wrong must be one line, without a traceback."""

import io

import pandas as pd
from typer.testing import CliRunner

from card.cli import app


def run(*arguments, code=0, stdin=None):
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    if code in (1, 2):
        assert result.stderr.startswith("card: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr
    return result


def predicted(*arguments, **options):
    return pd.read_csv(io.StringIO(run("predict", *arguments, **options).stdout))
