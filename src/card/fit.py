"""From encoded rows to a fitted model: the two recipes, on the same modules.

First the mean: cross-fitted (f of each training row from models that did not see it), or fitted once on
all rows as in the paper. Then r = z - f, once, and the denoiser.

The "unit" denoiser has one member per fold. Member m learns from the residuals of all other folds and is
judged on fold m: training stops, and the best averaged weights are kept, where the held-out denoising
loss is lowest. At predict the fold models' f are averaged; what this changes is told by `card.averaging`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from card.averaging import Means, apart, fit_warp, is_large, set_aside, shrinkage
from card.checkpoint import Checkpoint, Stage
from card.codec import Codec
from card.crossfit import check_folds, crossfit, folds_of
from card.denoise import TableDenoiser, UnitDenoiser
from card.learners import Network
from card.mean import NetworkMean, ZeroMean, fit_network_mean, fit_regressor_mean, is_fitted
from card.model import Model, Predictor
from card.nn import generators, member
from card.noise import Schedule
from card.progress import Bars
from card.train import Progress, Trace, Training, seed_of, train

HELD_OUT_COPIES = 8  # noise levels at which each held-out row is judged
MOST_LEVELS, GRID = 0.1, (0.2, 5.0)  # distinct responses a row, and their distance in scales of the residual


@dataclass(frozen=True)
class Fitting:
    """What the fitting functions need to know of an estimator."""

    parameters: dict[str, Any]
    schedule: Schedule
    seed: int
    device: torch.device
    bars: Bars
    checkpoint: Checkpoint | None
    prefix: str = ""  # of its stages' names, where several fits have one checkpoint

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def stage(self, name: str) -> Stage | None:
        return self.checkpoint.stage(self.prefix + name) if self.checkpoint is not None else None


@dataclass(frozen=True)
class Size:
    """How large a "unit" denoiser is and how long it trains, for n rows.

    The batch is about an eighth of a fold's rows, between 32 and 512. Steps grow with the square root of
    n; small tables overfit early and are stopped by their held-out loss anyway. The learning rate grows with
    the square root of the batch (`rate`), for the gradient's noise falls with it.
    """

    width: int
    batch_size: int
    steps: int

    @classmethod
    def of(cls, n: int) -> Size:
        batch = int(2 ** np.clip(np.round(np.log2(max(n, 1) / 8)), 5, 9))
        steps = int(np.clip(40 * math.sqrt(n), 300, 8000))
        return cls(width=128, batch_size=batch, steps=steps)


def rate(batch_size: int) -> float:
    """The highest learning rate of a "unit" denoiser.

    >>> rate(32), rate(512)
    (0.002, 0.008)
    """
    return 2e-3 * math.sqrt(batch_size / 32)


def folds_at_random(n: int, n_folds: int, seed: int) -> np.ndarray:
    """(n,) fold numbers of nearly equal frequency."""
    return np.random.default_rng(seed).permutation(np.arange(n) % n_folds)


def fit_cross_fitted(x: np.ndarray, z: np.ndarray, codec: Codec, groups: Any, fitting: Fitting) -> Model:
    """The default recipe, on one table."""
    aside = _rows_set_aside(z, groups, fitting)
    means = _cross_fitted_mean(x, z, codec, groups, aside, fitting)
    check_folds(means.fold, means.n_members)
    if fitting["denoiser"] == "table":
        rows = torch.from_numpy(np.flatnonzero(means.fold >= 0))[None]
        return _table_models([x], [z], [codec], [means], rows, [fitting.seed], fitting)[0]
    return _unit_model(x, z, codec, means, fitting)


def _rows_set_aside(z: np.ndarray, groups: Any, fitting: Fitting) -> np.ndarray:
    """(N,) of a large table, and if folds are drawn here: who gives a splitter knows what may be mixed."""
    warped = fitting["denoiser"] == "unit" and z.shape[1] == 1 and is_large(len(z))
    if not warped or not (fitting["cv"] is None or isinstance(fitting["cv"], int | np.integer)):
        return np.zeros(len(z), bool)
    return set_aside(len(z), None if groups is None else np.asarray(groups), seed_of(fitting.seed, 18))


def _cross_fitted_mean(
    x: np.ndarray, z: np.ndarray, codec: Codec, groups: Any, aside: np.ndarray, fitting: Fitting
) -> Means:
    mean, n_targets = fitting["mean"], z.shape[1]
    fixed: Predictor | None = None
    if isinstance(mean, str) and mean == "zero":
        fixed = ZeroMean(n_targets)
    elif not isinstance(mean, str) and is_fitted(mean):
        fixed = fit_regressor_mean(mean, x, z, codec.location, codec.scale)
    if fixed is not None:
        means = _fixed(fixed, x, fitting, groups)
        return replace(means, fold=np.where(aside, -1, means.fold), aside=aside)
    learners = mean if mean == "auto" or not isinstance(mean, str) else [Network()]
    fitted = crossfit(
        x,
        z,
        learners=learners,
        cv=fitting["cv"],
        repeats=1 if fitting["conformal"] == "cv+" else fitting["repeats"] or "auto",
        groups=None if groups is None else np.asarray(groups),
        aside=aside,
        seed=fitting.seed,
        n_jobs=fitting["n_jobs"],
        progress=fitting.bars.shares(),
    )
    return Means(fitted, fitted.by_repeat, fitted.fold, fitted.n_folds, fitted.spread, aside)


def _fixed(predictor: Predictor, x: np.ndarray, fitting: Fitting, groups: Any = None) -> Means:
    """A mean model that has nothing to cross-fit; folds only tell the denoiser's members apart."""
    f, cv = predictor.predict(x).mean(0), fitting["cv"]
    if groups is None and (cv is None or isinstance(cv, int)):
        n_folds = min(cv or 5, len(x))
        fold = folds_at_random(len(x), n_folds, fitting.seed)
    else:
        groups = None if groups is None else np.asarray(groups)
        fold = folds_of(x, f, 5 if cv is None else cv, groups, fitting.seed)
        n_folds = int(fold.max()) + 1
    return Means(predictor, f[None], fold, n_folds, np.zeros(f.shape[1]), np.zeros(len(x), bool))


