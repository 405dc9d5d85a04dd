"""The forward process: how much of the response is left, and how much noise there is.

With a mean model f(x) the response is diffused towards N(f(x), I) (CARD, Eq. 6-7). In terms of
the residual r = y - f(x) this is the ordinary variance-preserving diffusion

    q(r_k | r_0) = N(alpha_k r_0, sigma_k^2 I),      alpha_k^2 + sigma_k^2 = 1,

at nodes k = 0..T, where node 0 is clean (alpha_0 = 1, sigma_0 = 0). In the paper's letters
alpha_k = sqrt(abar_k). Everything a sampler needs to know of the process is in these two
sequences; log-SNR, log(alpha_k^2 / sigma_k^2), is the time that all schedules share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Schedule:
    """Scales of q(r_k | r_0) = N(alpha_k r_0, sigma_k^2 I) at nodes k = 0..T; node 0 is clean."""

    alpha: Tensor  # (T+1,) float64
    sigma: Tensor  # (T+1,) float64

    @property
    def n_steps(self) -> int:
        return len(self.alpha) - 1

    @property
    def log_snr(self) -> Tensor:
        """log(alpha^2 / sigma^2) at each node, infinite at node 0."""
        return 2.0 * (self.alpha.log() - self.sigma.log())

    def diffuse(self, r: Tensor, eps: Tensor, k: Tensor) -> Tensor:
        """r_k = alpha_k r_0 + sigma_k eps, where k has the shape of r without its last axis."""
        alpha, sigma = (scale.to(r)[k].unsqueeze(-1) for scale in (self.alpha, self.sigma))
        return alpha * r + sigma * eps


def from_betas(beta: Tensor) -> Schedule:
    """The schedule whose one-step transitions are N(sqrt(1 - beta_k) r_{k-1}, beta_k I)."""
    if not bool(((beta > 0) & (beta < 1)).all()):
        raise ValueError(
            "Every beta must lie strictly between 0 and 1: choose other betas or another n_steps."
        )
    abar = torch.cat([torch.ones(1, dtype=torch.float64), (1.0 - beta.double()).cumprod(0)])
    return Schedule(abar.sqrt(), (1.0 - abar).sqrt())


def linear(n_steps: int = 1000, beta_1: float = 1e-4, beta_T: float = 0.02) -> Schedule:
    """Variances beta_1..beta_T in equal steps: the schedule of the paper."""
    return from_betas(torch.linspace(beta_1, beta_T, n_steps, dtype=torch.float64))


def cosine(n_steps: int = 1000, offset: float = 0.008, beta_max: float = 0.999) -> Schedule:
    """alpha_k^2 falls like a squared cosine (Nichol and Dhariwal 2021)."""
    time = torch.linspace(0, 1, n_steps + 1, dtype=torch.float64)
    abar = torch.cos((time + offset) / (1 + offset) * math.pi / 2) ** 2
    return from_betas((1.0 - abar[1:] / abar[:-1]).clamp(1e-12, beta_max))


def even_log_snr(n_steps: int, noise_min: float, noise_max: float) -> Schedule:
    """Nodes 1..T at which sigma / alpha grows from noise_min to noise_max by equal ratios."""
    if not 0 < noise_min < noise_max:
        raise ValueError(
            f"Noise levels must satisfy 0 < noise_min < noise_max, got {noise_min}, {noise_max}."
        )
    ratio = torch.logspace(math.log10(noise_min), math.log10(noise_max), n_steps, dtype=torch.float64)
    ratio = torch.cat([torch.zeros(1, dtype=torch.float64), ratio])
    alpha = (1.0 + ratio.square()).rsqrt()
    return Schedule(alpha, ratio * alpha)


SCHEDULES = {"linear": linear, "cosine": cosine}
