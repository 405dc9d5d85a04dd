"""Where a figure was made: versions of what computed it, and on which hardware."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch")


@cache
def versions(more: tuple[str, ...] = ()) -> dict[str, str]:
    """Of Python, of the packages that do the arithmetic, and of those that a method has beside them."""
    names = (*PACKAGES, *more)
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


@cache
def hardware() -> dict[str, str | int]:
    return {"machine": platform.machine(), "cpu": _cpu(), "cores": os.cpu_count() or 1, "threads": 1}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


@cache
def version() -> str:
    """Of this library."""
    return metadata.version("card-diffusion")
