"""Accuracy against cost of the samplers, for docs/choosing-a-sampler.md.

    python benchmarks/samplers.py          # or only a part: python benchmarks/samplers.py short, or classes

First r_0 ~ N(0.7, 0.3^2) with the perfect denoiser, whose answer is known; then smaller and larger
residuals, for what the chain makes of them, and two toys by their very laws; then the network of the paper,
trained for a minute on the inverse sinusoidal toy: QICE and CRPS of 200 draws per row; then one trained too
briefly, on the linear toy: how wide its draws are; then classifiers of noisy digits, by both recipes: whether
100 draws by fewer steps say of each digit what 100 draws by a thousand steps say.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from card import CARDClassifier, CARDRegressor
from card.datasets import make_toy
from card.datasets._laws import Law
from card.metrics import crps, qice
from card.noise import Schedule, linear
from card.sample import Denoise, make_sampler

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from oracles import exact_std, gaussian_denoiser

COSTS = (6, 10, 16, 24, 50)


def known_answer() -> None:
    schedule = linear()
    rng = torch.Generator().manual_seed(0)

    def normal() -> torch.Tensor:
        return torch.randn(200_000, generator=rng)

    print("| sampler | evaluations | std (true 0.3) |\n|---|---|---|")
    for name in ("ddim", "multistep", "multistep-sde", "ancestral"):
        for n in COSTS if name != "ancestral" else (1000,):
            sampler = make_sampler(name, schedule, n)
            draws = sampler(gaussian_denoiser(schedule, 0.7, 0.3), normal(), normal)
            print(f"| {name} | {sampler.n_evaluations} | {float(draws.std()):.3f} |")


def small_residuals() -> None:
    sizes = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0)
    print("\n| sampler | evaluations |", " | ".join(map(str, sizes)), "|\n|" + "---|" * (2 + len(sizes)))
    for name, n in (("ancestral", 1000), ("short-chain", 80), ("short-chain", 64), ("multistep-sde", 80)):
        sampler = make_sampler(name, linear(), n)
        found = [exact_std(sampler, size) / size for size in sizes]
        print(f"| {name} | {n} |", " | ".join(f"{one:.3f}" for one in found), "|")


def perfect_on_toys() -> None:
    """What the paper's chain makes of two toys when the denoiser is perfect: coverage and QICE by the law."""
    print("\n| toy | steps | y_0: PICP | QICE | y_1: PICP | QICE |\n|---|---|---|---|---|---|")
    for name in ("inverse_sinusoidal", "log_log_cubic"):
        toy = make_toy(name, random_state=0, variant="authors")
        x, unit = toy.X[:150], toy.y.std() if name == "log_log_cubic" else 1.0
        atoms = torch.from_numpy(toy.law.quantile(x, (np.arange(300) + 0.5) / 300) / unit)
        f = atoms.mean(1, keepdim=True)
        for schedule, sampler in ((linear(50, 1e-4, 0.4), "ancestral"), (linear(), "short-chain")):
            cells = []
            for name_of_state in (sampler, f"{sampler}-to-1"):
                walk = make_sampler(name_of_state, schedule, 64)
                rng = torch.Generator().manual_seed(0)

                def normal(rng: torch.Generator = rng) -> torch.Tensor:
                    return torch.randn(150, 300, generator=rng, dtype=torch.float64)

                r = walk(denoiser_of(atoms - f, schedule), normal(), normal)
                cells += scores_by_the_law(toy.law, x, unit * (r + f).numpy())
            print(
                f"| {name} | {schedule.n_steps} |", " | ".join(f"{one:.2f}" for one in cells), "|", flush=True
            )


def denoiser_of(atoms: torch.Tensor, schedule: Schedule) -> Denoise:
    """E[r_0 | r_k] where r_0 of each row is any of its atoms (N, A), all equally likely."""

    def denoise(r: torch.Tensor, k: int) -> torch.Tensor:
        alpha, sigma = float(schedule.alpha[k]), float(schedule.sigma[k])
        found = []
        for noisy, mine in zip(r, atoms, strict=True):
            distance = (noisy[:, None] - alpha * mine) / sigma
            found.append(torch.softmax(-0.5 * distance.square(), 1) @ mine)
        return torch.stack(found)

    return denoise


def scores_by_the_law(law: Law, x: np.ndarray, draws: np.ndarray) -> tuple[float, float]:
    """PICP and QICE in percent of draws (N, S), by the probability of intervals instead of by test rows."""
    edges = np.percentile(draws, [2.5, 97.5, *range(10, 100, 10)], axis=1).T
    cdf = law.cdf(x, edges)
    tenths = np.diff(cdf[:, 2:], axis=1, prepend=0.0, append=1.0).mean(0)
    return 100 * (cdf[:, 1] - cdf[:, 0]).mean(), 100 * np.abs(tenths - 0.1).mean()