def _unit_model(x: np.ndarray, z: np.ndarray, codec: Codec, means: Means, fitting: Fitting) -> Model:
    seen = means.fold >= 0
    error = np.where(seen[:, None], z - means.f, 0.0)
    square = np.square(error[seen], dtype=np.float64).mean(0)
    scale = np.sqrt(square)
    finest = 1e-12 * np.abs(codec.location) / codec.scale  # what float64 can tell apart, so far from 0
    scale = np.maximum(scale, np.maximum(1e-6, finest))
    size = Size.of(int(seen.sum()))
    batch = fitting["batch_size"] or size.batch_size
    steps_per_epoch = math.ceil(seen.sum() * (1 - 1 / means.n_members) / batch)
    epochs = fitting["epochs"] or max(1, round(size.steps / steps_per_epoch))
    every = max(1, round(25 / steps_per_epoch))
    lr = fitting["lr"] or rate(batch)
    how = Training(
        epochs=epochs,
        batch_size=batch,
        lr=lr,
        final_lr=0.02 * lr,
        warmup=0.05,
        amsgrad=fitting["amsgrad"],
        weight_decay=fitting["weight_decay"],
        ema=fitting["ema"],
        ema_warmup=True,
        patience=max(8 * every, epochs // 4),
        evaluate_every=every,
    )
    rows, f, r = (_stacked([each], fitting) for each in (x, means.f, error / scale))
    denoiser, _ = fit_unit_denoiser(
        rows,
        f,
        r,
        means.fold,
        means.n_members,
        seed_of(fitting.seed, 11),
        how,
        fitting["width"] or size.width,
        fitting["dropout"],
        fitting.stage("denoiser"),
        fitting.bars.training("denoiser"),
    )
    model = Model(
        codec,
        means.predictor,
        denoiser,
        scale * shrinkage(means, scale),
        scale,
        True,
        means.n_members,
        fitting.device,
        apart=apart(means, len(z)),
        holds_mean=fitting["mean"] == "auto" and on_a_grid(z[seen], scale),
        fold=means.fold,
    )
    if z.shape[1] == 1 and is_large(len(z)):
        seed = seed_of(fitting.seed, 17)
        model.warp = fit_warp(model, x, z, means, fitting.schedule, fitting["n_nodes"], seed)
    return model


def on_a_grid(z: np.ndarray, scale: np.ndarray) -> bool:
    """Whether one response z (N, 1) takes few values, as far apart as the residuals are large.

    The denoising loss is then mostly about which values there are, and training stops too late for
    the mean: f is the better one.
    """
    if z.shape[1] > 1:
        return False
    values = np.unique(z)
    if not 1 < len(values) <= MOST_LEVELS * len(z):
        return False
    distance = float(np.median(np.diff(values)) / scale[0])
    return GRID[0] < distance < GRID[1]


def fit_plain(
    xs: Sequence[np.ndarray],
    zs: Sequence[np.ndarray],
    codecs: Sequence[Codec],
    seeds: Sequence[int],
    fitting: Fitting,
) -> list[Model]:
    """The mean fitted once on all rows, as in the paper; tables of one shape train together."""
    means = _plain_means(xs, zs, codecs, seeds, fitting)
    if fitting["denoiser"] == "unit":
        parts = zip(xs, zs, codecs, means, strict=True)
        return [_unit_model(x, z, codec, mean, fitting) for x, z, codec, mean in parts]
    rows = torch.arange(len(xs) * len(xs[0])).view(len(xs), -1)
    return _table_models(xs, zs, codecs, means, rows, seeds, fitting)


def _plain_means(xs, zs, codecs, seeds, fitting: Fitting) -> list[Means]:
    mean, n_targets = fitting["mean"], zs[0].shape[1]
    if not isinstance(mean, str):
        fitted = [
            fit_regressor_mean(mean, x, z, c.location, c.scale)
            for x, z, c in zip(xs, zs, codecs, strict=True)
        ]
        return [_fixed(m, x, fitting) for m, x in zip(fitted, xs, strict=True)]
    if mean == "zero":
        return [_fixed(ZeroMean(n_targets), x, fitting) for x in xs]
    if mean == "auto":
        raise ValueError(
            "mean='auto' is cross-fitted and needs cv; with cv=None say 'mlp', 'zero' or a regressor."
        )
    x, z = _stacked(xs, fitting), _stacked(zs, fitting)
    how = Training(
        epochs=fitting["mean_epochs"],
        batch_size=fitting["batch_size"] or 32,
        lr=1e-3,
        amsgrad=True,
        clip=None,
        patience=fitting["mean_patience"],
    )
    networks = fit_network_mean(
        x,
        z,
        torch.arange(len(x)).view(len(xs), -1).to(x.device),
        seeds,
        fitting["mean_hidden"],
        how,
        fitting["mean_dropout"],
        (fitting.stage("mean-trial"), fitting.stage("mean")),
        fitting.bars.training("mean"),
    )
    singles = []
    for m in range(len(xs)):
        single = NetworkMean(networks.sizes, [0], networks.dropout, fitting.device)
        single.network.load_state_dict(member(networks.network, m))
        singles.append(single)
    return [_fixed(single, x, fitting) for single, x in zip(singles, xs, strict=True)]


def _stacked(arrays: Sequence[np.ndarray], fitting: Fitting) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays).astype(np.float32)).to(fitting.device)


