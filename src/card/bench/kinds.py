"""Kinds of experiment: which data sets there are, how one unit's data are loaded, how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from card import datasets
from card.bench.errors import BenchError, DataNotAvailable
from card.datasets.fetch import locate


@dataclass(frozen=True)
class Data:
    """Training and test rows of one unit."""

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    truth: np.ndarray | None = None
    """Noise-free response of the test rows: RMSE is taken against it where it is known and meaningful."""


@dataclass(frozen=True)
class Kind:
    """A family of data sets that are loaded and scored alike."""

    name: str
    index: Literal["split", "seed"]
    task: Literal["regression", "classification"]
    datasets: Mapping[str, tuple[int, int | None]]
    """Name -> (rows, number of splits; None where any seed will do)."""
    load: Callable[[str, int, str], Data]
    """(data set, split or seed, recipe) -> data."""
    joins: Literal["splits", "data sets", "variants"]
    """What may be fitted together: data of one shape with equal settings, or variants on the same data."""
    arrays: tuple[str, ...] = ()
    """Arrays that are kept of the first seed, whatever an experiment says."""

    def rows(self, dataset: str) -> int:
        return self.datasets[dataset][0]

    def indices(self, dataset: str) -> tuple[int, ...]:
        """All splits of a data set; seeds have no end, so "all" of them is one."""
        return tuple(range(self.datasets[dataset][1] or 1))

    def check_index(self, dataset: str, index: int, where: str = "") -> None:
        """Refuse a split that the data set does not have."""
        count = self.datasets[dataset][1]
        if index < 0 or (count is not None and index >= count):
            prefix = f"{where}: " if where else ""
            nearest = 0 if index < 0 or count is None else count - 1
            span = "any number from 0" if count is None else f"{self.index}s 0-{count - 1}"
            raise BenchError(
                f"{prefix}unknown {self.index} {index} of {dataset}, which has {span}; "
                f"the nearest is {nearest}"
            )


def _load_uci(name: str, split: int, recipe: str) -> Data:
    rows = _available(name, lambda: datasets.load_uci(name)).split(split)
    return Data(rows.X_train, rows.y_train, rows.X_test, rows.y_test)


def toy_of(name: str, seed: int, recipe: str) -> datasets.Toy:
    """The paper's figures come from the authors' code, so its recipe takes their variant of the toys."""
    return datasets.make_toy(name, random_state=seed, variant="authors" if recipe == "paper" else "paper")


def _load_toy(name: str, seed: int, recipe: str) -> Data:
    toy = toy_of(name, seed, recipe)
    rows = toy.split()
    return Data(rows.X_train, rows.y_train, rows.X_test, rows.y_test, toy.law.noiseless(rows.X_test))


def _load_image(name: str, seed: int, recipe: str) -> Data:
    if name in PICTURES:
        return _load_pictures(name)
    rows = _available(name, lambda: datasets.load_image(name))
    return Data(rows.X_train, rows.y_train, rows.X_test, rows.y_test)


def _load_pictures(name: str) -> Data:
    """From <name>/train and <name>/val, each with a folder for every class, brought to one small size."""
    folder = locate([name])
    if folder is None or not (folder / "train").is_dir():
        raise DataNotAvailable(name)
    train, test = (datasets.load_image_folder(folder / part, PICTURES[name]) for part in ("train", "val"))
    if train.classes != test.classes:
        raise ValueError(f"{folder}: train and val have different classes; give both the same folders")
    return Data(train.X, train.y, test.X, test.y)


def _available(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except FileNotFoundError as error:
        raise DataNotAvailable(name) from error


UCI = {
    "boston": (506, 20),
    "concrete": (1030, 20),
    "energy": (768, 20),
    "kin8nm": (8192, 20),
    "naval": (11934, 20),
    "power": (9568, 20),
    "protein": (45730, 5),
    "wine": (1599, 20),
    "yacht": (308, 20),
    "year": (515345, 1),
}
TOYS = {
    "linear": "Linear",
    "quadratic": "Quadratic",
    "log_log_linear": "Log-Log Linear",
    "log_log_cubic": "Log-Log Cubic",
    "sinusoidal": "Sinusoidal",
    "inverse_sinusoidal": "Inverse Sinusoidal",
    "eight_gaussians": "8 Gaussians",
    "full_circle": "Full Circle",
}
"""Name -> the paper's title."""
IMAGES = {
    "noisy_mnist": 70000,
    "fashion_mnist": 70000,
    "cifar10": 60000,
    "cifar100": 60000,
    "imagenet100": 130000,
    "imagenet": 1331167,
}
PICTURES = {"imagenet100": (64, 64), "imagenet": (64, 64)}
"""Sets that are folders of pictures, and the height and width they are read at."""
KINDS = {
    kind.name: kind
    for kind in (
        Kind("uci", "split", "regression", UCI, _load_uci, "splits"),
        Kind("toy", "seed", "regression", dict.fromkeys(TOYS, (10240, None)), _load_toy, "data sets"),
        Kind(
            "image",
            "seed",
            "classification",
            {name: (rows, None) for name, rows in IMAGES.items()},
            _load_image,
            "variants",
            arrays=("differences",),
        ),
    )
}
