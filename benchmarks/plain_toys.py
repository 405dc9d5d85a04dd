"""The paper's recipe on a toy at its full budget: the library beside `reference.py`, both scored by the law.

    python benchmarks/plain_toys.py linear linear:1 inverse_sinusoidal    # a quarter of an hour each

The number is that of the first weights; the rows are always those of the authors' first run.

The reference is plain PyTorch, with autograd and with Adam over whole tables: what the library does faster,
it does as one writes it first. Where the two agree and the paper's figure differs, the library's ways are not
why. For 400 test rows with 200 draws each, by the chain in full: the root mean square error of the mean, less
what 200 draws miss by chance; coverage of 95 % intervals and the shares of the ten tenths, by the true law.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
import reference
import torch
from samplers import scores_by_the_law

from card import CARDRegressor
from card.datasets import Toy, make_toy

N_ROWS, N_DRAWS = 400, 200
HIDDEN = {"linear": (10,), "quadratic": (50, 50)} | dict.fromkeys(
    ("log_log_linear", "sinusoidal", "inverse_sinusoidal", "eight_gaussians", "full_circle"), (100, 50)
)
"""Mean networks of the toys whose response the recipe leaves as it is: all but log_log_cubic."""
EPOCHS_OF_MEAN = 100


def by_reference(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: tuple[int, ...], seed: int
) -> np.ndarray:
    settings = reference.Settings(
        batch=256, amsgrad=False, mean_hidden=hidden, mean_dropout=0.0, mean_epochs=EPOCHS_OF_MEAN
    )
    torch.manual_seed(seed)
    rows = torch.from_numpy(X).float(), torch.from_numpy(y).float()[:, None]
    mean = reference.mean_network(X.shape[1], settings)
    optimiser = torch.optim.Adam(mean.parameters(), lr=settings.rate, amsgrad=True)
    for _ in range(EPOCHS_OF_MEAN):
        reference.mean_epoch(mean, optimiser, reference.batches(*rows, settings))
    mean.eval().requires_grad_(False)
    trainer = reference.Trainer(*rows, mean, settings)
    network = trainer.run(settings.epochs * len(trainer.loader))
    chunks = torch.from_numpy(X_test).float().split(5)  # which stay in cache
    return torch.cat([reference.draw(network, mean, x, N_DRAWS, settings) for x in chunks], 1).numpy()


def by_library(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: tuple[int, ...], seed: int
) -> np.ndarray:
    reg = CARDRegressor.from_recipe(
        "paper",
        batch_size=256,
        amsgrad=False,
        mean_hidden=hidden,
        mean_epochs=EPOCHS_OF_MEAN,
        mean_patience=None,
        standardise_x=False,
        standardise_y=False,
        random_state=seed,
    )
    return reg.fit(X, y).sample(X_test, n_draws=N_DRAWS, random_state=0)


def told(toy: Toy, x: np.ndarray, draws: np.ndarray) -> Iterator[str]:
    error = np.square(draws.mean(0) - toy.law.mean(x)) - draws.var(0, ddof=1) / len(draws)
    picp, qice = scores_by_the_law(toy.law, x, draws.T)
    tenths = np.diff(
        toy.law.cdf(x, np.percentile(draws, range(10, 100, 10), axis=0).T), prepend=0.0, append=1.0
    )
    yield from (f"{np.sqrt(max(0.0, error.mean())):.3f}", f"{picp:.2f}", f"{qice:.2f}")
    yield " ".join(f"{100 * share:.1f}" for share in tenths.mean(0))


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print("| toy | by | error of the mean | PICP | QICE | tenths, percent | seconds |\n" + "|---" * 7 + "|")
    for argument in names:
        name, _, seed = argument.partition(":")
        if name not in HIDDEN:
            sys.exit(f"unknown toy {name!r}; choose from {', '.join(HIDDEN)}")
        toy = make_toy(name, random_state=0, variant="authors")
        X, X_test, y, _ = toy.split()
        for who, fit_and_draw in (("reference", by_reference), ("library", by_library)):
            start = time.process_time()
            draws = fit_and_draw(X, y, X_test[:N_ROWS], HIDDEN[name], int(seed or 0))
            cells = [*told(toy, X_test[:N_ROWS], draws), f"{time.process_time() - start:.0f}"]
            print(f"| {argument} | {who} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["linear", "linear:1", "inverse_sinusoidal"])
