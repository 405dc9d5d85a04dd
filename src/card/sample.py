"""Samplers: from noise back to a residual, one loop for all of them.

A denoiser estimates the clean residual r_0 from its noisy version r_k. A sampler walks down a
list of nodes T = k_0 > k_1 > ... > 0 and at each pair (k, j) makes r_j from r_k; what one step
hands to the next is its memory. With a_0 = 1, s_0 = 0 the last step needs no special case.

`Ddim` holds Alg. 2 of the paper (eta = 1 on all nodes) and DDIM (eta = 0, any nodes).
`Multistep` is second order in log-SNR (DPM-Solver++ 2M), as an ODE or an SDE: its grid is
even in log-SNR, and about 16-24 evaluations replace a thousand. `ShortChain` is for those who want what
the paper's chain draws, its errors included, for a twelfth of the cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from card.noise import Schedule

Denoise = Callable[[Tensor, int], Tensor]  # (r_k, k) -> estimate of r_0
Normal = Callable[[], Tensor]  # fresh N(0, 1) noise in the shape of r
Memory = tuple[Tensor, float] | None


def all_nodes(schedule: Schedule) -> tuple[int, ...]:
    """Every node, T..0."""
    return tuple(range(schedule.n_steps, -1, -1))


def even_nodes(schedule: Schedule, n_evaluations: int) -> tuple[int, ...]:
    """About n_evaluations nodes at equal distances in k, then 0."""
    picks = torch.linspace(schedule.n_steps, 1, n_evaluations, dtype=torch.float64).round().long()
    return (*_falling(picks), 0)


def log_snr_nodes(schedule: Schedule, n_evaluations: int) -> tuple[int, ...]:
    """About n_evaluations nodes at equal distances in log-SNR, then 0."""
    log_snr = schedule.log_snr[1:]
    targets = torch.linspace(float(log_snr[-1]), float(log_snr[0]), n_evaluations, dtype=torch.float64)
    picks = (log_snr[None, :] - targets[:, None]).abs().argmin(dim=1) + 1
    return (*_falling(picks), 0)


def widening_nodes(schedule: Schedule, n_evaluations: int) -> tuple[int, ...]:
    """n_evaluations nodes, the lowest side by side and ever further apart above, then 0."""
    nodes = [0]
    for i in range(1, n_evaluations + 1):
        nodes.append(max(nodes[-1] + 1, round(schedule.n_steps * (i / n_evaluations) ** 2.5)))
    return tuple(reversed(nodes))


def _falling(nodes: Tensor) -> list[int]:
    return sorted({int(node) for node in nodes}, reverse=True)


@dataclass(frozen=True)
class Sampler(ABC):
    """Nodes to walk down and a step between two of them."""

    schedule: Schedule
    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        falling = all(k > j for k, j in pairwise(self.nodes))
        if not falling or len(self.nodes) < 2 or self.nodes[0] > self.schedule.n_steps or self.nodes[-1] < 0:
            raise ValueError(
                f"Nodes must fall from at most {self.schedule.n_steps} to 0, got {list(self.nodes)}."
            )

    @property
    def n_evaluations(self) -> int:
        return len(self.nodes) - 1

    def scales(self, k: int) -> tuple[float, float]:
        return float(self.schedule.alpha[k]), float(self.schedule.sigma[k])

    @abstractmethod
    def step(
        self, denoise: Denoise, r: Tensor, k: int, j: int, memory: Memory, normal: Normal
    ) -> tuple[Tensor, Memory]:
        """r_j from r_k."""

    def __call__(self, denoise: Denoise, r: Tensor, normal: Normal) -> Tensor:
        memory: Memory = None
        for k, j in pairwise(self.nodes):
            r, memory = self.step(denoise, r, k, j, memory, normal)
        return r


@dataclass(frozen=True)
class Ddim(Sampler):
    """First order; eta = 1 on all nodes is the paper's chain (Alg. 2), eta = 0 the ODE."""

    eta: float = 0.0

    def step(self, denoise, r, k, j, memory, normal):
        (a_k, s_k), (a_j, s_j) = self.scales(k), self.scales(j)
        r0 = denoise(r, k)
        eps = (r - a_k * r0) / s_k
        tau = self.eta**2 * (1.0 - (a_k * s_j / (a_j * s_k)) ** 2)
        r = a_j * r0 + s_j * (1.0 - tau) ** 0.5 * eps
        if tau > 0 and s_j > 0:
            r = r + s_j * tau**0.5 * normal()
        return r, None


