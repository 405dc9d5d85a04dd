"""card predict: a file of rows in, a line for each out, in bounded memory whatever its length."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from card.app.common import (
    Columns,
    Problem,
    Terminal,
    counted,
    listed,
    load_model,
    require_other,
    rows_of,
    warn_of_extra,
)
from card.facts import is_classifier, n_targets, target_names
from card.files import estimate_rows, read_chunks
from card.writing import Writer, csv_text, json_lines, require_columns

USUAL = (0.05, 0.5, 0.95)  # quantiles where nothing is said, and no draws are wanted


@dataclass(frozen=True)
class PredictOptions:
    """What the person asked for; `out` None is standard output, `quantiles` None the usual ones."""

    model: Path
    data: Path
    out: Path | None = None
    quantiles: tuple[float, ...] | None = None
    interval: float | None = None
    draws: int | None = None
    keep: bool = False
    seed: int = 0
    encoding: str = "utf-8"
    force: bool = False


def predict(options: PredictOptions, terminal: Terminal) -> None:
    """Stream the file through the model."""
    require_other(options.out, options.data, options.model)
    model = load_model(options.model)
    columns = Columns(model)
    sink: AbstractContextManager[Any] = (
        Writer(options.out, options.force) if options.out else nullcontext(_Printer(terminal.json))
    )
    if is_classifier(model) and (options.quantiles or options.interval or options.draws):
        terminal.warn("the model predicts classes: --quantiles, --interval and --draws are for numbers")
    n_rows = 0
    with sink as out, counted(terminal, "predicting", estimate_rows(options.data)) as advance:
        for number, chunk in enumerate(read_chunks(options.data, encoding=options.encoding)):
            X = columns.features(chunk, options.data, target_names(model) or [])
            if number == 0:
                warn_of_extra(columns, chunk, options.data, terminal)
            with rows_of(options.data, n_rows, len(chunk)):
                result = predictions(model, X, options, number)
            out.write(_beside(chunk, result) if options.keep else result)
            n_rows += len(chunk)
            advance(len(chunk))
    if options.out:
        terminal.result(f"{n_rows} predictions in {options.out}", {"rows": n_rows, "out": str(options.out)})


def predictions(model: Any, X: Any, options: PredictOptions, chunk: int = 0) -> pd.DataFrame:
    """The output columns for some rows; draws of each chunk have noise of their own."""
    if is_classifier(model):
        return _classes(model, X)
    distribution = model.predict_distribution(X)
    table = {"mean": distribution.mean()}
    levels = options.quantiles
    if levels is None:
        levels = USUAL if options.draws is None else ()
    if levels:
        values = distribution.quantile(levels)
        table |= {f"q{q}": values[:, i] for i, q in enumerate(levels)}
    if options.interval is not None:
        bounds = distribution.interval(options.interval)
        table |= {"lower": bounds[:, 0], "upper": bounds[:, 1]}
    if options.draws is not None:
        seed = int(np.random.SeedSequence([options.seed, chunk]).generate_state(1)[0] >> 1)
        draws = model.sample(X, options.draws, random_state=seed)
        table |= {f"draw_{i + 1}": draw for i, draw in enumerate(draws)}
    if n_targets(model) is None:
        return pd.DataFrame(table)
    names = target_names(model) or [f"y{k}" for k in range(n_targets(model) or 0)]
    return pd.DataFrame(
        {f"{name}_{column}": v[:, k] for k, name in enumerate(names) for column, v in table.items()}
    )


def _classes(model: Any, X: Any) -> pd.DataFrame:
    proba, details = model.predict_proba(X), model.assess(X)
    piw = [c for c in details.columns if str(c).startswith("piw_")]
    table = {"label": model.classes_[proba.argmax(axis=1)]}
    table |= {probability_name(c): proba[:, i] for i, c in enumerate(model.classes_)}
    table |= {c: details[c].to_numpy() for c in [*piw, "p_value", "certain"]}
    return pd.DataFrame(table)


def probability_name(label: Any) -> str:
    """The column of a class's probability.

    >>> probability_name("yes"), probability_name("value")  # p_value is the t-test's
    ('p_yes', 'p_value_class')
    """
    return f"p_{label}" if str(label) != "value" else "p_value_class"


def _beside(chunk: pd.DataFrame, result: pd.DataFrame) -> pd.DataFrame:
    twice = [str(c) for c in chunk.columns if c in result]
    if twice:
        raise Problem(f"--keep: the input already has columns named {listed(twice)}")
    return pd.concat([chunk.reset_index(drop=True), result], axis=1)


class _Printer:
    """CSV, or JSON lines, on standard output."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self.names: list[str] = []

    def write(self, frame: pd.DataFrame) -> None:
        if self.json:
            sys.stdout.write(json_lines(frame))
            return
        header = not self.names
        self.names = self.names or list(frame.columns)
        require_columns(frame, self.names, "standard output")
        sys.stdout.write(csv_text(frame, header=header))
