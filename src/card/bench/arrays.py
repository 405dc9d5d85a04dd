"""Small arrays kept beside the reports, for figures that show more than a number."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from card.bench.kinds import Data
from card.checkpoint import write_atomically
from card.confidence import qq_differences

QQ_ROWS = 16


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


def differences(estimator: Any, data: Data, seed: int) -> dict[str, np.ndarray]:
    """Of some test rows, the differences over draws between the two leading probabilities, for Q-Q plots.

    Nothing of a classifier that does not draw prototypes.
    """
    if not hasattr(estimator, "tau_"):
        return {}
    rows = np.linspace(0, len(data.y_test) - 1, min(QQ_ROWS, len(data.y_test))).round().astype(int)
    draws = estimator.sample(data.X_test[rows], estimator.n_draws, random_state=seed)
    return {"differences": qq_differences(draws, estimator.tau_).ordered.T.astype(np.float32)}


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
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a file, or None if there is no such file."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
