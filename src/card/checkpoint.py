"""Training state on disk: written atomically, so that a run killed at any moment can go on.

A checkpoint folder holds one file per stage of a fit. A stage's file carries a fingerprint of
what is being fitted (data, settings, seed); a file of another fit is refused, never silently used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

State = dict[str, Tensor]


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a reader, or a crash, sees the old file or the new one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def fingerprint(settings: dict[str, object], *arrays: np.ndarray) -> str:
    """A digest of settings and data by which a checkpoint knows its own fit."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    for array in arrays:
        digest.update(repr((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Stage:
    """The checkpoint of one stage of a fit; saves at most once every `seconds`."""

    def __init__(self, path: Path, identity: str, seconds: float) -> None:
        self.path, self.identity, self.seconds = path, identity, seconds
        self.saved = time.monotonic()

    def load(self) -> State | None:
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                if (file.metadata() or {}).get("fit") != self.identity:
                    raise ValueError(
                        f"The checkpoint {self.path} belongs to another fit (other data, settings or seed). "
                        "Give another checkpoint_path, or delete it to start anew."
                    )
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise ValueError(
                f"The checkpoint {self.path} cannot be read ({error}). Delete it to start anew."
            ) from error

    def save(self, state: Callable[[], State], force: bool = False) -> None:
        """Write what `state` gives, if it is time to."""
        if not force and time.monotonic() - self.saved < self.seconds:
            return
        tensors = {name: value.detach().cpu().contiguous() for name, value in state().items()}
        write_atomically(self.path, save(tensors, metadata={"fit": self.identity}))
        self.saved = time.monotonic()


class Checkpoint:
    """A folder of stages, removed when the fit has succeeded."""

    def __init__(self, folder: str | os.PathLike[str], identity: str, seconds: float = 15.0) -> None:
        self.folder, self.identity, self.seconds = Path(folder), identity, seconds
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint_path must be a folder, but {self.folder} is a file.")

    def stage(self, name: str) -> Stage:
        return Stage(self.folder / f"{name}.safetensors", self.identity, self.seconds)

    def clear(self) -> None:
        """Remove what this class writes; leave anything else in the folder alone."""
        for file in self.folder.glob("*.safetensors"):
            if _identity(file) == self.identity:
                for partial in self.folder.glob(f".{file.name}.*.partial"):  # of a writer that was killed
                    partial.unlink()
                file.unlink()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            shutil.rmtree(self.folder)


def _identity(path: Path) -> str | None:
    """Of the fit whose state a file holds; None for a file of somebody else's."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("fit")
    except (SafetensorError, OSError):
        return None
