"""The command line: arguments only. What the commands do is in `card.app`.

Results go to standard output, progress and warnings to standard error. Exit codes: 0 done, 1 a problem,
2 wrong arguments; both are told in one line.
"""

import ast
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from card.commands import OneLine

app = typer.Typer(
    name="card",
    cls=OneLine,
    help="From a table to calibrated predictions: the whole distribution p(y|x), not only its mean.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `card fit`.")]
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Table: .csv, .tsv, .jsonl (also .gz), .parquet or .feather; - reads CSV from standard input.",
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column of observed values, if not that of fit; repeat for several."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="Encoding of text files, such as latin-1 or utf-16.")
]
Seed = Annotated[int, typer.Option(min=0, help="Makes the result repeatable.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any setting of the estimator, such as epochs=50; repeatable."
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from card import __version__

        typer.echo(f"card-diffusion {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command whose errors are one line and exit code 1, or with --debug a traceback."""

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        try:
            function(**arguments)
        except (typer.BadParameter, typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            folder = arguments.get("checkpoint")
            kept = folder is not None and folder.is_dir() and any(folder.iterdir())
            fail(
                "interrupted; "
                + (f"the same command continues from {folder}" if kept else "nothing was written")
            )
        except BrokenPipeError:
            sys.stderr.close()
            raise SystemExit(1) from None
        except Exception as error:
            if arguments.get("debug"):
                raise
            fail(one_line(error))

    return app.command()(run)


def one_line(error: Exception) -> str:
    """What an error says, without its line breaks; its kind too, if it is not one we expect."""
    from card.app.common import Problem

    text = " ".join(str(error).split())
    expected = isinstance(error, Problem | ValueError | ImportError | OSError)
    return text if expected and text else f"{type(error).__name__}: {text} (--debug shows more)"


def fail(message: str) -> None:
    typer.echo(f"card: {message}", err=True)
    raise SystemExit(1)


@command
def fit(
    data: Data,
    target: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column to predict; repeat for several.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Model file to write, such as houses.card.")],
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="regression or classification; guessed otherwise.")
    ] = None,
    recipe: Annotated[str, typer.Option(metavar="NAME", help="modern, or paper.")] = "modern",
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, ...")] = "auto",
    seed: Seed = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes to use; -1 is one a core.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="From here a killed fit continues.")
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of numbers that are codes; repeat for several."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out; repeat for several.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Rows with equal values here stay together when some are held out; not used to predict.",
        ),
    ] = None,
    set_: Settings = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a table and write it to a file.

    For example: card fit houses.csv --target price --out houses.card
    """
    from card.app.common import Terminal
    from card.app.fit import FitOptions
    from card.app.fit import fit as run

    if task not in (None, "regression", "classification"):
        raise typer.BadParameter("--task is regression or classification")
    if recipe not in ("modern", "paper"):
        raise typer.BadParameter("--recipe is modern or paper")
    if jobs == 0:
        raise typer.BadParameter("--jobs is a number of processes, or -1 for one a core")
    options = FitOptions(
        data=data,
        target=target,
        out=out,
        task=task,  # type: ignore[arg-type]
        recipe=recipe,
        device=device,
        seed=seed,
        jobs=jobs,
        checkpoint=checkpoint,
        categorical=categorical or [],
        drop=drop or [],
        group=group,
        settings=settings_of(set_ or []),
        encoding=encoding,
        force=force,
    )
    run(options, Terminal(json))


@command
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table to write; standard output otherwise.")
    ] = None,
    quantiles: Annotated[
        str | None,
        typer.Option(metavar="LEVELS", help="Such as 0.05,0.5,0.95, which is usual unless draws are wanted."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Coverage of a central interval, such as 0.9.")
    ] = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Number of draws to write for each row.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Write the input columns too.")] = False,
    seed: Seed = 0,
    encoding: Encoding = "utf-8",
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict every row of a table, in bounded memory.

    For example: card predict houses.card new.csv --interval 0.9 --out predictions.csv
    """
    from card.app.common import Terminal
    from card.app.predict import PredictOptions
    from card.app.predict import predict as run

    if interval is not None and not 0 < interval < 1:
        raise typer.BadParameter("--interval is a coverage between 0 and 1, such as 0.9")
    levels = None if quantiles is None else levels_of(quantiles)
    options = PredictOptions(model, data, out, levels, interval, draws, keep, seed, encoding, force)
    run(options, Terminal(json))


@command
def evaluate(
    model: Model,
    data: Data,
    target: Target = None,
    encoding: Encoding = "utf-8",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Score a model on rows whose response is known, beside its mean model alone.

    For example: card evaluate houses.card test.csv
    """
    from card.app.common import Terminal
    from card.app.evaluate import EvaluateOptions
    from card.app.evaluate import evaluate as run

    run(EvaluateOptions(model, data, target or [], encoding), Terminal(json))


@command
def explain(
    model: Model,
    data: Data,
    row: Annotated[int, typer.Option(min=1, help="Row of the table; the first after the header is 1.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PNG to write; row-1.png, say, otherwise.")
    ] = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the predicted density of one row, in the terminal and as a picture.

    For example: card explain houses.card new.csv --row 17
    """
    from card.app.common import Terminal
    from card.app.explain import ExplainOptions
    from card.app.explain import explain as run

    run(ExplainOptions(model, data, row, out or Path(f"row-{row}.png"), encoding, force), Terminal(json))


@command
def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")] = Path("report.html"),
    target: Target = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write one self-contained HTML page on how far the predictions can be trusted.

    For example: card report houses.card test.csv --out report.html
    """
    from card.app.common import Terminal
    from card.app.report import ReportOptions
    from card.app.report import report as run

    run(ReportOptions(model, data, out, target or [], encoding, force), Terminal(json))


@command
def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Picture to write; beside it a report.")] = Path(
        "card-demo.png"
    ),
    seed: Seed = 0,
    set_: Settings = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show all of this on two packaged examples, with a picture and a report; about two minutes."""
    from card.app.common import Terminal
    from card.app.demo import demo as run

    run(out, force, seed, Terminal(json), settings_of(set_ or []))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def bench(context: typer.Context) -> None:
    """Run experiments and make their tables; `card bench --help` says more."""
    try:
        from card.bench.cli import app as experiments
    except ModuleNotFoundError:
        fail("the experiments are not part of this installation")
    experiments(args=context.args, prog_name="card bench", standalone_mode=True)


def levels_of(text: str) -> tuple[float, ...]:
    """Quantile levels from "0.05,0.5"."""
    try:
        levels = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise typer.BadParameter(f"--quantiles are numbers such as 0.05,0.5,0.95; got {text!r}") from None
    if not all(0 < level < 1 for level in levels):
        raise typer.BadParameter(f"--quantiles lie between 0 and 1; got {text!r}")
    return levels


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """Settings from "name=value"; values are JSON, or Python's numbers, tuples and the like, or else text."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes name=value; got {pair!r}")
        settings[name.strip()] = _value(value)
    return settings


def _value(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text


def main() -> None:
    """Entry point of the `card` command; a polite kill cleans up as Ctrl-C does.

    The networks are small, and threads that wait for each other make them slower: one, unless said otherwise.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, _interrupt)
    app()


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
