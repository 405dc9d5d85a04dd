"""Names as people type them: 'Log-Log cubic' is log_log_cubic, and a near miss is told the nearest name."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def choose(what: str, name: str, choices: Mapping[str, T]) -> tuple[str, T]:
    """The entry of `choices` that `name` means, with its proper name."""
    key = "_".join(str(name).lower().replace("-", " ").replace("_", " ").split())
    squeezed = {choice.replace("_", ""): choice for choice in choices}
    key = squeezed.get(key.replace("_", ""), key)
    if key in choices:
        return key, choices[key]
    near = get_close_matches(key, choices, n=1, cutoff=0.3)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"there is no {what} named {name!r}.{hint} There are: {', '.join(choices)}.")
