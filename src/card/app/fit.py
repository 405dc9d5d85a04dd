"""card fit: from a file and the name of a column to a model file."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from card.app.common import Problem, Terminal, listed, require_other, responses
from card.columns import is_missing
from card.encoding import kind_of
from card.files import read_frame
from card.writing import atomic, require_free

Task = Literal["regression", "classification"]
FEW = 0.2  # of the cells are no numbers: they are likely not meant to make the column text
SEVERAL = 20  # labels from which on one may ask whether they are labels
LIKE_A_DATE = re.compile(r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b")


@dataclass(frozen=True)
class FitOptions:
    """What the person asked for."""

    data: Path
    target: list[str]
    out: Path
    task: Task | None = None
    recipe: str = "modern"
    device: str = "auto"
    seed: int = 0
    jobs: int | None = None
    checkpoint: Path | None = None
    categorical: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    group: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    encoding: str = "utf-8"
    force: bool = False


def fit(options: FitOptions, terminal: Terminal) -> None:
    """Read, guess the task and say so, fit, save."""
    require_other(options.out, options.data)
    require_free(options.out, options.force)
    frame = read_frame(options.data, options.encoding)
    _require_columns(frame, options)
    task, why = (options.task, "as asked") if options.task else guess_task(frame, options.target)
    terminal.note(f"task: {task} ({why})")
    y, keep = _response(frame, options, task, terminal)
    X = _features(frame, options)[keep]
    for doubt in (*doubtful_columns(X.drop(columns=options.categorical)), *row_numbers(X)):
        terminal.warn(doubt)
    if task == "regression" and "response" not in options.settings:
        for hint in whole_responses(frame.loc[keep, options.target]):
            terminal.note(hint)
    groups = frame.loc[keep, options.group].to_numpy() if options.group else None
    estimator = _estimator(task, options, terminal)
    start = time.perf_counter()
    estimator.fit(X, y, groups) if groups is not None else estimator.fit(X, y)
    estimator.target_names_ = list(options.target)
    if task == "regression" and estimator.response == "auto" and estimator.model_.codec.response != "real":
        why += ", over orders of magnitude, learned as their logarithm"
    with atomic(options.out, options.force) as part:
        estimator.save(part)
    seconds = time.perf_counter() - start
    said = {
        "task": task,
        "why": why,
        "rows": len(X),
        "columns": X.shape[1],
        "seconds": round(seconds, 2),
        "model": str(options.out),
    }
    terminal.result(
        f"{task} ({why}): {len(X)} rows, {X.shape[1]} columns, {seconds:.0f} s; model in {options.out}", said
    )


def guess_task(frame: pd.DataFrame, target: list[str]) -> tuple[Task, str]:
    """The task, and the reason in a few words.

    Examples
    --------
    >>> guess_task(pd.DataFrame({"price": [1.5, 2.0, 3.5]}), ["price"])
    ('regression', 'price holds numbers')
    >>> guess_task(pd.DataFrame({"ok": ["yes", "no", "no"]}), ["ok"])
    ('classification', 'ok holds labels')
    """
    if len(target) > 1:
        return "regression", "several targets"
    name = target[0]
    cells = frame[name].to_numpy(dtype=object)
    present = pd.Series(cells[~is_missing(cells)])
    if len(present) == 0:
        raise Problem(f"column {name!r} has no values at all")
    numbers = pd.to_numeric(present, errors="coerce")
    if numbers.isna().any() or all(isinstance(v, bool | np.bool_) for v in present):
        different = present.nunique()
        if different >= max(SEVERAL, len(present) / 2):
            raise Problem(
                f"column {name!r} holds {different} different labels in {len(present)} rows, such as "
                f"{present[numbers.isna()].iloc[0]!r}: write numbers as plain numbers, or say --task "
                "classification"
            )
        return "classification", f"{name} holds labels"
    if numbers.nunique() == 2 and (numbers % 1 == 0).all():
        return "classification", f"{name} holds two whole numbers"
    return "regression", f"{name} holds numbers"


def doubtful_columns(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each column of text that was likely meant as numbers or dates.

    Examples
    --------
    >>> list(doubtful_columns(pd.DataFrame({"size": ["1", "2", "3", "4", "many"]})))
    ["column 'size' is taken for text, since 1 of 5 cells are no numbers, such as 'many'"]
    """
    for name in frame.columns[frame.dtypes.astype(str).isin(["object", "str", "string"])]:
        cells = frame[name].to_numpy(dtype=object)
        present = pd.Series(cells[~is_missing(cells)])
        if not len(present) or not all(isinstance(v, str) for v in present):
            continue
        wrong = present[pd.to_numeric(present, errors="coerce").isna()]
        if 0 < len(wrong) <= FEW * len(present):
            yield (
                f"column {name!r} is taken for text, since {len(wrong)} of {len(present)} cells are no "
                f"numbers, such as {wrong.iloc[0]!r}"
            )
        elif present.str.match(LIKE_A_DATE).all() and kind_of(present.to_numpy(dtype=object)) != "date":
            yield (
                f"column {name!r} is taken for text: in which order are the days and months of "
                f"{present.iloc[0]!r}? write dates as 2024-05-31"
            )


