"""The paper and the textbook as oracles: plain, slow, and used nowhere but in tests."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gamma_step(y_t: Tensor, y0_hat: Tensor, f: Tensor, z: Tensor, beta: Tensor, t: int) -> Tensor:
    """One step of CARD, Alg. 2, lines 3-5, in the paper's gamma form; betas are numbered from 1."""
    alpha = 1.0 - beta
    abar = torch.cumprod(alpha, 0)
    b, a, ab = beta[t - 1], alpha[t - 1], abar[t - 1]
    if t == 1:
        return y0_hat
    ab_before = abar[t - 2]
    gamma_0 = b * ab_before.sqrt() / (1 - ab)
    gamma_1 = (1 - ab_before) * a.sqrt() / (1 - ab)
    gamma_2 = 1 + (ab.sqrt() - 1) * (a.sqrt() + ab_before.sqrt()) / (1 - ab)
    beta_tilde = (1 - ab_before) / (1 - ab) * b
    return gamma_0 * y0_hat + gamma_1 * y_t + gamma_2 * f + beta_tilde.sqrt() * z


def gaussian_denoiser(schedule, mean: float, std: float):
    """The perfect denoiser for r_0 ~ N(mean, std^2): E[r_0 | r_k]."""

    def denoise(r: Tensor, k: int) -> Tensor:
        a, s = float(schedule.alpha[k]), float(schedule.sigma[k])
        return mean + a * std**2 / (a**2 * std**2 + s**2) * (r - a * mean)

    return denoise


def exact_std(sampler, std: float) -> float:
    """Of what is drawn with the perfect denoiser of N(0, std^2), which makes a draw a sum of its noises."""
    noises = iter(torch.eye(len(sampler.nodes) + 1, dtype=torch.float64))
    draw = sampler(gaussian_denoiser(sampler.schedule, 0.0, std), next(noises), lambda: next(noises))
    return float(draw.norm())


def mixture_denoiser(schedule, means: list[float], std: float):
    """The perfect denoiser for equal Gaussians N(mean_i, std^2)."""
    centres = torch.tensor(means, dtype=torch.float64)

    def denoise(r: Tensor, k: int) -> Tensor:
        a, s = float(schedule.alpha[k]), float(schedule.sigma[k])
        variance = a**2 * std**2 + s**2
        weight = torch.softmax(-((r[..., None] - a * centres) ** 2) / (2 * variance), -1)
        each = centres + a * std**2 / variance * (r[..., None] - a * centres)
        return (weight * each).sum(-1)

    return denoise


def mixture_cdf(y: Tensor, means: list[float], std: float) -> Tensor:
    return torch.stack([0.5 * (1 + torch.erf((y - m) / (std * math.sqrt(2)))) for m in means]).mean(0)


def table_noise(network, y: Tensor, f: Tensor, x: Tensor, gates: Tensor) -> Tensor:
    """eps by the paper's network (CARD, Table 6a), from the rows of its table (M, B or 1, 3H)."""
    h = torch.cat([y, f, x] if network.mean_input else [y, x], dim=2)
    for layer, gate in zip((network.first, *network.hidden), gates.chunk(3, dim=-1), strict=True):
        h = torch.nn.functional.softplus(layer(h) * gate)
    return network.last(h)
