"""The model card: what a model is, what it was fitted to, and with what it was made, for people to read.

It is written into every model file as README.md, so that a model found on a disk years later still says
what it is.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

PACKAGES = ("card-diffusion", "torch", "numpy", "scikit-learn", "narwhals")
MOST_COLUMNS = 50


def model_card(estimator: Any, metrics: dict[str, float] | None = None) -> str:
    """A fitted estimator in Markdown.

    Parameters
    ----------
    estimator : fitted CARDRegressor or CARDClassifier
    metrics : name -> value, measured on rows that the model has not seen
    """
    sections = [
        _title(estimator),
        _data(estimator),
        _response(estimator),
        _columns(estimator),
        _metrics(estimator, metrics),
        _settings(estimator),
        _use(estimator),
        _versions(),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(estimator: Any) -> str:
    targets = getattr(estimator, "target_names_", None)
    name = ", ".join(map(str, targets)) if targets is not None else "the response"
    return (
        f"# {type(estimator).__name__}: {_cell(name)}\n\n"
        "Predicts a whole distribution for each row, by diffusion around a mean model (CARD). "
        "The model file holds numbers and text only; loading it runs no code."
    )


def _data(estimator: Any) -> str:
    n_rows, n_columns = getattr(estimator, "n_rows_", None), getattr(estimator, "n_features_in_", None)
    said = [f"{n:,} {what}" for n, what in ((n_rows, "rows"), (n_columns, "columns")) if n is not None]
    return f"## Data\n\nFitted to {' of '.join(said)}." if said else ""


def _response(estimator: Any) -> str:
    if hasattr(estimator, "classes_"):
        classes = ", ".join(_cell(str(c)) for c in np.asarray(estimator.classes_)[:MOST_COLUMNS])
        return f"## Response\n\n{len(estimator.classes_)} classes: {classes}"
    codec = estimator.model_.codec
    lines = ["## Response", "", "| target | mean at fit | std at fit |", "|---|---|---|"]
    names = getattr(estimator, "target_names_", None) or [f"y{k}" for k in range(len(codec.location))]
    for name, location, scale in zip(names, codec.location, codec.scale, strict=True):
        lines.append(f"| {_cell(str(name))} | {float(location):.6g} | {float(scale):.6g} |")
    logs = ", learned as its logarithm, whose mean and std these are" if codec.response == "positive" else ""
    return "\n".join([*lines, "", f"Kind of response: {codec.response}{logs}."])


def _columns(estimator: Any) -> str:
    features = getattr(estimator, "features_", None)
    if getattr(estimator, "image_shape_", None) is not None:
        return f"## Rows\n\nImages of shape {estimator.image_shape_} (channels, height, width)."
    if features is None:
        return f"## Columns\n\n{estimator.n_features_in_} columns of numbers, taken as they are."
    lines = ["## Columns", "", "| column | kind | gaps at fit | learned |", "|---|---|---|---|"]
    for e in features.encoders[:MOST_COLUMNS]:
        lines.append(f"| {_cell(e.name)} | {e.kind} | {'yes' if e.gaps else 'no'} | {_learned(e)} |")
    more = len(features.encoders) - MOST_COLUMNS
    return "\n".join([*lines, *([f"| and {more} more | | | |"] if more > 0 else [])])


def _learned(e: Any) -> str:
    if e.kind in ("category", "many"):
        few = ", ".join(_cell(level) for level in e.levels[:6])
        return f"{len(e.levels)} levels: {few}{', ...' if len(e.levels) > 6 else ''}"
    if not e.scale.weight:
        return "constant"
    mean, std = e.scale.centre * e.scale.unit, e.scale.unit / e.scale.weight
    if e.kind == "date":
        return f"median {np.datetime64(0, 'D') + np.timedelta64(round(e.scale.median), 'D')}"
    return f"mean {mean:.4g}, std {std:.4g}"


def _metrics(estimator: Any, metrics: dict[str, float] | None) -> str:
    lines = [f"- {name}: {value:.6g}" for name, value in (metrics or {}).items()]
    if not hasattr(estimator, "classes_"):
        scale = np.ravel(estimator.model_.mean_scale * estimator.model_.codec.scale)
        kind = "out of fold" if estimator.get_params().get("cv") is not None else "in sample"
        lines.append(
            f"- typical error of the mean model alone, {kind}: {', '.join(f'{s:.6g}' for s in scale)}"
        )
    held_out = getattr(estimator, "held_out_scores_", None)
    if held_out is not None:
        lines.append(
            "- out of fold, {rows} rows, each by models that have not seen it: rmse {rmse:.6g}, "
            "crps {crps:.6g}, inside the 95 % interval {picp:.1f} %".format(**held_out)
        )
    known = getattr(estimator, "experience_", None)
    if known is not None:
        accuracy, f_accuracy = (100 * np.mean(c) for c in (known.correct, known.f_correct))
        n = len(known.correct)
        lines.append(f"- accuracy on {n} rows held out at fit: {accuracy:.2f} %, f alone {f_accuracy:.2f} %")
    return "\n".join(["## Metrics", "", *lines, "- on rows of your own: `card evaluate MODEL DATA`"])


def _settings(estimator: Any) -> str:
    default = type(estimator)().get_params(deep=False)
    changed = {k: v for k, v in estimator.get_params(deep=False).items() if repr(v) != repr(default[k])}
    machine = ("checkpoint_path", "device", "n_jobs", "verbose")
    said = [f"- `{k}`: {_cell(repr(v)[:80])}" for k, v in sorted(changed.items()) if k not in machine]
    return "\n".join(["## Settings", "", *(said or ["- all as by default"])])


def _use(estimator: Any) -> str:
    return (
        '## Use\n\n```python\nimport card\n\nmodel = card.load("this-file.card")\nmodel.predict(X)\n```\n\n'
        "Predictions hold for rows like those of fit. A level never seen, a value far outside "
        "what was seen, or a changed world is not announced by the intervals."
    )


def _versions() -> str:
    lines = [f"- Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            lines.append(f"- {package} {version(package)}")
        except PackageNotFoundError:
            continue
    return "\n".join(["## Made with", "", *lines])


def _cell(text: str) -> str:
    """Text that cannot break out of a table cell."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")[:120]
