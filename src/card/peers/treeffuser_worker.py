"""Run by Treeffuser's own interpreter, which knows nothing of this library.

    python treeffuser_worker.py fit FOLDER SEED             rows.npz (X, y) -> model
    python treeffuser_worker.py sample FOLDER SEED N_DRAWS  rows.npz (X), model -> draws.npy (N_DRAWS, N)

The model goes from one call to the next as a pickle that this file alone writes and reads.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np


def fit(folder: Path, seed: int) -> None:
    from treeffuser import Treeffuser

    rows = np.load(folder / "rows.npz")
    model = Treeffuser(seed=seed, n_jobs=1)
    model.fit(rows["X"], rows["y"])
    (folder / "model").write_bytes(pickle.dumps(model))


def sample(folder: Path, seed: int, n_draws: int) -> None:
    model = pickle.loads((folder / "model").read_bytes())
    draws = model.sample(np.load(folder / "rows.npz")["X"], n_samples=n_draws, seed=seed)
    np.save(folder / "draws.npy", np.asarray(draws, dtype=np.float64).reshape(n_draws, -1))


def main(action: str, folder: str, *numbers: str) -> None:
    work = fit if action == "fit" else sample
    work(Path(folder), *map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
