"""Mistakes in what was asked for, each told in one line that names the nearest valid choice."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BenchError(ValueError):
    """What was asked for cannot be run or shown; nothing has been written."""


class DataNotAvailable(RuntimeError):
    """A data set of this experiment is neither on this machine nor to be had by download."""


def unknown(what: str, name: object, choices: Iterable[str], where: str = "") -> BenchError:
    """The error for a name that is not among the choices: one that begins so is nearest.

    Examples
    --------
    >>> print(unknown("data set", "bostn", ["boston", "yacht"]))
    unknown data set 'bostn'; did you mean 'boston'?
    >>> print(unknown("method", "zzz", ["card", "pbp"], where="experiments/uci.toml"))
    experiments/uci.toml: unknown method 'zzz'; choose from card, pbp
    """
    valid = {choice.lower(): choice for choice in choices}
    given = str(name).lower()
    begun = [choice for choice in valid if given and choice.startswith(given)]
    near = sorted(begun, key=len) or get_close_matches(given, valid, n=1, cutoff=0.5)
    remedy = f"did you mean {valid[near[0]]!r}?" if near else f"choose from {', '.join(valid.values())}"
    prefix = f"{where}: " if where else ""
    return BenchError(f"{prefix}unknown {what} {name!r}; {remedy}")
