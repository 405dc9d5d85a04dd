"""One training loop for any loss: members, averaged weights, early stopping, checkpoints.

A loss is a function of a batch of rows, one list per member, to one number per member. Their sum
is differentiated, gradients are clipped member by member and every member draws from generators
of its own, so that members never meet: trained together they equal members trained alone.

All randomness of an epoch comes from (member's seed, epoch): a run resumed from a checkpoint,
which is taken between epochs, sees what the unbroken run would have seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from card.checkpoint import Stage, State
from card.nn import Table
from card.rows import RowAdam

Loss = Callable[[Tensor, Sequence[Generator]], Tensor]
HeldOut = Callable[[int], Tensor]
Progress = Callable[[int, int, float], None]


LONG_MEMORY, SHORTEST_MEMORY = 0.9999, 0.95  # decays of averaged weights
LAZY_COST = 6  # a table's row that is brought up to date costs as much as six that dense Adam moves


@dataclass(frozen=True)
class Training:
    """How to train: everything but the loss and the data."""

    epochs: int
    batch_size: int
    lr: float = 1e-3
    final_lr: float | None = None  # a cosine from lr to final_lr; constant when None
    warmup: float = 0.0  # share of the steps over which the rate rises from 0
    betas: tuple[float, float] = (0.9, 0.999)
    amsgrad: bool = False
    weight_decay: float = 0.0
    clip: float | None = 1.0
    ema: float | None = None  # decay of the averaged weights, which are the result
    ema_warmup: bool = False
    patience: int | None = None  # epochs without a better held-out loss before a member stops
    evaluate_every: int = 1  # epochs

    def rates(self, steps_per_epoch: int) -> np.ndarray:
        """The learning rate of each step."""
        steps = np.arange(1, self.epochs * steps_per_epoch + 1)
        rising = max(1.0, self.warmup * len(steps))
        rates = np.full(len(steps), self.lr)
        if self.final_lr is not None:
            time = np.clip((steps - rising) / max(1.0, len(steps) - rising), 0, 1)
            rates = self.final_lr + (self.lr - self.final_lr) * (1 + np.cos(np.pi * time)) / 2
        return rates * np.minimum(1.0, steps / rising) if self.warmup > 0 else rates


@dataclass
class Trace:
    """What happened: held-out losses by evaluation (E, M), and each member's best epoch."""

    best_epoch: Tensor
    best_loss: Tensor
    losses: list[Tensor] = field(default_factory=list)
    epochs: int = 0


