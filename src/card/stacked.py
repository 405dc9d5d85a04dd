"""Plain PyTorch modules with a member axis: what has no such axis of its own gains one.

`Stacked` holds the parameters and buffers of M modules of one make, each with a leading axis M, and runs
them one after the other: (M, B, ...) -> (M, B, ...). So a user's network, or one with convolutions and
BatchNorm, trains in the same loop as the members of `card.nn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Stacked(nn.Module):
    """M modules of one make as one, with a leading member axis on every parameter and buffer."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self._make = [deepcopy(modules[0])]  # in a list: its weights are not ours
        for name, parameter in modules[0].named_parameters():
            value = torch.stack([dict(m.named_parameters())[name].detach() for m in modules])
            self.register_parameter(_flat(name), nn.Parameter(value.clone(), parameter.requires_grad))
        for name, _ in modules[0].named_buffers():
            value = torch.stack([dict(m.named_buffers())[name] for m in modules])
            self.register_buffer(_flat(name), value.clone())

    @property
    def make(self) -> nn.Module:
        """One of the modules, whatever its weights."""
        return self._make[0]

    def train(self, mode: bool = True) -> Self:
        self.make.train(mode)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.make._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def member(self, m: int) -> nn.Module:
        """Module m alone, with weights of its own."""
        module = deepcopy(self.make)
        values = {_dotted(name): value[m] for name, value in self.state_dict().items()}
        with torch.no_grad():
            for name, own in [*module.named_parameters(), *module.named_buffers()]:
                own.copy_(values[name])
        return module.eval()

    def each(self, x: Tensor, method: str = "forward") -> Tensor:
        """(M, B, ...) -> (M, B, ...), by a method of the modules."""
        values = {_dotted(n): v for n, v in [*self.named_parameters(), *self.named_buffers()]}
        call = _Method(self.make, method)
        outs = [
            functional_call(call, {f"module.{n}": v[m] for n, v in values.items()}, (x[m],))
            for m in range(len(x))
        ]
        return torch.stack(outs) if len(outs) > 1 else outs[0][None]

    def forward(self, x: Tensor) -> Tensor:
        return self.each(x)


class _Method(nn.Module):
    """A method of a module as the forward of another."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module, self.method = module, method

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.module, self.method)(x)


def _flat(name: str) -> str:
    return name.replace(".", "/")


def _dotted(name: str) -> str:
    return name.replace("/", ".")


@torch.no_grad()
def refresh_norms(
    module: nn.Module, make: nn.Module, run: Callable[[Tensor], object], rows: Iterable[Tensor]
) -> None:
    """Take the BatchNorm statistics in `module` anew from batches of rows, for the weights it has now."""
    norms = [m for m in make.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for name, buffer in module.named_buffers():
        if name.endswith(("running_mean", "num_batches_tracked")):
            buffer.zero_()
        elif name.endswith("running_var"):
            buffer.fill_(1.0)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the plain average over batches
    module.train()
    for batch in rows:
        run(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.eval()