def _table_models(
    xs, zs, codecs, means: Sequence[Means], rows: Tensor, seeds, fitting: Fitting
) -> list[Model]:
    """The paper's denoiser for each table, all trained in one batched call."""
    centred = fitting["prior"] == "mean"
    x, z, f = _stacked(xs, fitting), _stacked(zs, fitting), _stacked([m.f for m in means], fitting)

    def make(rngs: Sequence[Generator]) -> TableDenoiser:
        width = fitting["width"] or 128
        return TableDenoiser(
            x.shape[1], z.shape[1], fitting.schedule, rngs, width, fitting["mean_input"], centred
        )

    how = Training(
        epochs=fitting["epochs"] or 5000,
        batch_size=fitting["batch_size"] or 32,
        lr=fitting["lr"] or 1e-3,
        amsgrad=fitting["amsgrad"],
        ema=fitting["ema"],
        weight_decay=fitting["weight_decay"],
    )
    again = _dropout_means(means) if fitting["noisy_mean"] else None
    denoiser = make(generators([seed_of(s, 5) for s in seeds])).to(fitting.device)

    r = z - f if centred else z

    def loss(batch: Tensor, rngs: Sequence[Generator]) -> Tensor:
        if again is None:
            return denoiser.loss(r[batch], x[batch], f[batch], rngs)
        mean = again(x[batch], rngs)
        return denoiser.loss(z[batch] - mean if centred else z[batch], x[batch], mean, rngs)

    stage, progress = fitting.stage("denoiser"), fitting.bars.training("denoiser")
    train(denoiser, loss, rows.to(x.device), [seed_of(s, 6) for s in seeds], how, None, stage, progress)
    models = []
    for m, (codec, mean) in enumerate(zip(codecs, means, strict=True)):
        single = make(generators([0])).to(fitting.device)
        single.load_state_dict(member(denoiser, m))
        error = np.sqrt(np.maximum(((zs[m] - mean.f).astype(np.float64) ** 2).mean(0), 1e-12))
        ones = np.ones(z.shape[1])
        models.append(Model(codec, mean.predictor, single, ones, error, centred, 1, fitting.device))
    return models


