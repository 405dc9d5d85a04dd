"""How a classifier comes along while it learns: the accuracy of a single draw after so many epochs.

While it is fitted, the state of its denoiser is kept every few epochs. Afterwards each state is put back into
the network, as it was then and not averaged over steps, and one draw for each test row is judged.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import nn

from card.bench.kinds import Data
from card.bench.shelf import digest
from card.bench.spec import Unit
from card.checkpoint import Checkpoint, Stage, write_atomically
from card.confidence import closeness
from card.nn import Table

POINTS = 10
"""States kept of a fit, at equal distances."""
NEEDED = ("param.", "table.", "buffer.")


class WatchedStage(Stage):
    """A stage that also leaves its state in a folder every so many epochs."""

    def __init__(self, stage: Stage, folder: Path, every: int) -> None:
        super().__init__(stage.path, stage.identity, stage.seconds)
        self.folder, self.every = folder, every

    def save(self, state: Any, force: bool = False) -> None:
        super().save(state, force)
        now = state()
        epoch = int(now["epoch"])
        if epoch % self.every == 0 and not force:
            kept = {k: v.detach().cpu().contiguous() for k, v in now.items() if k.startswith(NEEDED)}
            write_atomically(self.folder / f"{epoch}.safetensors", save(kept))


class Watched(Checkpoint):
    """A checkpoint whose stage of the denoiser is watched."""

    def __init__(self, checkpoint: Checkpoint, folder: Path, every: int) -> None:
        super().__init__(checkpoint.folder, checkpoint.identity, checkpoint.seconds)
        self.watch, self.every = folder, every

    def stage(self, name: str) -> Stage:
        stage = super().stage(name)
        return WatchedStage(stage, self.watch, self.every) if name.endswith("denoiser") else stage


@dataclass(frozen=True)
class Snapshots:
    """The states of a unit's fit, in a folder beside its checkpoints."""

    checkpoints: Path
    unit: Unit

    @property
    def folder(self) -> Path:
        return self.checkpoints / f"{digest([self.unit])}.curve"

    @contextmanager
    def watching(self, estimator: Any) -> Iterator[None]:
        """While in here, a fit of the estimator leaves its states behind."""
        ordinary = estimator._fitting
        every = max(1, (estimator.epochs or POINTS) // POINTS)
        estimator._fitting = lambda seed, bars, kept: ordinary(seed, bars, Watched(kept, self.folder, every))
        try:
            yield
        finally:
            del estimator._fitting

    def curve(self, estimator: Any, data: Data) -> list[list[float]]:
        """[epoch, accuracy of one draw in percent], in the order of epochs."""
        files = sorted(self.folder.glob("*.safetensors"), key=lambda path: int(path.stem))
        return [[int(path.stem), _accuracy(_as_of(estimator, path), data)] for path in files]

    def clear(self) -> None:
        for path in self.folder.glob("*"):
            path.unlink()
        if self.folder.is_dir():
            self.folder.rmdir()


@contextmanager
def watching(units: Sequence[Unit], estimators: Sequence[Any], checkpoints: Path | None) -> Iterator[None]:
    """`Snapshots.watching` for units that keep their curves, and where there is a folder for them."""
    with ExitStack() as stack:
        for unit, estimator in zip(units, estimators, strict=True):
            if checkpoints is not None and "curve" in unit.arrays:
                stack.enter_context(Snapshots(checkpoints, unit).watching(estimator))
        yield


def _as_of(estimator: Any, path: Path) -> Any:
    """The fitted classifier with its denoiser as it was."""
    other = copy.copy(estimator)
    denoiser = copy.deepcopy(estimator.model_.denoiser)
    denoiser.schedule = estimator.model_.denoiser.schedule  # it knows its time steps by identity
    _restore(denoiser, load_file(path))
    other.model_ = replace(estimator.model_, denoiser=denoiser)
    return other


def _restore(module: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """The weights that a training loop had (`card.train.Loop.state`)."""
    tables = {name: part for name, part in module.named_modules() if isinstance(part, Table)}
    lazy = {id(table.weight): f"table.{name}.state" for name, table in tables.items()}
    if not all(name in state for name in lazy.values()):
        lazy = {}  # the tables were trained like any other weights
    dense = (p for p in module.parameters() if id(p) not in lazy)
    with torch.no_grad():
        for i, p in enumerate(dense):
            p.copy_(state[f"param.{i}"])
        for table in tables.values():
            if id(table.weight) in lazy:
                table.weight.copy_(state[lazy[id(table.weight)]][:, 0].reshape(table.weight.shape))
        for name, buffer in module.named_buffers():
            buffer.copy_(state[f"buffer.{name}"])


def _accuracy(estimator: Any, data: Data) -> float:
    draw = estimator.sample(data.X_test, 1, random_state=0)[0]
    found = np.asarray(estimator.classes_)[closeness(draw).argmax(axis=1)]
    return float(100 * np.mean(found == data.y_test))
