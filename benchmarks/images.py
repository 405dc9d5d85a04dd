"""Draws for images: the encoder once a row, against the same chain with the encoder in the loop.

    python benchmarks/images.py

250 images of 28 x 28, 100 draws each, by the networks for FashionMNIST: those of the default recipe (LeNet
encoders), whose chain is measured whole, and the paper's (LeNet encoder, then three layers of width 2048,
which outweigh it), of whose 1000 steps four are measured. One process, one thread, seconds of the processor.
The reference does what a plain reading of the paper does: the network reads x for every image, draw and step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor

from card import CARDClassifier
from card.class_model import ClassModel, class_sampler
from card.sample import Ddim, Sampler

ROWS, DRAWS, STEPS = 250, 100, 1000
MEASURED = 4  # steps of the paper's chain
BATCH = 1000  # (image, draw) pairs that the reference reads at once
RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (500, 1, 28, 28)).astype(np.uint8), np.arange(500) % 10


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@torch.no_grad()
def encoder_in_the_loop(model: ClassModel, sampler: Sampler) -> None:
    """The chain with the whole network at every step; draws are shared out among the members."""
    n_members, denoiser = model.n_members, model.denoiser
    f = model.reader.f(X[:ROWS])
    f = torch.from_numpy(f if len(f) == n_members else np.repeat(f.mean(0, keepdims=True), n_members, 0))
    x = torch.from_numpy(model.reader.features(X[:ROWS]))
    x = x.expand(n_members, *x.shape[1:])
    pairs = torch.arange(ROWS * DRAWS // n_members) * n_members // DRAWS
    rng = torch.Generator().manual_seed(0)
    for rows in pairs.split(BATCH):

        def normal(rows=rows) -> Tensor:
            return torch.randn((n_members, len(rows), model.n_classes), generator=rng)

        def denoise(r: Tensor, k: int, rows=rows) -> Tensor:
            return denoiser.at(denoiser.context(x[:, rows], f[:, rows]), sampler.schedule)(r, k)

        sampler(denoise, normal(), normal)


def encoder_once(model: ClassModel, sampler: Sampler) -> None:
    model.draw(model.look(X[:ROWS]), DRAWS // model.n_members, sampler, 0)


def compare(label: str, model: ClassModel, sampler: Sampler, factor: float, wanted: str) -> None:
    ours = min(seconds(lambda: encoder_once(model, sampler)) for _ in range(3)) * factor
    theirs = seconds(lambda: encoder_in_the_loop(model, sampler)) * factor
    print(f"{label:36} {ours:9.2f} s {theirs:9.2f} s {theirs / ours:8.1f}x  {wanted}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{ROWS} images x {DRAWS} draws{'':15} {'once':>11} {'in the loop':>11}")
    quick = {"mean": "lenet5", "encoder": "lenet", "mean_epochs": 1, "epochs": 1, "random_state": 0}
    default = CARDClassifier(**quick, width=84, cv=5).fit(X, Y)
    sampler = class_sampler(default.sampler, default.schedule_, default.n_evaluations, unit=True)
    compare(f"default recipe, {sampler.n_evaluations} levels", default.model_, sampler, 1.0, "wanted >= 20x")
    chain = {"proba": "f", "n_draws": 2, "sampler": "ddim", "n_evaluations": 2}
    paper = CARDClassifier.from_recipe("paper", **quick | {"width": 2048} | chain).fit(X, Y)
    steps = Ddim(paper.schedule_, tuple(range(MEASURED, -1, -1)), eta=1.0)
    compare(f"paper's network, {STEPS} steps", paper.model_, steps, STEPS / MEASURED, "")


if __name__ == "__main__":
    main()
