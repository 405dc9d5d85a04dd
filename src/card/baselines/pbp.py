"""Probabilistic back-propagation: a Bayesian network learned one row at a time, without sampling.

Hernández-Lobato and Adams (2015). Every weight has a Gaussian N(m, v), the noise precision a Gamma. A row
goes forward as means and variances, each layer's output matched by a Gaussian, which gives the
evidence Z of its response; backward, the gradients of log Z turn prior into posterior:

    m <- m + v dlogZ/dm,    v <- v - v^2 ((dlogZ/dm)^2 - 2 dlogZ/dv).

The Gamma of the noise is updated by matching moments, which needs Z at three noise scales. After each
pass over the rows the common prior variance of the weights is learned from their moments; here by the
mean-field formula, where the authors run expectation propagation weight by weight. Rows come one by
one, as in the authors' work, so there is neither a batch size nor a learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from card.baselines.base import NetworkRegressor, settings
from card.distribution import Gaussian
from card.nn import normal
from card.train import seed_of

SHAPE, RATE = 6.0, 6.0  # of both Gamma priors: as if three values of variance 1 had been seen


class Posterior(nn.Module):
    """Gaussians of all weights of each member, and Gammas of the noise and of the prior's precision."""

    noise: Tensor  # (M, 2): shape and rate
    spread: Tensor  # (M,): variance of the weights' prior

    def __init__(self, sizes: Sequence[int], rngs: Sequence[Generator]) -> None:
        super().__init__()
        shapes = [(i + 1, o) for i, o in pairwise(sizes)]  # the last row of weights is the bias
        start = RATE / (SHAPE - 1)
        means = [normal(rngs, *shape).double() / math.sqrt(shape[0]) for shape in shapes]
        self.means = nn.ParameterList(means)
        self.variances = nn.ParameterList([torch.full_like(mean, start) for mean in means])
        self.register_buffer("noise", torch.tensor([SHAPE, RATE]).double().repeat(len(rngs), 1))
        self.register_buffer("spread", torch.full((len(rngs),), start).double())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, (M, B) each, of the network's output at rows (M, B, D)."""
        m, v = x, torch.zeros_like(x)
        for i, (mean, variance) in enumerate(zip(self.means, self.variances, strict=True)):
            if i:
                m, v = rectified(m, v)
            n = mean.shape[1]
            m, v = widened(m, 1.0), widened(v, 0.0)
            m, v = (
                m @ mean / math.sqrt(n),
                (m.square() @ variance + v @ (mean.square() + variance)) / n,
            )
        return m[..., 0], v[..., 0]

    def log_evidence(self, z: Tensor, m: Tensor, v: Tensor, extra: float) -> Tensor:
        """log N(z; m, v + rate / (shape + extra)), (M,)."""
        shape, rate = self.noise.T
        total = v + rate / (shape + extra)
        return -0.5 * (total.log() + (z - m).square() / total + math.log(2 * math.pi))

    def see(self, x: Tensor, z: Tensor) -> None:
        """Learn from one row of each member, x (M, 1, D) and z (M,)."""
        m, v = (part[:, 0] for part in self(x))
        evidence = [self.log_evidence(z, m, v, extra) for extra in (-1.0, 0.0, 1.0)]
        weights = [*self.means, *self.variances]
        slopes = torch.autograd.grad(evidence[0].sum(), weights)
        with torch.no_grad():
            half = len(self.means)
            for mean, variance, dm, dv in zip(
                self.means, self.variances, slopes[:half], slopes[half:], strict=True
            ):
                new = variance - variance.square() * (dm.square() - 2 * dv)
                good = (new > 1e-100) & new.isfinite()
                mean.copy_(torch.where(good, mean + variance * dm, mean))
                variance.copy_(torch.where(good, new, variance))
            self._see_noise(*evidence)

    def _see_noise(self, low: Tensor, mid: Tensor, high: Tensor) -> None:
        shape, rate = self.noise.T
        new_shape = 1 / ((high - 2 * mid + low).exp() * (shape + 1) / shape - 1)
        new_rate = 1 / ((high - mid).exp() * (shape + 1) / rate - (mid - low).exp() * shape / rate)
        new = torch.stack([new_shape, new_rate], dim=1)
        good = (new.isfinite() & (new > 0)).all(1) & (new_shape > 1)
        self.noise.copy_(torch.where(good[:, None], new, self.noise))

    @torch.no_grad()
    def refine_prior(self) -> None:
        """Learn the prior's variance from the weights, and put the new prior in the old one's place."""
        n = sum(mean[0].numel() for mean in self.means)
        pairs = list(zip(self.means, self.variances, strict=True))
        size = sum((mean.square() + var).sum(dim=(1, 2)) for mean, var in pairs)
        spread = (RATE + 0.5 * size) / (SHAPE + 0.5 * n - 1)
        change = (1 / spread - 1 / self.spread)[:, None, None]
        for mean, var in pairs:
            precision = 1 / var + change
            good = precision > 1e-6
            mean.copy_(torch.where(good, mean / var / precision, mean))
            var.copy_(torch.where(good, 1 / precision, var))
        self.spread.copy_(spread)


def widened(x: Tensor, value: float) -> Tensor:
    """One more column, for the bias."""
    return nn.functional.pad(x, (0, 1), value=value)


def rectified(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of max(a, 0) for a ~ N(m, v)."""
    scale = v.sqrt()
    a = m / scale
    below, above = torch.special.ndtr(-a), torch.special.ndtr(a)
    hazard = (-0.5 * a.square() - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(a)).exp()
    inner = m + scale * hazard  # the mean of a, given that it is positive
    mean = above * inner
    within = above * v * (1 - hazard * (hazard + a)).clamp(min=0)
    return mean, mean * inner * below + within + 1e-12


@settings
class PBPRegressor(NetworkRegressor):
    """A Bayesian network with a Gaussian for every weight.

    Parameters
    ----------
    hidden, epochs
        ReLU layers, and passes over the rows.
    random_state
        Seed of everything random.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> PBPRegressor(epochs=2, random_state=0).fit(X, X[:, 0]).predict_distribution(X).std().shape
    (50,)
    """

    hidden: Sequence[int] = (50,)
    epochs: int = 100

    def _network(self, n_features, rngs):
        return Posterior((n_features, *self.hidden, 1), rngs)

    def _learn(self, network, members):
        x, z = members.x.double(), members.z.double()[:, 0]
        for epoch in range(self.epochs):
            rngs = [Generator().manual_seed(seed_of(seed, 1, epoch)) for seed in members.seeds]
            order = torch.stack([torch.randperm(members.rows.shape[1], generator=rng) for rng in rngs])
            for rows in members.rows.gather(1, order).T:
                network.see(x[rows][:, None], z[rows])
            network.refine_prior()

    def _outputs(self, network, x):
        m, v = network(x[None])
        shape, rate = network.noise[0]
        return m[0], (v[0] + rate / (shape - 1)).sqrt()

    def _law(self, outputs):
        mean, scale = outputs
        return Gaussian(self._decode(mean), self._decode_scale(scale))
