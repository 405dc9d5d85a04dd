"""`card bench run | list | table | figure`: arguments only; the modules beside this one do the work."""

from __future__ import annotations

import os
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from card.bench import runner
from card.bench.availability import missing_data
from card.bench.catalog import TABLES, read_files, select
from card.bench.errors import BenchError, unknown
from card.bench.experiments import find_all, load, parse_datasets, parse_indices, parse_methods
from card.bench.kinds import KINDS
from card.bench.methods import methods as known_methods
from card.bench.page import filled
from card.bench.render import FORMATS, render
from card.bench.reports import DamagedReportWarning
from card.bench.spec import Experiment, Override, Settings, freeze, narrow
from card.commands import OneLine

app = typer.Typer(
    name="bench",
    cls=OneLine,
    add_completion=False,
    help="Run experiments, and turn their reports into tables and figures.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Results = Annotated[Path, typer.Option(help="Folder of the report files.")]
Experiments = Annotated[
    Path | None, typer.Option(help="Folder of the experiment files; ./experiments if not given.")
]


def told_in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """Mistakes end with one line on standard error and exit code 2."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", DamagedReportWarning)
                warnings.showwarning = lambda message, *_: say(str(message))
                command(*args, **kwargs)
        except BenchError as error:
            say(f"card bench: {error}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            say("interrupted; what has finished is reported, the same command goes on from here")
            raise typer.Exit(130) from None

    return wrapped


def say(line: str) -> None:
    """To a person, not into a pipe."""
    typer.echo(line, err=True)


@app.command()
@told_in_one_line
def run(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment, or a .toml file.")],
    datasets: Annotated[str | None, typer.Option(help="Such as boston,energy, or all.")] = None,
    splits: Annotated[str | None, typer.Option(help="Such as 0-4,7, or all.")] = None,
    seeds: Annotated[str | None, typer.Option(help="The same for toys and images.")] = None,
    methods: Annotated[str | None, typer.Option(help="Such as card,deep-ensembles, or module:Class.")] = None,
    variants: Annotated[str | None, typer.Option(help="Such as V1,V2, of those in the experiment.")] = None,
    recipe: Annotated[str | None, typer.Option(help="modern or paper.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter for every unit: key=value.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes of one thread; default 1, with --quick one a core."),
    ] = None,
    backend: Annotated[str, typer.Option(help=" or ".join(runner.BACKENDS))] = runner.HERE,
    address: Annotated[str | None, typer.Option(help="Of the scheduler, for --backend dask or ray.")] = None,
    together: Annotated[
        int | None,
        typer.Option(
            min=1, help="Fit up to this many splits of a data set in one batched run; the paper's recipe: 20."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short version, into <results>/quick.")] = False,
    results: Results = Path("results"),
    experiments: Experiments = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the tracebacks of failed units.")] = False,
) -> None:
    """Run the units of an experiment that have no report yet."""
    if backend not in runner.BACKENDS:
        raise unknown("backend", backend, runner.BACKENDS)
    chosen = load(_find(experiment, experiments), quick=quick)
    chosen = _narrowed(chosen, datasets, splits, seeds, methods, variants, recipe, set_ or [])
    summary = runner.run(
        chosen,
        results / "quick" if quick else results,
        jobs=jobs or (os.cpu_count() or 1 if quick else 1),
        backend=backend,
        address=address,
        together=together,
        show=say,
    )
    if quick:
        _show(chosen, summary.path)
    _conclude(chosen, summary, debug)


def _show(experiment: Experiment, report: Path) -> None:
    """The table of this experiment, and the figures that start from its reports."""
    from card.bench.figures import FIGURES

    if experiment.name in TABLES:
        methods = ",".join(experiment.methods)
        typer.echo(table_text(experiment.name, "text", methods, "", report.parent) + "\n")
    for name, entry in FIGURES.items():
        if entry.files == (report.name,):
            _draw(name, report.parent, report.parent / "figures", "", needed=False)


def _draw(name: str, results: Path, out: Path, recipe: str, needed: bool = True) -> None:
    """Draw a figure; if there is nothing to draw and it is not needed, only say so."""
    from card.bench.figures import draw

    try:
        for path in draw(name, results, out, recipe):
            typer.echo(str(path))
    except BenchError as error:
        if needed:
            raise
        say(f"card bench: {error}")


def _find(experiment: str, folder: Path | None) -> Path:
    if experiment.endswith(".toml"):
        return Path(experiment)
    files = find_all(_folder(folder))
    if experiment not in files:
        raise unknown("experiment", experiment, files)
    return files[experiment]


def _folder(folder: Path | None) -> Path:
    """The folder given, else ./experiments, else that of the clone this package runs from."""
    clone = Path(__file__).resolve().parents[3] / "experiments"
    candidates = [folder] if folder else [Path("experiments"), clone]
    found = next((path for path in candidates if path is not None and path.is_dir()), None)
    if found is None:
        raise BenchError(
            f"no folder {candidates[0]} with experiment files; name a .toml file, or use --experiments"
        )
    return found


def _narrowed(
    chosen: Experiment,
    datasets: str | None,
    splits: str | None,
    seeds: str | None,
    methods: str | None,
    variants: str | None,
    recipe: str | None,
    settings: list[str],
) -> Experiment:
    kind = KINDS[chosen.kind]
    indices, wrong = (splits, seeds) if kind.index == "split" else (seeds, splits)
    if wrong is not None:
        raise BenchError(f"{chosen.name} has {kind.index}s: use --{kind.index}s")
    changes: dict[str, Any] = {"source": ""}
    if datasets is not None:
        changes["datasets"] = parse_datasets(datasets, kind)
    if indices is not None:
        changes["indices"] = parse_indices(indices, kind)
    if methods is not None:
        changes["methods"] = parse_methods(methods)
    if variants is not None:
        changes["variants"] = _variants(chosen, variants)
    if recipe is not None:
        changes["recipe"] = recipe
    if settings:
        given = dict(map(_setting, settings))
        _check_free(given, changes.get("variants", chosen.variants))
        changes["overrides"] = (*chosen.overrides, Override(freeze(given)))
    return narrow(chosen, **changes)


def _variants(chosen: Experiment, text: str) -> Any:
    known = {name: settings for name, settings in chosen.variants if name}
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not known:
        raise BenchError(f"{chosen.name} has no variants: leave --variants out")
    if not names:
        raise BenchError("name a variant")
    for name in names:
        if name not in known:
            raise unknown("variant", name, known)
    return tuple((name, known[name]) for name in names)


def _check_free(given: Iterable[str], variants: Iterable[tuple[str, Settings]]) -> None:
    """Refuse to set for every unit what a variant sets for its own."""
    for name, settings in variants:
        for key in set(given) & set(dict(settings)):
            raise BenchError(
                f"--set {key}: variant {name!r} sets it to {dict(settings)[key]!r}; change it in the file, "
                "or choose other variants with --variants"
            )


def _setting(text: str) -> tuple[str, Any]:
    """ "key=value", the value written as in TOML; a bare word is text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BenchError(f"cannot read --set {text!r}; write key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _conclude(experiment: Experiment, summary: runner.Summary, debug: bool) -> None:
    parts = [f"{summary.ran} run", f"{summary.done_before} done before"]
    if summary.elsewhere:
        parts.append(f"{summary.elsewhere} by another process")
    if summary.failures:
        parts.append(f"{len(summary.failures)} failed")
    typer.echo(f"{experiment.name}: {', '.join(parts)} -> {summary.path}")
    for name, count in summary.missing.items():
        typer.echo(f"{name}: data not available ({count} not run)")
    for failure in summary.failures:
        say(f"failed: {failure.unit}: {failure.error}")
        if debug:
            say(failure.details)
    if summary.failures:
        raise typer.Exit(1)


@app.command("list")
@told_in_one_line
def list_(results: Results = Path("results"), experiments: Experiments = None) -> None:
    """Experiments with what is done of them, methods, tables and figures."""
    from card.bench.figures import FIGURES

    files = find_all(_folder(experiments))
    typer.echo("experiments")
    for name, path in files.items():
        experiment = load(path)
        units = experiment.units()
        done = len(units) - len(runner.left(experiment, results))
        typer.echo(f"  {name:18} {done:4} of {len(units):4} units done  {experiment.title}")
    typer.echo(f"methods\n  {', '.join(known_methods())}")
    for title, entries in (("tables", TABLES), ("figures", FIGURES)):
        typer.echo(title)
        for name, entry in entries.items():
            typer.echo(f"  {name:18} {entry.title}")


@app.command()
@told_in_one_line
def table(
    name: Annotated[str, typer.Argument(help="One of those that `card bench list` names.")],
    form: Annotated[str, typer.Option("--format", help=" or ".join(FORMATS))] = "text",
    methods: Annotated[
        str | None, typer.Option(help="Such as card,pbp, or all; the table's own choice if not given.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="modern or paper; both if not given.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="From the reports of `run --quick`.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to a file.")] = None,
    results: Results = Path("results"),
) -> None:
    """Print a table of the paper with the figures reported here."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    text = table_text(name, form, methods, recipe, results / "quick" if quick else results)
    if out is None:
        typer.echo(text)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")


def table_text(name: str, form: str, methods: str | None, recipe: str, results: Path) -> str:
    """A table as it is printed."""
    entry = TABLES[name]
    _check_recipe(recipe)
    wanted = ["all"] if methods == "all" else parse_methods(methods) if methods else entry.methods
    found = select(read_files(results, entry.files), wanted, recipe)
    return "\n\n".join(render(made, form) for made in entry.build(found, missing_data()))


def _check_recipe(recipe: str) -> None:
    if recipe and recipe not in ("modern", "paper"):
        raise unknown("recipe", recipe, ("modern", "paper"))


@app.command()
@told_in_one_line
def page(
    path: Annotated[Path, typer.Argument(help="A Markdown file with tables between comments.")],
    results: Results = Path("results"),
) -> None:
    """Make the tables of a page anew, each between `<!-- card bench table NAME -->` and `<!-- end -->`."""
    command = typer.main.get_command(app).commands["table"]  # type: ignore[attr-defined]

    def make(words: list[str]) -> str:
        given = command.make_context("table", words).params
        if given["name"] not in TABLES:
            raise unknown("table", given["name"], TABLES, str(path))
        return table_text(given["name"], "markdown", given["methods"], given["recipe"], results)

    if not path.is_file():
        raise BenchError(f"{path}: no such page")
    old = path.read_text(encoding="utf-8")
    new = filled(old, make, str(path))
    if new != old:
        path.write_text(new, encoding="utf-8")
    typer.echo(f"{path}: {'as it was' if new == old else 'made anew'}")


@app.command()
@told_in_one_line
def figure(
    name: Annotated[str, typer.Argument(help="One of those that `card bench list` names, or all.")],
    out: Annotated[Path, typer.Option(help="Folder to write PNG and SVG into.")] = Path("figures"),
    recipe: Annotated[str, typer.Option(help="modern or paper; the first found if not given.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="From the reports of `run --quick`.")] = False,
    results: Results = Path("results"),
) -> None:
    """Draw a figure of the paper from the reports and arrays kept here."""
    from card.bench.figures import FIGURES

    if name not in (*FIGURES, "all"):
        raise unknown("figure", name, FIGURES)
    _check_recipe(recipe)
    for each in FIGURES if name == "all" else [name]:
        _draw(each, results / "quick" if quick else results, out, recipe, needed=name != "all")


def main() -> None:
    """For `python -m card.bench.cli`."""
    app(args=sys.argv[1:], prog_name="card bench")


if __name__ == "__main__":
    main()