def row_numbers(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each column that only counts the rows, as the index of a saved frame does.

    Examples
    --------
    >>> list(row_numbers(pd.DataFrame({"no": range(20)})))
    ["column 'no' counts the rows, which tells nothing of other files; --drop 'no' leaves it out"]
    """
    for name in frame.columns[frame.dtypes.astype(str) == "int64"]:
        if len(frame) >= SEVERAL and (np.diff(frame[name].to_numpy()) == 1).all():
            yield (
                f"column {name!r} counts the rows, which tells nothing of other files; "
                f"--drop {name!r} leaves it out"
            )


def whole_responses(y: pd.DataFrame) -> Iterator[str]:
    """A sentence for each response that looks like a count.

    Examples
    --------
    >>> list(whole_responses(pd.DataFrame({"visits": [0, 3, 5], "price": [1.5, 2.0, 9.0]})))
    ["'visits' holds whole numbers only; --set response=count predicts whole numbers"]
    """
    for name in y:
        numbers = pd.to_numeric(y[name], errors="coerce")
        if (numbers >= 0).all() and (numbers % 1 == 0).all():
            yield f"{name!r} holds whole numbers only; --set response=count predicts whole numbers"


def _require_columns(frame: pd.DataFrame, options: FitOptions) -> None:
    leave = [*options.drop, *([options.group] if options.group else [])]
    named = [*options.target, *leave, *options.categorical]
    absent = [name for name in named if name not in frame]
    if absent:
        raise Problem(f"{options.data} has no column {listed(absent)}; it has {listed(list(frame.columns))}")
    if len(set(options.target)) < len(options.target) or set(options.target) & {*leave, *options.categorical}:
        raise Problem(f"{listed(options.target)}: a target is named once, and is nothing else")
    if gone := set(options.categorical) & set(leave):
        raise Problem(f"{listed(sorted(gone))}: a column that is left out cannot be --categorical")


def _response(
    frame: pd.DataFrame, options: FitOptions, task: Task, terminal: Terminal
) -> tuple[pd.Series | pd.DataFrame, np.ndarray]:
    y = responses(frame[options.target], labels=task == "classification")
    keep = y.notna().all(axis=1).to_numpy()
    if not keep.any():
        raise Problem(f"column {listed(options.target)} of {options.data} has no values at all")
    if not keep.all():
        terminal.warn(
            f"{(~keep).sum()} of {len(keep)} rows have no {listed(options.target)} and were left out"
        )
    y = y[keep]
    return (y[options.target[0]] if len(options.target) == 1 else y), keep


def _features(frame: pd.DataFrame, options: FitOptions) -> pd.DataFrame:
    X = frame.drop(columns=[*options.target, *options.drop, *([options.group] if options.group else [])])
    if X.shape[1] == 0:
        raise Problem(f"{options.data} has no column besides {listed(options.target)} to predict from")
    return X


def _estimator(task: Task, options: FitOptions, terminal: Terminal) -> Any:
    import card

    kind = card.CARDRegressor if task == "regression" else card.CARDClassifier
    settings = {
        "random_state": options.seed,
        "device": options.device,
        "n_jobs": options.jobs,
        "verbose": terminal.watched,
        "checkpoint_path": options.checkpoint,
        "categorical_features": options.categorical or "auto",
        **options.settings,
    }
    unknown = sorted(set(settings) - set(kind().get_params()))
    if unknown:
        raise Problem(f"{kind.__name__} has no setting named {listed(unknown)}")
    return kind.from_recipe(options.recipe, **settings)
