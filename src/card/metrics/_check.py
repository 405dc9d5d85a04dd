"""What every metric asks of its arrays: real numbers, matching shapes, at least one row."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Score = Any  # a float for y of shape (n_rows,), an array (n_targets,) for y of shape (n_rows, n_targets)


def numbers(name: str, values: ArrayLike, *, allow_inf: bool = False) -> NDArray:
    """The values as a floating-point array; NaN, and infinity unless allowed, are refused."""
    try:
        array = np.asarray(values)
        array = array if array.dtype.kind == "f" else array.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    bad = np.isnan(array) if allow_inf else ~np.isfinite(array)
    if bad.any():
        what = "NaN" if allow_inf else "NaN or infinite values"
        raise ValueError(f"{name} holds {what} ({bad.sum()} of {bad.size}); leave those rows out first")
    return array


def responses(y: ArrayLike) -> Floats:
    """Observed responses, (n_rows,) or (n_rows, n_targets)."""
    array = numbers("y", y).astype(float, copy=False)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(
            f"y must have shape (n_rows,) or (n_rows, n_targets) with at least one row; got {array.shape}"
        )
    return array


def same_shape(name: str, array: NDArray, other: str, wanted: NDArray) -> None:
    if array.shape != wanted.shape:
        raise ValueError(f"{name} must have the shape of {other}, {wanted.shape}; got {array.shape}")


def draws_of(y: Floats, draws: ArrayLike, *, at_least: int = 1) -> NDArray:
    """Draws (n_draws, n_rows[, n_targets]) of responses y (n_rows[, n_targets])."""
    array = np.asarray(draws)
    if array.ndim != y.ndim + 1 or array.shape[1:] != y.shape:
        wanted = ", ".join(["n_draws", *map(str, y.shape)])
        raise ValueError(
            f"draws must have shape ({wanted}), the draws first, to go with y of shape {y.shape}; "
            f"got {array.shape}"
        )
    if len(array) < at_least:
        raise ValueError(f"at least {at_least} draw(s) of every row are needed; got {len(array)}")
    return numbers("draws", array)


def fractions(name: str, values: ArrayLike) -> Floats:
    """Numbers between 0 and 1; what rounding alone puts outside is clipped."""
    array = numbers(name, values).astype(float, copy=False)
    if array.size and (array.min() < -1e-6 or array.max() > 1 + 1e-6):
        raise ValueError(f"{name} must lie between 0 and 1; got {array.min():.6g} to {array.max():.6g}")
    return array.clip(0, 1)


def plain(score: Floats) -> Score:
    """A Python float where there is one number; the array where there are several."""
    return float(score) if np.ndim(score) == 0 else score
