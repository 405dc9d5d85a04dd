"""Treeffuser: a diffusion whose score is learned by gradient-boosted trees (Beltran-Velez et al. 2024).

Its pins (numpy below 2, one version of LightGBM) do not go with ours, so it runs in an environment of its
own. Make one, and name its interpreter:

    python3 -m venv treeffuser-env
    treeffuser-env/bin/pip install treeffuser==0.2.0
    export CARD_TREEFFUSER=$PWD/treeffuser-env/bin/python

A fit and a prediction each start that interpreter on `treeffuser_worker.py`; arrays go to and fro as files,
and the times of a benchmark include this (about two seconds a call). The prediction is a set of draws.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from card.distribution import Draws, check_n_draws
from card.peers.base import Peer, PeerNotAvailable

VARIABLE = "CARD_TREEFFUSER"
WORKER = Path(__file__).with_name("treeffuser_worker.py")


class TreeffuserRegressor(Peer):
    """Treeffuser with its defaults.

    Parameters
    ----------
    n_draws
        Draws that a prediction is made of.
    random_state
        Seed of everything random.
    """

    def __init__(self, n_draws: int = 200, random_state: int | None = None) -> None:
        self.n_draws, self.random_state = n_draws, random_state

    def _learn(self, X, y, seed):
        check_n_draws(self.n_draws, at_least=2)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "rows.npz", X=X, y=y)
            work("fit", folder, seed)
            return (Path(folder) / "model").read_bytes(), seed

    def _law(self, X):
        model, seed = self.model_
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "rows.npz", X=X)
            (Path(folder) / "model").write_bytes(model)
            work("sample", folder, seed, self.n_draws)
            draws = np.load(Path(folder) / "draws.npy")
        return Draws(draws.reshape(self.n_draws, len(X), 1), squeeze=True)


def work(*words: object) -> None:
    """Run the worker in Treeffuser's own environment."""
    python = os.environ.get(VARIABLE)
    if not python or not Path(python).exists():
        found = f"which names {python}, where there is none" if python else "which is not set"
        raise PeerNotAvailable(
            f"treeffuser runs in an environment of its own, by the interpreter that {VARIABLE} "
            f"names, {found}: "
            "python3 -m venv treeffuser-env && treeffuser-env/bin/pip install treeffuser==0.2.0, then "
            f"export {VARIABLE}=$PWD/treeffuser-env/bin/python"
        )
    command = [python, "-I", str(WORKER), *map(str, words)]  # isolated: modules beside it are not on its path
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise RuntimeError(f"treeffuser failed in {python}: {last}")


__all__ = ["TreeffuserRegressor"]
