"""Rows that are images, and rows that come with probabilities: checks."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_images(X: Any) -> bool:
    """Whether X is an array of three or four axes."""
    return getattr(X, "ndim", 2) in (3, 4)


def check_images(X: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """(N, channels, height, width) in uint8 or float32; `shape` is that of an image at fit."""
    if not is_images(X):
        came = getattr(X, "shape", None)
        raise ValueError(
            f"images of shape {shape} were wanted, as at fit, in an array (n, channels, height, width); "
            f"got {'an array of shape ' + str(came) if came is not None else type(X).__name__}."
        )
    x = np.asarray(X)
    if x.dtype.kind not in "uifb":
        raise ValueError(f"images must hold numbers, got {x.dtype}.")
    x = x[:, None] if x.ndim == 3 else x
    if len(x) == 0 or min(x.shape) == 0:
        raise ValueError(f"Found array with 0 sample(s) or pixels (shape={x.shape}); at least one is needed.")
    if x.dtype.kind in "ui" and x.dtype != np.uint8 and x.min() >= 0 and x.max() <= 255:
        x = x.astype(np.uint8)  # whole numbers of a byte, however they are stored
    if x.dtype != np.uint8:
        x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise ValueError("images hold NaN or infinite pixels: mend or leave out those images.")
    if shape is not None and x.shape[1:] != tuple(shape):
        raise ValueError(
            f"images of shape {tuple(shape)} (channels, height, width) were wanted, as at fit; got "
            f"{x.shape[1:]}: bring them to that size."
        )
    return np.ascontiguousarray(x)


def given_pair(X: Any) -> tuple[Any, np.ndarray]:
    """(rows, probabilities) as rows and checked probabilities."""
    if not (isinstance(X, tuple) and len(X) == 2):
        raise ValueError(
            f"with mean='given', X is a pair (rows, probabilities of f); got {type(X).__name__}."
        )
    rows, f = X[0], np.asarray(X[1], dtype=np.float64)
    if f.ndim != 2 or not np.isfinite(f).all() or f.min(initial=0.0) < 0:
        raise ValueError(
            "the probabilities of f must be an array (n_rows, n_classes) of numbers of 0 or more."
        )
    sums = f.sum(axis=1)
    wrong = np.abs(sums - 1.0) > 1e-3
    if wrong.any():
        raise ValueError(
            f"the probabilities of f must sum to 1 in each row; {wrong.sum()} of {len(f)} rows do not, "
            f"one sums to {sums[wrong][0]:.6g}."
        )
    return rows, (f / sums[:, None]).astype(np.float32)
