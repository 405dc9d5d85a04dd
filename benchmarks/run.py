"""The library against `reference.py`, as ratios measured in one run on one thread.

Each side runs in a process of its own and they take turns; seconds are those of the processor, and
the median of the ratios is told, so that a busy machine troubles neither side more than the other. Long
things are measured in part and say so: the reference's full budget on Boston follows from its measured
rates.

    python benchmarks/run.py            # everything, a few minutes
    python benchmarks/run.py --rounds 1 # a quick look
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import reference
import torch

from card import CARDRegressor
from card.datasets import load_uci
from card.estimators import fit_together
from card.sample import Ddim

MEMBERS = 20
BATCH = 32
N_DRAWS = 1000
CHAIN = 20  # of the 1000 steps of a chain are measured
SETTINGS = reference.Settings()
BOSTON = load_uci("boston")


@dataclass(frozen=True)
class Line:
    """One line of the result: what was measured, and what it should at least be."""

    what: str
    library: str
    reference: str
    value: float
    wanted: float
    unit: str = "x"

    def __str__(self) -> str:
        verdict = "ok" if self.value >= self.wanted else "below"
        value = f"{self.value:.0f}" if self.value >= 100 else f"{self.value:.2f}"
        measured = f"{self.what:60} {self.library:>19} {self.reference:>19} {value + self.unit:>11}"
        return f"{measured}  wanted {f'{self.wanted:g}{self.unit}':>9}  {verdict}"


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure_reference() -> reference.Rates:
    rows = BOSTON.split(0)
    x = (rows.X_train - rows.X_train.mean(axis=0)) / rows.X_train.std(axis=0)
    y = (rows.y_train - rows.y_train.mean()) / rows.y_train.std()
    tensors = (torch.tensor(a, dtype=torch.float32) for a in (x, y[:, None]))
    return reference.measure(*tensors, len(rows.y_test), N_DRAWS, SETTINGS, CHAIN)


def paper_fit(n_members: int, epochs: int) -> list[CARDRegressor]:
    """The paper's denoiser on the first splits of Boston, in one batched run; f is left out of the timing."""
    splits = [BOSTON.split(i) for i in range(n_members)]
    fitted = [
        CARDRegressor.from_recipe("paper", mean="zero", epochs=epochs, batch_size=BATCH, random_state=i)
        for i in range(n_members)
    ]
    fit_together(fitted, [s.X_train for s in splits], [s.y_train for s in splits])
    return fitted


def training_rate(n_members: int, epochs: int) -> float:
    """Model-steps a second."""
    steps = epochs * -(-len(BOSTON.split(0).y_train) // BATCH)
    return n_members * steps / seconds(lambda: paper_fit(n_members, epochs))


def sampling_rate(fitted: CARDRegressor) -> float:
    """Row-steps a second of the ancestral chain's last steps."""
    x = fitted._encode(BOSTON.split(0).X_test)
    sampler = Ddim(fitted.schedule_, tuple(range(CHAIN, -1, -1)), eta=1.0)
    return len(x) * N_DRAWS * CHAIN / seconds(lambda: fitted.model_.draw(x, N_DRAWS, sampler, 0))


def default_fit() -> tuple[CARDRegressor, float]:
    rows = BOSTON.split(0)
    fitted = CARDRegressor(random_state=0)
    return fitted, seconds(lambda: fitted.fit(rows.X_train, rows.y_train))


def describe_seconds(fitted: CARDRegressor, copies: int = 1) -> float:
    """Mean, quantiles, CDF and density of the test rows: all that a distribution is asked for."""
    rows = BOSTON.split(0)
    X, y = np.tile(rows.X_test, (copies, 1)), np.tile(rows.y_test, copies)

    def describe() -> None:
        distribution = fitted.predict_distribution(X)
        distribution.mean()
        distribution.quantile([0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975])
        distribution.cdf(y)
        distribution.logpdf(y)

    return seconds(describe)


@dataclass(frozen=True)
class Round:
    """One turn of each side."""

    reference: reference.Rates
    many: float  # model-steps a second, twenty members
    one: float
    row_steps: float
    fit: float  # seconds
    describe: float  # seconds
    rows: float  # rows a second

    @property
    def budget(self) -> tuple[float, float]:
        """Seconds of the reference for the paper's training, and for its draws."""
        rows = BOSTON.split(0)
        return self.reference.budget(len(rows.y_train), len(rows.y_test), N_DRAWS, SETTINGS)


def one_round(other: ProcessPoolExecutor) -> Round:
    theirs = other.submit(measure_reference).result()
    many, one = training_rate(MEMBERS, 20), training_rate(1, 80)
    row_steps = sampling_rate(paper_fit(1, 1)[0])
    fitted, fit = default_fit()
    describe = statistics.median(describe_seconds(fitted) for _ in range(5))
    copies = 20
    rows = copies * len(BOSTON.split(0).y_test) / describe_seconds(fitted, copies)
    return Round(theirs, many, one, row_steps, fit, describe, rows)


def lines(rounds: list[Round]) -> list[Line]:
    def middle(figure: Callable[[Round], float]) -> float:
        return statistics.median(map(figure, rounds))

    steps = f"{middle(lambda r: r.reference.steps):.0f} steps/s"
    row_steps = f"{middle(lambda r: r.reference.row_steps) / 1e6:.2f} M row-steps/s"
    whole, draws = f"{middle(lambda r: sum(r.budget)):.0f} s*", f"{middle(lambda r: r.budget[1]):.0f} s*"
    return [
        Line(
            f"training, {MEMBERS} members of `paper`, batch {BATCH}",
            f"{middle(lambda r: r.many):.0f} steps/s",
            steps,
            middle(lambda r: r.many / r.reference.steps),
            2.5,
        ),
        Line(
            f"training, one member of `paper`, batch {BATCH}",
            f"{middle(lambda r: r.one):.0f} steps/s",
            steps,
            middle(lambda r: r.one / r.reference.steps),
            2.0,
        ),
        Line(
            f"ancestral sampling, 51 rows x 1000 draws ({CHAIN} of 1000 steps)",
            f"{middle(lambda r: r.row_steps) / 1e6:.2f} M row-steps/s",
            row_steps,
            middle(lambda r: r.row_steps / r.reference.row_steps),
            1.4,
        ),
        Line(
            "Boston, one split, fit + distribution",
            f"{middle(lambda r: r.fit + r.describe):.1f} s",
            whole,
            middle(lambda r: sum(r.budget) / (r.fit + r.describe)),
            50,
        ),
        Line(
            "distribution of 51 rows",
            f"{middle(lambda r: r.describe):.3f} s",
            draws,
            middle(lambda r: r.budget[1] / r.describe),
            200,
        ),
        Line("prediction rate, 1020 rows", "", "", middle(lambda r: r.rows), 500, " rows/s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each side takes its turn")
    n_rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    paper_fit(MEMBERS, 1)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        rounds = [one_round(other) for _ in range(n_rounds)]
    print(f"{'':60} {'library':>19} {'reference':>19} {'ratio':>11}")
    for line in lines(rounds):
        print(line)
    print("Processor seconds, one thread. * from the reference's measured rates: 5000 epochs, 1000 draws.")


if __name__ == "__main__":
    main()