@contextmanager
def no_denormals() -> Iterator[None]:
    """Numbers below 1e-38 count as 0: a CPU takes far longer for them, and gradients are full of them."""
    already = float(torch.tensor([1e-39]) * 1.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


def seed_of(*parts: int) -> int:
    """A 63-bit seed from integers, well mixed and stable between platforms and releases."""
    words = np.random.SeedSequence([int(part) & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(2)
    return int(words[0]) << 31 ^ int(words[1])


def batches(rows: Tensor, batch_size: int, rngs: Sequence[Generator]) -> Iterator[Tensor]:
    """Each member's rows (M, n) in an order of its own, cut into (M, B); the last may be shorter."""
    n = rows.shape[1]
    order = torch.stack([torch.randperm(n, generator=rng, device=rng.device) for rng in rngs])
    yield from rows.to(order.device).gather(1, order).split(batch_size, dim=1)


def shares(flat: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Each parameter's part of a tensor that holds the numbers of all, in its shape."""
    parts = flat.split([p.numel() for p in params])
    return [part.view(p.shape) for part, p in zip(parts, params, strict=True)]


class Adam:
    """PyTorch's fused Adam (AdamW where there is weight decay), without the optimiser's upkeep."""

    def __init__(self, flat: Tensor, params: Sequence[Tensor], how: Training) -> None:
        self.flat, self.params, self.how = flat, params, how
        self.m, self.v, self.peak = (torch.zeros_like(flat) for _ in range(3))
        self.steps = torch.zeros((), device=flat.device)

    def step(self, grad: Tensor, lr: float) -> None:
        (adamw if self.how.weight_decay else adam)(
            [self.flat],
            [grad],
            [self.m],
            [self.v],
            [self.peak] if self.how.amsgrad else [],
            [self.steps],
            fused=self.flat.device.type in {"cpu", "cuda"},
            amsgrad=self.how.amsgrad,
            beta1=self.how.betas[0],
            beta2=self.how.betas[1],
            lr=lr,
            weight_decay=self.how.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def state(self) -> State:
        parts = {"m": self.m, "v": self.v, "peak": self.peak}
        state = {f"{n}.{i}": t for n, flat in parts.items() for i, t in enumerate(shares(flat, self.params))}
        return state | {"steps.0": self.steps}

    def load(self, state: State) -> None:
        for name, value in self.state().items():
            value.copy_(state[name])


class Loop:
    """The state of one training run: weights, optimiser, averages, the best so far.

    While it lasts the weights are parts of one tensor, and so are their gradients and averages: a step is a
    few passes over memory, not a few for every layer.
    """

    def __init__(self, module: nn.Module, n_members: int, n_rows: int, how: Training) -> None:
        self.module, self.how, self.n_members = module, how, n_members
        self.steps_per_epoch = math.ceil(n_rows / how.batch_size)
        self.rates = how.rates(self.steps_per_epoch)
        self.tables = self._lazy_tables()
        lazy = {id(table.weight) for table in self.tables.values()}
        self.params = [p for p in module.parameters() if p.requires_grad and id(p) not in lazy]
        self.flat = torch.cat([p.detach().flatten() for p in self.params])
        self.grad, self.flat_ema = torch.zeros_like(self.flat), self.flat.clone()
        self.ema = shares(self.flat_ema, self.params) if how.ema is not None else None
        parts = shares(self.flat, self.params), shares(self.grad, self.params)
        for p, value, grad in zip(self.params, *parts, strict=True):
            p.data, p.grad = value, grad
        self.adam = Adam(self.flat, self.params, how)
        for table in self.tables.values():
            table.rows = RowAdam(table.weight, self.rates, how.betas, how.amsgrad, how.ema or LONG_MEMORY)
        self.step = 0
        self.epoch = 0
        device = self.params[0].device
        self.trace = Trace(
            best_epoch=torch.zeros(n_members, dtype=torch.long, device=device),
            best_loss=torch.full((n_members,), math.inf, device=device),
        )
        self.best: State | None = None

    def _lazy_tables(self) -> dict[str, Table]:
        """Tables updated row by row: their average must be the slow, constant one that `card.rows` knows.

        It pays where a batch meets few of a table's rows.
        """
        if self.how.weight_decay or self.how.ema_warmup or (self.how.ema or LONG_MEMORY) < SHORTEST_MEMORY:
            return {}
        tables = [(name, m) for name, m in self.module.named_modules() if isinstance(m, Table)]
        return {name: m for name, m in tables if m.weight.shape[1] > LAZY_COST * self.how.batch_size}

    def update(self, loss: Tensor) -> None:
        """One step down the sum of the members' losses (M,)."""
        loss.sum().backward()
        with torch.no_grad():
            self._descend()

    def _descend(self) -> None:
        scale = self._clip()
        self.adam.step(self.grad, float(self.rates[self.step]))
        self.grad.zero_()
        for table in self.tables.values():
            assert table.rows is not None
            table.rows.step(scale)
        self.step += 1
        if self.ema is not None:
            self.flat_ema.lerp_(self.flat, 1.0 - self._decay())

    def _decay(self) -> float:
        decay = self.how.ema or 0.0
        return min(decay, (1 + self.step) / (10 + self.step)) if self.how.ema_warmup else decay

    def _clip(self) -> Tensor:
        """Scale each member's gradient to norm at most `clip`; the factors (M,)."""
        if self.how.clip is None:
            return torch.ones(self.n_members, device=self.grad.device)
        alone = self.n_members == 1
        grads = [self.grad] if alone else [grad.flatten(1) for grad in shares(self.grad, self.params)]
        norms = [torch.linalg.vector_norm(grad, dim=None if alone else 1).view(-1) for grad in grads]
        rows = [table.rows.square_norm() for table in self.tables.values() if table.rows is not None]
        square = torch.stack([norm.square() for norm in norms] + rows).sum(0)
        scale = (self.how.clip / (square.sqrt() + 1e-6)).clamp(max=1.0)
        if scale.device.type != "cpu" or bool((scale < 1.0).any()):
            for grad in grads:
                grad.mul_(scale if alone else scale[:, None])
        return scale

    def weights(self) -> State:
        """The result so far by parameter name: averaged weights where there are any."""
        names = {id(p): name for name, p in self.module.named_parameters()}
        dense = self.ema if self.ema is not None else self.params
        state = {names[id(p)]: value.detach() for p, value in zip(self.params, dense, strict=True)}
        for name, table in self.tables.items():
            assert table.rows is not None
            table.rows.finish()
            state[f"{name}.weight"] = table.rows.ema if self.how.ema is not None else table.rows.weight
        return state

    def judge(self, held_out: HeldOut) -> bool:
        """Keep what is best for each member; True when every member has stopped."""
        now = {n: v.detach().clone() for n, v in self.module.named_parameters() if v.requires_grad}
        current = {name: value.clone() for name, value in self.weights().items()}
        self._put(current)
        with torch.no_grad():
            loss = held_out(self.epoch)
        self._put(now)
        trace, patience = self.trace, self.how.patience or math.inf
        trace.losses.append(loss)
        alive = self.epoch - trace.best_epoch <= patience
        better = (loss < trace.best_loss) & alive
        if self.best is None:
            self.best = current
        for name, value in current.items():
            self.best[name][better] = value[better]
        trace.best_loss[better] = loss[better]
        trace.best_epoch[better] = self.epoch
        return not bool((self.epoch - trace.best_epoch <= patience).any())

    def _put(self, state: State) -> None:
        with torch.no_grad():
            for name, value in self.module.named_parameters():
                if name in state:
                    value.copy_(state[name])

    def finish(self) -> Trace:
        """Leave the result in the module."""
        self._put(self.best if self.best is not None else self.weights())
        for p in self.params:
            p.data, p.grad = p.data.clone(), None
        for table in self.tables.values():
            table.rows = None
        self.trace.epochs = self.epoch
        return self.trace

    def state(self) -> State:
        state: State = {"epoch": torch.tensor(self.epoch), "step": torch.tensor(self.step)}
        state |= {"best_epoch": self.trace.best_epoch, "best_loss": self.trace.best_loss}
        if self.trace.losses:
            state["losses"] = torch.stack(self.trace.losses)
        state |= {f"param.{i}": p.detach() for i, p in enumerate(self.params)}
        state |= {f"adam.{name}": value for name, value in self.adam.state().items()}
        state |= {f"ema.{i}": value for i, value in enumerate(self.ema or [])}
        state |= {f"best.{name}": value for name, value in (self.best or {}).items()}
        state |= {f"buffer.{name}": value for name, value in self.module.named_buffers()}
        for name, table in self.tables.items():
            assert table.rows is not None
            state |= {f"table.{name}.{key}": value for key, value in table.rows.snapshot().items()}
        return state

    def load(self, state: State) -> None:
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        self.trace.best_epoch.copy_(state["best_epoch"])
        self.trace.best_loss.copy_(state["best_loss"])
        if "losses" in state:
            self.trace.losses = list(state["losses"])
        for i, p in enumerate(self.params):
            p.data.copy_(state[f"param.{i}"])
            if self.ema is not None:
                self.ema[i].copy_(state[f"ema.{i}"])
        self.adam.load(_under(state, "adam."))
        for name, value in self.module.named_buffers():
            value.copy_(state[f"buffer.{name}"])
        best = _under(state, "best.")
        self.best = {name: value.to(self.params[0].device) for name, value in best.items()} or None
        for name, table in self.tables.items():
            assert table.rows is not None
            table.rows.load(_under(state, f"table.{name}."))


def _under(state: State, prefix: str) -> State:
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


@no_denormals()
def train(
    module: nn.Module,
    loss: Loss,
    rows: Tensor,
    seeds: Sequence[int],
    how: Training,
    held_out: HeldOut | None = None,
    stage: Stage | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Train the members of `module` in place.

    Parameters
    ----------
    module
        M networks with a leading member axis on every parameter.
    loss
        (rows (M, B), generators (M)) -> one loss per member (M,).
    rows
        (M, n) numbers of the rows that each member learns from.
    seeds
        One per member.
    held_out
        (epoch) -> the held-out loss (M,) of the weights now in the module; each member's best are kept.
    stage
        Where to keep checkpoints; a run found there is continued.
    progress
        Called after each epoch with steps done, steps in all and the mean loss.
    """
    device = next(module.parameters()).device
    loop = Loop(module, len(rows), rows.shape[1], how)
    saved = stage.load() if stage is not None else None
    if saved is not None:
        loop.load(saved)
    stopped = saved is not None and "done" in saved
    while loop.epoch < how.epochs and not stopped:
        rngs = [Generator(device).manual_seed(seed_of(seed, loop.epoch)) for seed in seeds]
        total = torch.zeros((), device=device)
        for batch in batches(rows, how.batch_size, rngs):
            losses = loss(batch, rngs)
            total += losses.detach().mean()
            loop.update(losses)
        loop.epoch += 1
        if held_out is not None and (loop.epoch % how.evaluate_every == 0 or loop.epoch == how.epochs):
            stopped = loop.judge(held_out)
        if progress is not None:
            progress(loop.step, len(loop.rates), float(total) / loop.steps_per_epoch)
        if stage is not None:
            stage.save(loop.state)
    if stage is not None:
        stage.save(lambda: loop.state() | {"done": torch.ones(())}, force=True)
    return loop.finish()
