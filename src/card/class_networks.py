"""Networks as base classifiers: built by name or brought by the user, trained on cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card import networks
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


def train_network(
    x: np.ndarray, y: np.ndarray, rows: np.ndarray, n_classes: int, mean: Any, pixels: Pixels, j: int, fitting
) -> Stacked:
    seed = seed_of(fitting.seed, 24, j)
    if isinstance(mean, str):
        shape = x.shape[1:]
        module = networks.seeded(seed, lambda: build_network(mean, shape, n_classes, fitting["mean_hidden"]))
    else:
        module = networks.seeded(seed, lambda: _fresh(mean))
    net = Stacked([module]).to(fitting.device)
    images, labels = torch.from_numpy(x), torch.from_numpy(y).to(fitting.device)
    augment, noise = augment_of(fitting["augment"]), fitting["noise"]
    batch_size = even_batches(
        len(rows), fitting["mean_batch_size"] or int(np.clip(len(rows) // 100, 16, 128))
    )
    steps = -(-len(rows) // batch_size)
    how = Training(
        epochs=fitting["mean_epochs"] or int(np.clip(round(4000 / steps), 10, 60)),
        batch_size=batch_size,
        lr=fitting["mean_lr"],
        final_lr=0.0,
        warmup=0.1,
        weight_decay=fitting["mean_weight_decay"],
        clip=None,
    )

    def read(batch: Tensor, gen: Generator) -> Tensor:
        image = images[batch[0].cpu()]
        image = image.float() / 255 if image.dtype == torch.uint8 else image.float()
        if augment is not None and image.dim() == 4:
            image = augment(image, gen)
        if noise:
            image = image + noise * torch.randn(image.shape, generator=gen)
        return pixels(image).to(fitting.device)[None]

    def loss(batch: Tensor, rngs: Sequence[Generator]) -> Tensor:
        logits = net(read(batch, _on_cpu(rngs[0])))[0]
        if logits.dim() != 2 or logits.shape[1] != n_classes:
            raise ValueError(
                f"mean must give logits of shape (rows, {n_classes}), one for each class; "
                f"this module gives {tuple(logits.shape)}."
            )
        return functional.cross_entropy(logits, labels[batch[0]])[None]

    net.train()
    progress = fitting.bars.training(f"f {j + 1}")
    train(net, loss, torch.from_numpy(rows)[None], [seed], how, None, fitting.stage(f"mean-{j}"), progress)
    fixed = torch.Generator().manual_seed(seed)
    some = torch.from_numpy(rows[: 20 * batch_size]).split(batch_size)
    refresh_norms(net, net.make, lambda b: net(read(b[None], fixed)), [b for b in some if len(b) > 1])
    return net


def even_batches(n: int, batch_size: int) -> int:
    """A batch size that leaves no batch of a single row, over which nothing can be normalised."""
    while n > 1 and n % batch_size == 1:
        batch_size += 1
    return batch_size


def _on_cpu(rng: Generator) -> Generator:
    return rng if rng.device.type == "cpu" else Generator().manual_seed(rng.initial_seed())


def _fresh(module: nn.Module) -> nn.Module:
    """A copy with weights drawn anew."""
    copy = deepcopy(module)
    for part in copy.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
    return copy