@dataclass(frozen=True)
class Multistep(Sampler):
    """Second order in log-SNR: the estimate of r_0 is extrapolated along the last two nodes.

    Over a step more than twice as long as the one before it is taken as it is.
    """

    stochastic: bool = False

    def reach(self, n_skipped: int) -> float:
        """How far to extrapolate over a step across so many nodes, in parts of the way to its middle."""
        return 1.0

    def step(self, denoise, r, k, j, memory, normal):
        (a_k, s_k), (a_j, s_j) = self.scales(k), self.scales(j)
        r0 = denoise(r, k)
        if s_j == 0:
            return a_j * r0, None
        h = torch.log(torch.tensor(a_j * s_k / (a_k * s_j), dtype=torch.float64)).item()
        ahead = r0
        if memory is not None and h <= 2.0 * memory[1]:
            before, h_before = memory
            ahead = r0 + self.reach(k - j) * (h / (2.0 * h_before)) * (r0 - before)
        shrink = a_k * s_j / (a_j * s_k)  # exp(-h)
        if not self.stochastic:
            return (s_j / s_k) * r + a_j * (1.0 - shrink) * ahead, (r0, h)
        kept = 1.0 - shrink**2
        noise = s_j * kept**0.5 * normal()
        return (s_j / s_k) * shrink * r + a_j * kept * ahead + noise, (r0, h)


@dataclass(frozen=True)
class ShortChain(Multistep):
    """What the paper's chain draws, in fewer steps.

    Over each of its small steps the chain takes its last estimate of r_0 for certain. On average an
    estimate is then half a small step old, and draws come out too narrow: by a twelfth for a residual of
    0.05. A long step in place of n small ones does the same: it extrapolates to half a small step before
    its middle. Over a single step it is the chain's own.
    """

    stochastic: bool = True

    def reach(self, n_skipped: int) -> float:
        return 1.0 - 1.0 / n_skipped


def ancestral(schedule: Schedule) -> Ddim:
    """The paper's sampler: every step of the chain, with fresh noise (Alg. 2)."""
    return Ddim(schedule, all_nodes(schedule), eta=1.0)


def short_chain(schedule: Schedule, n_evaluations: int) -> Sampler:
    """The chain itself where it has no more steps than that."""
    if n_evaluations >= schedule.n_steps:
        return ancestral(schedule)
    return ShortChain(schedule, widening_nodes(schedule, n_evaluations))


def to_one(sampler: Sampler) -> Sampler:
    """The same without its last step, the one that adds no noise: draws of y_1 instead of y_0."""
    return replace(sampler, nodes=sampler.nodes[:-1])


SAMPLERS: dict[str, Callable[[Schedule, int], Sampler]] = {
    "ancestral": lambda schedule, _: ancestral(schedule),
    "ancestral-to-1": lambda schedule, _: to_one(ancestral(schedule)),
    "short-chain": short_chain,
    "short-chain-to-1": lambda schedule, n: to_one(short_chain(schedule, n)),
    "ddim": lambda schedule, n: Ddim(schedule, even_nodes(schedule, n), eta=0.0),
    "multistep": lambda schedule, n: Multistep(schedule, log_snr_nodes(schedule, n)),
    "multistep-sde": lambda schedule, n: Multistep(schedule, log_snr_nodes(schedule, n), stochastic=True),
}


def make_sampler(name: str, schedule: Schedule, n_evaluations: int) -> Sampler:
    """One of `SAMPLERS`, on a sensible grid."""
    if name not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {name!r}.")
    return SAMPLERS[name](schedule, n_evaluations)