def trained_network() -> None:
    X, X_test, y, y_test = make_toy("inverse_sinusoidal", random_state=0).split()
    X_test, y_test = X_test[:400], y_test[:400]
    model = CARDRegressor.from_recipe(
        "paper", batch_size=256, epochs=300, ema=0.999, mean_epochs=20, mean_patience=None, random_state=0
    ).fit(X, y)
    print("\n| sampler | evaluations | QICE % | CRPS | seconds |\n|---|---|---|---|---|")
    for name in ("ddim", "multistep", "multistep-sde", "ancestral"):
        for n in COSTS if name != "ancestral" else (1000,):
            start = time.perf_counter()
            draws = model.set_params(sampler=name, n_evaluations=n).sample(X_test, 200, random_state=0)
            seconds = time.perf_counter() - start
            edges = np.quantile(draws, np.arange(1, 10) / 10, axis=0).T
            row = f"{qice(y_test, edges):.2f} | {crps(y_test, draws):.4f} | {seconds:.1f}"
            print(f"| {name} | {n} | {row} |", flush=True)


def short_training() -> None:
    toy = make_toy("linear", random_state=1)
    X, X_test, y, _ = toy.split()
    model = CARDRegressor.from_recipe(
        "paper",
        amsgrad=False,
        batch_size=256,
        epochs=100,
        ema=0.999,
        mean_epochs=30,
        mean_patience=None,
        random_state=1,
    ).fit(X, y)
    low, high = toy.law.quantile(X_test[:1], [0.16, 0.84])[0]
    truth = (high - low) / np.subtract(*ndtri([0.84, 0.16]))
    print("\n| sampler | evaluations | spread over the law's | PICP % |\n|---|---|---|---|")
    for name, n, rows in (
        ("multistep", 40, 200),
        ("multistep-sde", 40, 200),
        ("multistep-sde", 80, 200),
        ("ancestral", 1000, 50),
    ):
        model.set_params(sampler=name, n_evaluations=n, n_draws=400)
        predicted = model.predict_distribution(X_test[:rows])
        low, high = toy.law.cdf(X_test[:rows], predicted.interval(0.95)).mean(axis=0)
        print(
            f"| {name} | {n} | {predicted.std().mean() / truth:.2f} | {100 * (high - low):.1f} |", flush=True
        )


class Verdicts(NamedTuple):
    """Of each row the winner of the votes, the interval width of its class, and the t-test's word."""

    vote: np.ndarray
    piw: np.ndarray
    certain: np.ndarray


def verdicts(clf: CARDClassifier, X: np.ndarray) -> Verdicts:
    table = clf.assess(X, n_draws=100)
    vote = table["vote"].to_numpy()
    piw = table[[f"piw_{c}" for c in clf.classes_]].to_numpy()
    of_vote = piw[np.arange(len(X)), np.searchsorted(clf.classes_, vote)]
    return Verdicts(vote, of_vote, table["certain"].to_numpy())


def classes() -> None:
    X, y = load_digits(return_X_y=True)
    X = X + 8.0 * np.random.default_rng(0).standard_normal(X.shape)  # so that some digits are in doubt
    X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0, stratify=y)
    paper = {"epochs": 150, "batch_size": 64, "lr": 2e-3, "ema": 0.999, "mean_epochs": 5, "width": 64}
    recipes = {
        "default": CARDClassifier(random_state=0),
        "paper": CARDClassifier.from_recipe("paper", random_state=0, **paper),
    }
    print("\n| recipe | sampler | steps | accuracy | same vote | rank of PIW | same verdict | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for recipe, clf in recipes.items():
        clf.fit(X, y)
        chain: Verdicts | None = None
        for name, n in CHAIN_AND_OTHERS[clf.denoiser]:
            clf.set_params(sampler=name, n_evaluations=n)
            if clf.denoiser == "unit":
                clf.schedule_ = (
                    clf._schedule()
                )  # any number of steps; the paper's network knows its own alone
            clf.seed_ += 1
            start = time.perf_counter()
            now = verdicts(clf, X_test)
            seconds = time.perf_counter() - start
            chain = chain or now
            right, same = np.mean(now.vote == y_test), np.mean(now.vote == chain.vote)
            rank, agreed = spearmanr(now.piw, chain.piw).statistic, np.mean(now.certain == chain.certain)
            shares = f"{100 * right:.1f} | {100 * same:.1f} | {rank:.2f} | {100 * agreed:.1f}"
            print(f"| {recipe} | {name} | {n} | {shares} | {seconds:.1f} |", flush=True)


CHAIN = ("ancestral", 1000)
CHAIN_AND_OTHERS = {
    "unit": (CHAIN, CHAIN, ("ancestral", 4), ("ancestral", 20), ("multistep", 20), ("multistep-sde", 20)),
    "table": (CHAIN, CHAIN, ("ddim", 20), ("multistep", 20), ("multistep-sde", 40), ("multistep-sde", 80)),
}
PARTS = {
    "known": known_answer,
    "small": small_residuals,
    "toys": perfect_on_toys,
    "trained": trained_network,
    "short": short_training,
    "classes": classes,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
