"""A fit killed at any moment, kill -9 included, goes on to the result of an unbroken one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """
import sys
import numpy as np, torch
torch.set_num_threads(1)
import card.checkpoint
from card import CARDClassifier, CARDRegressor
card.checkpoint.Checkpoint.__init__.__defaults__ = (0.0,)  # write after every epoch
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3)); y = X.sum(1) + rng.normal(size=120)
recipe, checkpoint, out = sys.argv[1:4]
small = {"paper": dict(n_steps=50, beta_T=0.3, mean_epochs=30), "modern": dict(repeats=1, cv=3)}[recipe]
small |= dict(epochs=150, n_draws=20)
model = CARDRegressor.from_recipe(recipe, random_state=0, checkpoint_path=checkpoint or None, **small)
if len(sys.argv) > 4:
    y, X = (y > 0).astype(int), np.round(20 * X[:, None, :, None] + 20 * np.arange(4)).astype(np.float32)
    small = dict(n_steps=50, beta_T=0.3) if recipe == "paper" else dict(cv=2, encoder="linear")
    small |= dict(width=8, batch_size=16)
    small |= dict(mean="mlp-bn", mean_hidden=(8,), mean_epochs=3, epochs=30, n_draws=20)
    model = CARDClassifier.from_recipe(recipe, random_state=0, checkpoint_path=checkpoint or None, **small)
model.fit(X, y)
np.save(out, model.sample(X, 5, random_state=0))
"""


def start(tmp_path: Path, recipe: str, checkpoint: str, out: str, *more: str) -> subprocess.Popen:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), recipe, checkpoint, str(tmp_path / out), *more]
    return subprocess.Popen(command, env=environment)


STAGE = {
    "paper": "denoiser",
    "modern": "denoiser",
    "classify paper": "denoiser",
    "classify modern": "denoiser-0",
}


@pytest.mark.parametrize("case", STAGE)
def test_killed_twice_and_continued_equals_unbroken(case, tmp_path):
    recipe, more = case.split()[-1], case.split()[:-1]
    assert start(tmp_path, recipe, "", "whole.npy", *more).wait(timeout=120) == 0
    folder = tmp_path / "checkpoint"
    kills = 0
    for _ in range(2):
        process = start(tmp_path, recipe, str(folder), "resumed.npy", *more)
        deadline = time.monotonic() + 120
        started = folder / f"{STAGE[case]}.safetensors"
        before = started.stat().st_mtime_ns if started.exists() else None
        while process.poll() is None and time.monotonic() < deadline:
            if started.exists() and started.stat().st_mtime_ns != before:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        kills += process.wait(timeout=120) == -signal.SIGKILL
    assert kills >= 1
    assert start(tmp_path, recipe, str(folder), "resumed.npy", *more).wait(timeout=120) == 0
    assert np.array_equal(np.load(tmp_path / "whole.npy"), np.load(tmp_path / "resumed.npy"))
    assert not folder.exists()
