"""From a base classifier f to a fitted model: the denoiser around it, and what it is worth.

The "unit" denoiser has several members; each learns from the rows `Seen.learn` names and is judged on those
of `Seen.judge`, where its training stops. The paper's has one and trains for as long as it is told. Then
the rows to judge on, which neither f nor the member learned from, tell the temperature of the draws, the
mixture that gives the probabilities, and how doubt and error go together (`Experience`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from card import networks
from card.base import looks_anew
from card.class_denoise import EncoderDenoiser, ProductDenoiser, PrototypeDenoiser, RowDenoiser, with_head
from card.class_model import ClassModel, Glimpse, class_sampler
from card.class_networks import Lesson, even_batches, on_cpu, teach
from card.confidence import Evidence, tune_temperature, weigh
from card.deferral import Doubt, doubt
from card.fit import Fitting, Size, rectangle
from card.mixture import Mixture, fit_mixture, fit_pool
from card.networks import Shape
from card.nn import generators
from card.reader import Reader, Seen
from card.sample import Sampler, make_sampler
from card.stacked import Stacked
from card.train import Training, seed_of, train

MOST_POOLED = 4000  # rows on which f and the denoiser's networks are pooled
MOST_JUDGED = 1000  # rows on which temperature, mixture and experience are found
MOST_NUMBERS = 8_000_000  # drawn for that
MOST_HELD_OUT = 5000  # rows of a member on which its training is stopped
DOUBTS: tuple[Doubt, ...] = ("piw", "p_value", "margin")


@dataclass(frozen=True)
class Experience:
    """Rows with known answers that the model did not learn from: doubt of each kind, and who was right."""

    doubts: dict[str, np.ndarray]  # name -> (n,)
    correct: np.ndarray  # (n,)
    f_correct: np.ndarray  # (n,)
    f_confidence: np.ndarray  # (n,) largest probability of f


@dataclass(frozen=True)
class Judged:
    """What the rows to judge on tell."""

    tau: float
    mixture: Mixture
    experience: Experience | None  # None where the model has learned from all rows


OF_THE_ENCODERS = ("encoder", "width", "epochs", "batch_size", "lr", "weight_decay")
"""Parameters that say how `teach_encoders` works, with those of f."""


def teach_encoders(
    reader: Reader, seen: Seen, x: np.ndarray, y: np.ndarray, fitting: Fitting
) -> Stacked | None:
    """The networks of "unit" denoisers that read pixels: one for each member, from all rows but those it is
    judged on. Other denoisers have none before they are fitted.
    """
    if fitting["denoiser"] != "unit" or reader.view != "pixels":
        return None
    n_classes, shape, covered = reader.n_classes, x.shape[1:], np.unique(seen.unit)
    everything = np.arange(len(x)) if len(covered) < len(x) and len(seen.judge) == 1 else covered
    taught = []
    for m, judged in enumerate(seen.judge):
        rows = np.setdiff1d(everything, seen.unit[judged])
        seed = seed_of(fitting.seed, 11, m)
        encoder = build_encoder(fitting["encoder"], shape, fitting["width"] or 128, seed)
        width = encoder_width(encoder, shape)
        module = networks.seeded(seed, partial(with_head, encoder, width, n_classes))
        names = ("epochs", "batch_size", "lr", "weight_decay")
        lesson = Lesson(f"denoiser-{m}", rows, seed, *(fitting[name] for name in names))
        taught.append(teach(module, x, y, n_classes, reader.pixels, lesson, fitting))
    return Stacked(taught)


def fit_around(
    reader: Reader, seen: Seen, encoders: Stacked | None, x: np.ndarray, fitting: Fitting
) -> tuple[ClassModel, Judged]:
    """Both recipes, around a base classifier f: r = y_0 - f, the denoiser, and what it is worth."""
    n_classes, centred = reader.n_classes, fitting["prior"] == "mean"
    denoiser: EncoderDenoiser | RowDenoiser | ProductDenoiser
    if encoders is not None:
        denoiser = EncoderDenoiser(encoders, n_classes, fitting["mean_input"], centred)
    else:
        fit = _fit_paper if fitting["denoiser"] == "table" else _fit_rows
        denoiser = fit(reader, seen, x, fitting)
    denoiser = denoiser.to(fitting.device)
    denoiser.eval()
    model = ClassModel(reader, denoiser, denoiser.n_members, centred, fitting.device)
    return model, judge(model, seen, fitting)


# ------------------------------------------------------------------------------------ denoisers


def build_encoder(choice: Any, shape: Shape, width: int, seed: int) -> nn.Module:
    """An encoder of rows of this shape, by name; or a copy of the user's module."""
    makers: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: networks.linear_encoder(shape, width),
        "lenet": lambda: networks.lenet_encoder(shape, width),
        "conv": lambda: networks.conv_encoder(shape, width),
    }
    if isinstance(choice, str):
        return networks.seeded(seed, makers["linear" if choice == "auto" else choice])
    return deepcopy(choice)


