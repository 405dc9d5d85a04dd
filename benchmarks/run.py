"""The library against `reference.py`, as ratios measured in one run on one thread.

Seconds are those of the processor, the two sides take turns, and the median of their ratios is told, so
that a busy machine troubles neither side more than the other. Long things are measured in part and say
so: the reference's full budget on Boston follows from its measured rates.

    python benchmarks/run.py            # everything, a few minutes
    python benchmarks/run.py --rounds 1 # a quick look
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

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
SETTINGS = reference.Settings()


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
        figure = f"{self.value:.4g} {self.unit}" if self.unit != "x" else f"{self.value:.4g}x"
        limit = f"{self.wanted:g} {self.unit}" if self.unit != "x" else f"{self.wanted:g}x"
        measured = f"{self.what:60} {self.library:>19} {self.reference:>19} {figure:>11}"
        return f"{measured}  wanted {limit:>10}  {verdict}"


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def interleaved(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> tuple[float, float, float]:
    """Median rate of each side, and the median ratio of neighbours in time."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in pairs)
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), ratio


def paper_fit(splits: list[tuple[np.ndarray, np.ndarray]], epochs: int) -> list[CARDRegressor]:
    """The paper's denoiser on each of the splits, in one batched run; f is left out of the timing."""
    fitted = [
        CARDRegressor.from_recipe("paper", mean="zero", epochs=epochs, batch_size=BATCH, random_state=i)
        for i in range(len(splits))
    ]
    fit_together(fitted, [x for x, _ in splits], [y for _, y in splits])
    return fitted


def training(rounds: int) -> list[Line]:
    """Model-steps a second at batch 32, of twenty members and of one."""
    boston = load_uci("boston")
    splits = [(boston.split(i).X_train, boston.split(i).y_train) for i in range(MEMBERS)]
    steps = -(-len(splits[0][1]) // BATCH)
    x, y = as_tensors(*splits[0])
    trainer = reference.Trainer(x, y, no_mean, SETTINGS)
    trainer.run(50)
    lines = []
    for members, epochs, wanted in ((MEMBERS, 20, 2.5), (1, 80, 2.0)):
        paper_fit(splits[:members], 2)

        def ours(members=members, epochs=epochs) -> float:
            return members * steps * epochs / seconds(lambda: paper_fit(splits[:members], epochs))

        a, b, ratio = interleaved(ours, lambda: reference.training_rate(trainer, 400), rounds)
        what = f"training, {members} member{'s'[: members > 1]} of `paper`, batch {BATCH}"
        lines.append(Line(what, f"{a:.0f} steps/s", f"{b:.0f} steps/s", ratio, wanted))
    return lines


def no_mean(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(x), 1)


def as_tensors(X: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised, as the library does inside."""
    x = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    z = (y - y.mean()) / y.std()
    return torch.tensor(x, dtype=torch.float32), torch.tensor(z[:, None], dtype=torch.float32)


def sampling(rounds: int, steps: int = 20) -> list[Line]:
    """Ancestral sampling of 51 rows x 1000 draws, the last `steps` of its 1000 steps."""
    rows = load_uci("boston").split(0)
    (fitted,) = paper_fit([(rows.X_train, rows.y_train)], 1)
    x = fitted._encode(rows.X_test)
    sampler = Ddim(fitted.schedule_, tuple(range(steps, -1, -1)), eta=1.0)
    work = len(x) * N_DRAWS * steps
    network = reference.Denoiser(x.shape[1], SETTINGS)
    tensor = torch.from_numpy(x)

    def ours() -> float:
        return work / seconds(lambda: fitted.model_.draw(x, N_DRAWS, sampler, 0))

    def theirs() -> float:
        return reference.sampling_rate(network, no_mean, tensor, N_DRAWS, SETTINGS, steps)

    a, b, ratio = interleaved(ours, theirs, rounds)
    what = f"ancestral sampling, 51 rows x 1000 draws ({steps} of 1000 steps)"
    return [Line(what, f"{a / 1e6:.2f} M row-steps/s", f"{b / 1e6:.2f} M row-steps/s", ratio, 1.4)]


def default_recipe(rounds: int) -> list[Line]:
    """One split of Boston, from data to distribution, against the paper's full budget by the reference."""
    rows = load_uci("boston").split(0)
    budget = [reference_budget(rows) for _ in range(min(2, rounds))]
    train, draw = (statistics.median(part) for part in zip(*budget, strict=True))
    fitted = CARDRegressor(random_state=0)
    fit = seconds(lambda: fitted.fit(rows.X_train, rows.y_train))
    describe(fitted, rows.X_test, rows.y_test)
    predict = statistics.median(
        seconds(lambda: describe(fitted, rows.X_test, rows.y_test)) for _ in range(2 * rounds + 1)
    )
    X, y = np.tile(rows.X_test, (20, 1)), np.tile(rows.y_test, 20)
    many = statistics.median(seconds(lambda: describe(fitted, X, y)) for _ in range(rounds))
    whole = (train + draw) / (fit + predict)
    return [
        Line(
            "Boston, one split, fit + distribution",
            f"{fit + predict:.1f} s",
            f"{train + draw:.0f} s*",
            whole,
            50,
        ),
        Line("distribution of 51 rows", f"{predict:.3f} s", f"{draw:.0f} s*", round(draw / predict), 200),
        Line(f"prediction rate, {len(X)} rows", "", "", len(X) / many, 500, "rows/s"),
    ]


def describe(fitted: CARDRegressor, X: np.ndarray, y: np.ndarray) -> None:
    """Mean, quantiles, CDF and density: all that a distribution is asked for."""
    distribution = fitted.predict_distribution(X)
    distribution.mean()
    distribution.quantile([0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975])
    distribution.cdf(y)
    distribution.logpdf(y)


def reference_budget(rows) -> tuple[float, float]:
    """Seconds for the paper's training and for its 1000 draws of 1000 steps, from measured rates."""
    x, y = as_tensors(rows.X_train, rows.y_train)
    start = time.process_time()
    mean = reference.fit_mean(x, y, SETTINGS)
    fit_mean = time.process_time() - start
    trainer = reference.Trainer(x, y, mean, SETTINGS)
    trainer.run(50)
    rate = reference.training_rate(trainer, 300)
    test = x[: len(rows.X_test)]
    rows_rate = reference.sampling_rate(trainer.average, mean, test, N_DRAWS, SETTINGS, 20)
    steps = SETTINGS.epochs * -(-len(x) // BATCH)
    return fit_mean + steps / rate, len(test) * N_DRAWS * SETTINGS.n_steps / rows_rate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each side takes its turn")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'':60} {'library':>19} {'reference':>19} {'ratio':>11}")
    for part in (training, sampling, default_recipe):
        for line in part(rounds):
            print(line, flush=True)
    print("Processor seconds, one thread. * from the reference's measured rates: 5000 epochs, 1000 draws.")


if __name__ == "__main__":
    main()
