"""Small arrays kept beside the reports, for figures that show more than a number."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from card.bench.kinds import Data


def scatter(prediction: Mapping[str, Any], data: Data, seed: int) -> dict[str, np.ndarray]:
    """One draw for each test row, the 95 % interval, the mean, and the shares of the ten quantile bins."""
    quantiles = np.asarray(prediction["quantiles"])
    bins = (quantiles[:, 2:] < np.asarray(data.y_test)[:, None]).sum(axis=1)
    draw = prediction["distribution"].sample(1, random_state=seed)[0]
    arrays = {
        "x": np.asarray(data.X_test, dtype=float)[:, 0],
        "y": data.y_test,
        "draw": draw,
        "mean": prediction["mean"],
        "lower": quantiles[:, 0],
        "upper": quantiles[:, 1],
    }
    shares = np.bincount(bins, minlength=10) / len(bins)
    return {name: np.asarray(value, dtype=np.float32) for name, value in {**arrays, "shares": shares}.items()}


def array_path(results: Path, report: Mapping[str, Any], stem: str) -> Path:
    """Where the arrays of a report are kept: results/arrays/<report file>-<unit>.npz."""
    index = report.get("split", report.get("seed"))
    words = [stem, report["dataset"], index, report["method"], report["recipe"], report.get("variant", "")]
    name = "-".join(str(word) for word in words if word != "")
    return results / "arrays" / f"{_safe(name)}.npz"


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays so that the file is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a file, or None if there is no such file."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