def _dropout_means(means: Sequence[Means]) -> Callable[[Tensor, Sequence[Generator]], Tensor]:
    """f with its dropout on, member by member: the authors' variant."""
    predictors = [each.predictor for each in means if isinstance(each.predictor, NetworkMean)]
    if len(predictors) < len(means):
        raise ValueError("noisy_mean=True wants mean='mlp': only a network has dropout to keep on.")
    first, states = predictors[0], [each.network.state_dict() for each in predictors]
    device = next(first.network.parameters()).device
    together = NetworkMean(first.sizes, range(len(states)), first.dropout, device).network
    together.load_state_dict({name: torch.cat([state[name] for state in states]) for name in states[0]})
    return torch.no_grad()(together)


def fit_unit_denoiser(
    x: Tensor,
    f: Tensor,
    r: Tensor,
    fold: np.ndarray,
    n_members: int,
    seed: int,
    how: Training,
    width: int,
    dropout: float,
    stage: Stage | None = None,
    progress: Progress | None = None,
    level: tuple[float, float] = (-0.8, 1.2),
) -> tuple[UnitDenoiser, Trace]:
    """M denoisers for residuals r (N, K) of unit variance; `fold` (N,) tells who may not see a row."""
    seeds = [seed_of(seed, m) for m in range(n_members)]
    denoiser = UnitDenoiser(x.shape[1], r.shape[1], generators(seeds), width, dropout, level).to(x.device)
    train_rows = rectangle([np.flatnonzero((fold != m) & (fold >= 0)) for m in range(n_members)])
    test_rows = rectangle([np.flatnonzero(fold == m) for m in range(n_members)])
    held_out = _held_out(denoiser, x, f, r, test_rows, seeds)

    def loss(rows: Tensor, rngs) -> Tensor:
        return denoiser.loss(r[rows], x[rows], f[rows], rngs)

    trace = train(denoiser, loss, train_rows, seeds, how, held_out, stage, progress)
    return denoiser, trace


def _held_out(denoiser: UnitDenoiser, x: Tensor, f: Tensor, r: Tensor, rows: Tensor, seeds: Sequence[int]):
    """The held-out denoising loss, at levels and noise that stay the same from one look to the next."""
    rows = rows[:, : 40_000 // HELD_OUT_COPIES]
    n = rows.shape[1]
    rngs = generators([seed_of(seed, 7) for seed in seeds])
    order = torch.stack([torch.randperm(n * HELD_OUT_COPIES, generator=rng) for rng in rngs])
    centre, spread = denoiser.level
    level = centre + spread * math.sqrt(2) * torch.erfinv(2 * (order + 0.5) / (n * HELD_OUT_COPIES) - 1)
    eps = torch.stack([torch.randn(n, HELD_OUT_COPIES // 2, r.shape[1], generator=rng) for rng in rngs])
    eps = torch.cat([eps, -eps], dim=2).flatten(1, 2)
    level, eps = level.float().to(x.device), eps.to(x.device)
    repeated = rows.repeat_interleave(HELD_OUT_COPIES, dim=1)

    def held_out(epoch: int) -> Tensor:
        context = denoiser.context(x[rows], f[rows]).repeat_interleave(HELD_OUT_COPIES, dim=1)
        parts = [
            denoiser.loss_at(r[repeated[:, b]], context[:, b], level[:, b], eps[:, b]) * (b.stop - b.start)
            for b in (slice(i, min(i + 4096, repeated.shape[1])) for i in range(0, repeated.shape[1], 4096))
        ]
        return torch.stack(parts).sum(0) / repeated.shape[1]

    return held_out


def rectangle(rows: Sequence[np.ndarray]) -> Tensor:
    """Lists of rows of nearly equal length as (M, n): the shorter start again from their beginning."""
    n = max(len(each) for each in rows)
    return torch.from_numpy(np.stack([np.resize(each, n) for each in rows]))