def encoder_width(encoder: nn.Module, shape: Shape) -> int:
    """Of what an encoder gives for a row; an error where it does not read rows of this shape."""
    encoder.eval()
    try:
        with torch.no_grad():
            out = encoder(torch.zeros(2, *shape))
    except RuntimeError as error:
        raise ValueError(f"encoder does not read rows of shape {shape}: {error}") from error
    encoder.train()
    if out.dim() != 2 or len(out) != 2:
        raise ValueError(f"encoder must give (rows, width); for 2 rows it gives {tuple(out.shape)}.")
    return out.shape[1]


def _looker(reader: Reader, seen: Seen, fitting: Fitting) -> Callable[[Tensor], Tensor]:
    """Rows (M, B) -> what the denoiser sees of them (M, B, ...)."""
    x = torch.from_numpy(seen.x)
    if reader.view != "pixels":
        x = x.to(fitting.device)
        return lambda rows: x[rows]
    return lambda rows: reader.pixels(_unit(x[rows.cpu()])).to(fitting.device)


def _unit(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _meeting(reader: Reader, seen: Seen, x: np.ndarray, fitting: Fitting) -> Callable[..., tuple]:
    """(rows (1, B), generator) -> x and f as the paper's denoiser meets them, noisy anew where they are."""
    if looks_anew(reader, fitting):
        images, unit, noise = torch.from_numpy(x), torch.from_numpy(seen.unit), fitting["noise"]

        def meet(rows: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
            image = _unit(images[unit[rows[0].cpu()]])
            image += noise * torch.randn(image.shape, generator=on_cpu(rng))
            f = torch.from_numpy(reader.f(image.numpy()))
            return reader.pixels(image).to(fitting.device)[None], f.to(fitting.device)

        return meet
    look, f = _looker(reader, seen, fitting), torch.from_numpy(seen.f).to(fitting.device)
    return lambda rows, rng: (look(rows), f[rows])


def _prototypes(seen: Seen, n_classes: int, fitting: Fitting) -> Tensor:
    return torch.eye(n_classes)[torch.from_numpy(seen.y)].to(fitting.device)


def _fit_rows(reader: Reader, seen: Seen, x: np.ndarray, fitting: Fitting) -> RowDenoiser:
    n_members, n = len(seen.learn), max(map(len, seen.learn))
    seeds = [seed_of(fitting.seed, 11, m) for m in range(n_members)]
    size = Size.of(n)
    denoiser = RowDenoiser(
        seen.x.shape[1],
        reader.n_classes,
        generators(seeds),
        fitting["width"] or size.width,
        fitting["dropout"],
        fitting["mean_input"],
        fitting["prior"] == "mean",
    ).to(fitting.device)
    look, f = _looker(reader, seen, fitting), torch.from_numpy(seen.f).to(fitting.device)
    prototypes = _prototypes(seen, reader.n_classes, fitting)
    residual = prototypes - f if fitting["prior"] == "mean" else prototypes

    def loss(rows: Tensor, rngs: Sequence[Generator]) -> Tensor:
        return denoiser.loss(residual[rows], look(rows), f[rows], rngs)

    labels = torch.from_numpy(seen.y).to(fitting.device)
    held_out = _held_out(denoiser, look, labels, f, rectangle(seen.judge))
    stage, progress = fitting.stage("denoiser"), fitting.bars.training("denoiser")
    how = _unit_training(n, size, fitting)
    train(denoiser, loss, rectangle(seen.learn), seeds, how, held_out, stage, progress)
    return denoiser


def _unit_training(n: int, size: Size, fitting: Fitting) -> Training:
    batch = even_batches(n, fitting["batch_size"] or size.batch_size)
    steps_per_epoch = math.ceil(n / batch)
    epochs = fitting["epochs"] or max(1, round(size.steps / steps_per_epoch))
    every = max(1, round(25 / steps_per_epoch))
    return Training(
        epochs=epochs,
        batch_size=batch,
        lr=fitting["lr"],
        final_lr=0.02 * fitting["lr"],
        warmup=fitting["warmup"],
        weight_decay=fitting["weight_decay"],
        ema=fitting["ema"],
        ema_warmup=True,
        patience=max(8 * every, epochs // 4),
        evaluate_every=every,
    )


def _held_out(denoiser: PrototypeDenoiser, look, y: Tensor, f: Tensor, rows: Tensor):
    """The log-loss of p(c | x) on held-out rows (M, n)."""
    rows = rows[:, :MOST_HELD_OUT]

    def held_out(epoch: int) -> Tensor:
        denoiser.eval()
        parts = []
        for block in rows.split(512, dim=1):
            p = denoiser.direct(denoiser.context(look(block), f[block]))
            parts.append(-p.gather(2, y[block][..., None])[..., 0].clamp_min(1e-30).log())
        denoiser.train()
        return torch.cat(parts, dim=1).mean(dim=1)

    return held_out


def _fit_paper(reader: Reader, seen: Seen, x: np.ndarray, fitting: Fitting) -> ProductDenoiser:
    (rows,) = seen.learn
    shape, centred = x.shape[1:], fitting["prior"] == "mean"
    seed = seed_of(fitting.seed, 5)
    width = fitting["width"] or 128
    if reader.view == "frozen":  # its features are what there is to read
        shape, choice = seen.x.shape[1:], "linear"
    else:
        choice = fitting["encoder"]
    encoder = build_encoder(choice, shape, width, seed)
    if encoder_width(encoder, shape) != width:
        raise ValueError(f"encoder must give width={width} numbers a row with denoiser='table'.")
    denoiser = ProductDenoiser(
        Stacked([encoder]),
        reader.n_classes,
        fitting.schedule,
        generators([seed]),
        width,
        fitting["mean_input"],
        centred,
    ).to(fitting.device)
    meet, prototypes = _meeting(reader, seen, x, fitting), _prototypes(seen, reader.n_classes, fitting)
    how = Training(
        epochs=fitting["epochs"] or 1000,
        batch_size=even_batches(len(rows), fitting["batch_size"] or 256),
        lr=fitting["lr"],
        final_lr=0.0,
        warmup=fitting["warmup"],
        ema=fitting["ema"],
        weight_decay=fitting["weight_decay"],
    )

    def loss(batch: Tensor, rngs: Sequence[Generator]) -> Tensor:
        seen_of_x, f = meet(batch, rngs[0])
        y_0 = prototypes[batch]
        return denoiser.loss(y_0 - f if centred else y_0, seen_of_x, f, rngs)

    denoiser.train()
    stage, progress = fitting.stage("denoiser"), fitting.bars.training("denoiser")
    seeds = [seed_of(fitting.seed, 6)]
    train(denoiser, loss, torch.from_numpy(rows)[None], seeds, how, None, stage, progress)
    return denoiser


# --------------------------------------------------------------------------------- what it is worth


def judge(model: ClassModel, seen: Seen, fitting: Fitting) -> Judged:
    """Pool, temperature, mixture and experience, from rows that each member is judged on."""
    rng = np.random.default_rng(seed_of(fitting.seed, 31))
    shuffled = [rng.permutation(each) for each in seen.judge]
    if isinstance(model.denoiser, PrototypeDenoiser):
        _fit_exponents(model, seen, _some(shuffled, MOST_POOLED), fitting)
    n_draws = max(2, fitting["n_draws"])
    most = int(np.clip(MOST_NUMBERS // (n_draws * model.n_classes), 50, MOST_JUDGED))
    rows = _some(shuffled, most)
    glimpse, y = _glimpse(model, seen, rows, fitting), seen.y[rows].ravel()
    drawn = model.draw(glimpse, n_draws, _quick_sampler(fitting), seed_of(fitting.seed, 32))
    draws = drawn.transpose(2, 0, 1, 3).reshape(n_draws, -1, model.n_classes)
    tau = fitting["tau"] or tune_temperature(draws, y)
    evidence = weigh(draws, tau, fitting["piw"])
    direct, f = model.direct(glimpse), glimpse.f.reshape(-1, model.n_classes)
    candidates = candidate_probabilities(f, None if direct is None else direct.reshape(f.shape), evidence)
    chosen = fitting["proba"]
    mixture = fit_mixture(candidates, y) if chosen == "auto" else Mixture({chosen: 1.0})
    experience = _experience(evidence, mixture(candidates), f, y) if fitting["cv"] is not None else None
    return Judged(tau, mixture, experience)


def _some(rows: Sequence[np.ndarray], most: int) -> np.ndarray:
    """(M, n) of each member's rows, no more than `most` in all."""
    n = max(1, min(most // len(rows), min(map(len, rows))))
    return np.stack([each[:n] for each in rows])


def _glimpse(model: ClassModel, seen: Seen, rows: np.ndarray, fitting: Fitting) -> Glimpse:
    look = _looker(model.reader, seen, fitting)
    parts = [
        model.glimpse(look(torch.from_numpy(rows[:, i : i + 512])), seen.f[rows[:, i : i + 512]])
        for i in range(0, rows.shape[1], 512)
    ]
    return Glimpse(torch.cat([p.context for p in parts], dim=1), np.concatenate([p.f for p in parts], axis=1))


def _fit_exponents(model: ClassModel, seen: Seen, rows: np.ndarray, fitting: Fitting) -> None:
    """Pool f and what the denoiser's networks say."""
    assert isinstance(model.denoiser, PrototypeDenoiser)
    glimpse = _glimpse(model, seen, rows, fitting)
    g = model.direct(glimpse)
    assert g is not None
    f, g = (a.reshape(-1, model.n_classes).astype(float) for a in (glimpse.f, g))
    exponents = fit_pool(f, g, seen.y[rows].ravel(), fitting["mean_input"])
    model.denoiser.pool.copy_(torch.tensor(exponents))


def _quick_sampler(fitting: Fitting) -> Sampler:
    """The estimator's own; for the paper's chain of a thousand steps one that agrees with it in eighty."""
    if fitting["denoiser"] == "unit":
        return class_sampler(fitting["sampler"], fitting.schedule, fitting["n_evaluations"], unit=True)
    return make_sampler("multistep-sde", fitting.schedule, min(80, fitting.schedule.n_steps))


def _experience(evidence: Evidence, proba: np.ndarray, f: np.ndarray, y: np.ndarray) -> Experience:
    return Experience(
        doubts={by: doubt(replace(evidence, proba=proba), by) for by in DOUBTS},
        correct=proba.argmax(axis=1) == y,
        f_correct=f.argmax(axis=1) == y,
        f_confidence=f.max(axis=1).astype(float),
    )


def candidate_probabilities(
    f: np.ndarray, direct: np.ndarray | None, evidence: Evidence | None
) -> dict[str, np.ndarray]:
    """The candidates of `card.mixture` that there are, each (N, C)."""
    candidates = {"f": f.astype(float)}
    if direct is not None:
        candidates["direct"] = direct.astype(float)
    if evidence is not None:
        votes = evidence.votes + 1.0 / evidence.votes.shape[1]
        candidates["votes"] = votes / votes.sum(axis=1, keepdims=True)
        candidates["temperature"] = evidence.proba
    return candidates
