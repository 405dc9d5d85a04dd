"""Networks as base classifiers: built by name or brought by the user, trained on cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card import networks
from card.fit import Fitting
from card.networks import Network, Shape
from card.stacked import Stacked, refresh_norms
from card.train import Training, seed_of, train
from card.views import Pixels, augment_of

NAMES = ("mlp", "mlp-bn", "lenet5", "resnet9", "resnet18")


def build_network(name: str, shape: Shape, n_classes: int, hidden: Sequence[int] = (300, 100)) -> Network:
    """A built-in classifier by name."""
    if name in ("mlp", "mlp-bn"):
        return networks.mlp(shape, n_classes, hidden, batch_norm=name == "mlp-bn")
    return {"lenet5": networks.lenet5, "resnet9": networks.resnet9, "resnet18": networks.resnet18}[name](
        shape, n_classes
    )


@dataclass(frozen=True)
class Lesson:
    """What a network is taught: which rows, for how long, how fast."""

    label: str  # of its progress bar and checkpoint
    rows: np.ndarray
    seed: int
    epochs: int | None
    batch_size: int | None
    lr: float
    weight_decay: float

    def training(self) -> Training:
        """A one-cycle rate; with nothing said some 4000 steps, but 10 to 60 epochs."""
        n = len(self.rows)
        batch_size = even_batches(n, self.batch_size or int(np.clip(n // 100, 16, 256)))
        steps = -(-n // batch_size)
        return Training(
            epochs=self.epochs or int(np.clip(round(4000 / steps), 10, 60)),
            batch_size=batch_size,
            lr=self.lr,
            final_lr=0.01 * self.lr,
            warmup=0.2,
            weight_decay=self.weight_decay,
            clip=None,
        )


def mean_lesson(rows: np.ndarray, j: int, fitting: Fitting) -> Lesson:
    """Of the j-th base classifier."""
    names = ("mean_epochs", "mean_batch_size", "mean_lr", "mean_weight_decay")
    return Lesson(f"mean-{j}", rows, seed_of(fitting.seed, 24, j), *(fitting[name] for name in names))


def base_network(mean: Any, shape: Shape, n_classes: int, seed: int, fitting: Fitting) -> nn.Module:
    """A built-in classifier by name, or the user's module with weights drawn anew."""
    if isinstance(mean, str):
        return networks.seeded(seed, lambda: build_network(mean, shape, n_classes, fitting["mean_hidden"]))
    return networks.seeded(seed, lambda: fresh(mean))


def teach(
    module: nn.Module, x: np.ndarray, y: np.ndarray, n_classes: int, pixels: Pixels, lesson: Lesson, fitting
) -> nn.Module:
    """Train a network that gives logits on cross-entropy; images are varied anew at every look."""
    net = Stacked([module]).to(fitting.device)
    images, labels = torch.from_numpy(x), torch.from_numpy(y).to(fitting.device)
    augment, noise = augment_of(fitting["augment"]), fitting["noise"]
    how = lesson.training()

    def read(batch: Tensor, rng: Generator) -> Tensor:
        image = images[batch.cpu()]
        image = image.float() / 255 if image.dtype == torch.uint8 else image.float()
        if augment is not None and image.dim() == 4:
            image = augment(image, rng)
        if noise:
            image = image + noise * torch.randn(image.shape, generator=rng)
        return pixels(image).to(fitting.device)[None]

    def loss(batch: Tensor, rngs: Sequence[Generator]) -> Tensor:
        logits = net(read(batch[0], on_cpu(rngs[0])))[0]
        if logits.dim() != 2 or logits.shape[1] != n_classes:
            raise ValueError(
                f"mean must give logits of shape (rows, {n_classes}), one for each class; "
                f"this module gives {tuple(logits.shape)}."
            )
        return functional.cross_entropy(logits, labels[batch[0]])[None]

    net.train()
    rows, stage = torch.from_numpy(lesson.rows), fitting.stage(lesson.label)
    train(net, loss, rows[None], [lesson.seed], how, None, stage, fitting.bars.training(lesson.label))
    rng = Generator().manual_seed(lesson.seed)
    some = rows[: 20 * how.batch_size].split(how.batch_size)
    refresh_norms(net, net.make, lambda b: net(read(b, rng)), [b for b in some if len(b) > 1])
    return net.member(0)


def even_batches(n: int, batch_size: int) -> int:
    """A batch size that leaves no batch of a single row, over which nothing can be normalised."""
    while n > 1 and n % batch_size == 1:
        batch_size += 1
    return batch_size


def on_cpu(rng: Generator) -> Generator:
    return rng if rng.device.type == "cpu" else Generator().manual_seed(rng.initial_seed())


def fresh(module: nn.Module) -> nn.Module:
    """A copy with weights drawn anew, but for frozen parts: those know something."""
    copy = deepcopy(module)
    for part in copy.modules():
        reset, own = getattr(part, "reset_parameters", None), list(part.parameters(recurse=False))
        if callable(reset) and (not own or any(p.requires_grad for p in own)):
            reset()
    return copy
