"""From a file to predictions: time and memory of the command line on a large mixed table.

A table of 30 columns (numbers, categories, many levels, booleans, dates) with 10 % missing is written as
CSV. Measured, each in processes of their own (Linux only): time and peak memory of `card fit`; rows per
second of `card predict` beside those of the library on a frame in memory; peak memory of `card predict`
on a tenth of the rows and on all of them.

    python benchmarks/tables.py                  # 100,000 rows, some 20 minutes on two cores
    python benchmarks/tables.py --rows 5000      # a quick look
    python benchmarks/tables.py --model m.card   # keep the model, or use it if it is there
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

GIB = 2**30
PREDICTED = 10_000  # rows for the rates


@dataclass(frozen=True)
class Run:
    """What a process took: seconds on the clock, seconds of processor, bytes of memory at most."""

    seconds: float
    cpu: float
    memory: int


def mixed_table(n: int, seed: int = 0) -> pd.DataFrame:
    """30 columns and a response that depends on some of them, with noise that does too."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 18))
    town = rng.integers(0, 6, n)
    table = {f"number_{i}": numbers[:, i].round(4) for i in range(18)}
    table |= {f"integer_{i}": rng.integers(0, 50, n) for i in range(3)}
    table |= {f"class_{i}": np.array(list("abcdefgh"))[rng.integers(0, 3 + i, n)] for i in range(4)}
    table["town"] = np.array(["Ulm", "Bonn", "Köln", "Trier", "Jena", "Kiel"])[town]
    table["customer"] = np.char.add("c", rng.zipf(1.3, n).clip(max=20_000).astype(str))
    table["member"] = rng.random(n) < 0.3
    table["opened"] = (np.datetime64("2015-01-01") + rng.integers(0, 3000, n)).astype(str)
    table["seen"] = (np.datetime64("2023-01-01T00:00") + rng.integers(0, 500_000, n)).astype(str)
    frame = pd.DataFrame(table).astype(object).mask(rng.random((n, 30)) < 0.1)
    signal = numbers[:, 0] + np.sin(2 * numbers[:, 1]) + 0.5 * town + np.where(numbers[:, 2] > 0, 1, -1)
    frame["response"] = (signal + rng.normal(size=n) * np.exp(0.3 * numbers[:, 3])).round(4)
    return frame


def card(*arguments: object) -> Run:
    """Run a command and measure it, its worker processes included."""
    command = [sys.executable, "-c", "from card.cli import main; main()", *map(str, arguments)]
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"failed: card {' '.join(map(str, arguments))}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(time.perf_counter() - start, cpu, peak)


def tree_memory(root: int) -> int:
    """Bytes held by a process and all that descend from it; shared pages count once for each."""
    parents, pages = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], pages[int(entry.name)] = int(fields[1]), int(fields[21])
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(pages.get(pid, 0) for pid in family) * os.sysconf("SC_PAGESIZE")


def library_seconds(model: Path, frame: pd.DataFrame) -> float:
    """Processor seconds of the library for what the command writes: mean and three quantiles."""
    from card import load

    estimator = load(model)
    X = frame.drop(columns="response")
    start = time.process_time()
    for first in range(0, len(X), 4096):
        distribution = estimator.predict_distribution(X[first : first + 4096])
        distribution.mean()
        for q in (0.05, 0.5, 0.95):
            distribution.quantile(q)
    return time.process_time() - start


def line(what: str, value: str, wanted: str, good: bool) -> None:
    print(f"{what:52} {value:>24}   wanted {wanted:16} {'ok' if good else 'MISSED'}", flush=True)


def measure(n: int, folder: Path, model: Path) -> None:
    """Everything, on n rows."""
    frame = mixed_table(n)
    whole, tenth, some = folder / "whole.csv", folder / "tenth.csv", folder / "some.csv"
    n_some = min(n, PREDICTED)
    for path, rows in ((whole, n), (tenth, n // 10), (some, n_some)):
        frame[:rows].to_csv(path, index=False)
    if not model.exists():
        fit = card("fit", whole, "--target", "response", "--out", model, "--jobs", 2)
        said = f"{fit.seconds:.0f} s ({fit.cpu:.0f} s cpu)"
        line(f"fit, {n:,} rows, 30 columns, two cores", said, "< 600 s", fit.seconds < 600)
        line("fit, peak memory", f"{fit.memory / GIB:.2f} GiB", "< 3 GiB", fit.memory < 3 * GIB)
    start_up = card("predict", model, _head(some, folder), "--out", folder / "p0.csv")
    ours = card("predict", model, some, "--out", folder / "p1.csv").cpu - start_up.cpu
    theirs = library_seconds(model, frame[:n_some])
    share = theirs / ours
    said = f"{n_some / ours:.0f} of {n_some / theirs:.0f} rows/s"
    line("predict, command of library, per cpu second", said, ">= 80 %", share >= 0.8)
    small = card("predict", model, tenth, "--out", folder / "p2.csv")
    large = card("predict", model, whole, "--out", folder / "p3.csv")
    ratio = large.memory / small.memory
    said = f"{large.memory / 2**20:.0f} / {small.memory / 2**20:.0f} MiB"
    line(f"predict, peak memory, {n:,} / {n // 10:,} rows", said, "within 10 %", ratio < 1.1)


def _head(path: Path, folder: Path) -> Path:
    """A file of one row: what a command costs before it predicts."""
    head = folder / "head.csv"
    with path.open(encoding="utf-8") as text:
        head.write_text(text.readline() + text.readline(), encoding="utf-8")
    return head


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(options.rows, folder, options.model or folder / "model.card")


if __name__ == "__main__":
    main()
