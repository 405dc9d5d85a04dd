"""Probabilistic back-propagation: a Bayesian network learned one row at a time, without sampling.

Hernández-Lobato and Adams (2015). Every weight has a Gaussian N(m, v), the noise precision a Gamma. A row
goes forward as means and variances, each layer's output matched by a Gaussian, which gives the
evidence Z of its response; backward, the gradients of log Z turn prior into posterior:

    m <- m + v dlogZ/dm,    v <- v - v^2 ((dlogZ/dm)^2 - 2 dlogZ/dv).

The Gamma of the noise is updated by matching moments, which needs Z at three noise scales. After each
pass over the rows the common prior variance of the weights is learned from their moments; here by the
mean-field formula, where the authors run expectation propagation weight by weight. Rows come one by
one, as in the authors' work, so there is neither a batch size nor a learning rate; and since so little is
done at a time, it is done by NumPy, on arrays that share the memory of the network's weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from scipy.special import erfcx, ndtr
from torch import Generator, Tensor, nn

from card.baselines.base import NetworkRegressor, settings
from card.distribution import Gaussian
from card.nn import normal
from card.train import seed_of

SHAPE, RATE = 6.0, 6.0  # of both Gamma priors: as if three values of variance 1 had been seen

Moments = tuple[np.ndarray, np.ndarray]  # means and variances


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

    def layers(self) -> list[Moments]:
        """Means and variances of each layer's weights, (M, I, O), in the memory of the parameters."""
        pairs = zip(self.means, self.variances, strict=True)
        return [(mean.detach().numpy(), variance.detach().numpy()) for mean, variance in pairs]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, (M, B) each, of the network's output at rows (M, B, D)."""
        m, v = through(x.numpy(), self.layers())[-1]
        return torch.from_numpy(m[..., 0]), torch.from_numpy(v[..., 0])

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


def through(x: np.ndarray, layers: Sequence[Moments]) -> list[Moments]:
    """Moments of rows x (M, B, D), and of what each layer makes of them before its ReLU."""
    stages = [(x, np.zeros_like(x))]
    for i, (mean, variance) in enumerate(layers):
        m, v = widened(*(rectified(*stages[-1]) if i else stages[-1]))
        n = mean.shape[1]
        stages.append((m @ mean / math.sqrt(n), (m * m @ variance + v @ (mean * mean + variance)) / n))
    return stages


@np.errstate(all="ignore")  # an update that overflows is not made
def see(layers: Sequence[Moments], noise: np.ndarray, x: np.ndarray, z: np.ndarray) -> None:
    """Learn from one row of each member, x (M, 1, D) and z (M,)."""
    stages = through(x, layers)
    m, v = (part[:, 0, 0] for part in stages[-1])
    evidence = [log_evidence(noise, z, m, v, extra) for extra in (-1.0, 0.0, 1.0)]
    for (mean, variance), (dm, dv) in zip(layers, slopes(layers, noise, stages, z), strict=True):
        new = variance - variance * variance * (dm * dm - 2 * dv)
        good = (new > 1e-100) & np.isfinite(new)
        np.add(mean, variance * dm, out=mean, where=good)
        np.copyto(variance, new, where=good)
    _see_noise(noise, *evidence)


def log_evidence(noise: np.ndarray, z: np.ndarray, m: np.ndarray, v: np.ndarray, extra: float) -> np.ndarray:
    """log N(z; m, v + rate / (shape + extra)), (M,)."""
    shape, rate = noise.T
    total = v + rate / (shape + extra)
    return -0.5 * (np.log(total) + (z - m) ** 2 / total + math.log(2 * math.pi))


def slopes(
    layers: Sequence[Moments], noise: np.ndarray, stages: Sequence[Moments], z: np.ndarray
) -> list[Moments]:
    """dlogZ/dm and dlogZ/dv of each layer's weights, for one row of each member: back-propagation."""
    shape, rate = noise.T
    m, v = (part[:, 0, 0] for part in stages[-1])
    total = v + rate / (shape - 1.0)
    pull = (z - m) / total
    dm, dv = pull[:, None, None], (0.5 * (pull * pull - 1 / total))[:, None, None]
    found = []
    for i, (mean, variance) in reversed(list(enumerate(layers))):
        before = rectified(*stages[i]) if i else stages[i]
        m, v = widened(*before)
        n = mean.shape[1]
        dm, dv = dm / math.sqrt(n), dv / n
        m_up, v_up = m.swapaxes(1, 2), v.swapaxes(1, 2)
        found.append((m_up * dm + 2 * mean * (v_up * dv), (m_up * m_up + v_up) * dv))
        if i:  # the bias, last, has nothing before it
            on_m = (dm @ mean.swapaxes(1, 2) + 2 * m * (dv @ variance.swapaxes(1, 2)))[..., :-1]
            on_v = (dv @ (mean * mean + variance).swapaxes(1, 2))[..., :-1]
            dm, dv = rectified_slopes(*stages[i], before[0], on_m, on_v)
    return found[::-1]


def _see_noise(noise: np.ndarray, low: np.ndarray, mid: np.ndarray, high: np.ndarray) -> None:
    shape, rate = noise.T
    new_shape = 1 / (np.exp(high - 2 * mid + low) * (shape + 1) / shape - 1)
    new_rate = 1 / (np.exp(high - mid) * (shape + 1) / rate - np.exp(mid - low) * shape / rate)
    new = np.stack([new_shape, new_rate], axis=1)
    good = (np.isfinite(new) & (new > 0)).all(axis=1) & (new_shape > 1)
    np.copyto(noise, new, where=good[:, None])


def widened(m: np.ndarray, v: np.ndarray) -> Moments:
    """One more column, of the bias: it is 1 for certain."""
    one = np.ones((*m.shape[:-1], 1))
    return np.concatenate([m, one], axis=-1), np.concatenate([v, 0 * one], axis=-1)


def rectified(m: np.ndarray, v: np.ndarray) -> Moments:
    """Mean and variance of max(a, 0) for a ~ N(m, v)."""
    scale = np.sqrt(v)
    a = m / scale
    above = ndtr(a)
    hazard = math.sqrt(2 / math.pi) / erfcx(-math.sqrt(0.5) * a)  # phi(a) / Phi(a)
    inner = m + scale * hazard  # the mean of a, given that it is positive
    mean = above * inner
    within = above * v * np.maximum(1 - hazard * (hazard + a), 0)
    return mean, mean * inner * ndtr(-a) + within + 1e-12


def rectified_slopes(
    m: np.ndarray, v: np.ndarray, mean: np.ndarray, dm: np.ndarray, dv: np.ndarray
) -> Moments:
    """Slopes by the moments of max(a, 0), of which `mean` is the first, as slopes by those of a ~ N(m, v).

    E h(a) has the slopes E h'(a) by m and E h''(a) / 2 by v; here for the mean and the second moment.
    """
    scale = np.sqrt(v)
    a = m / scale
    above = ndtr(a)
    bell = np.exp(-0.5 * a * a) / (math.sqrt(2 * math.pi) * scale)  # the density of a at 0
    return dm * above + 2 * dv * mean * (1 - above), 0.5 * dm * bell + dv * (above - mean * bell)


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
        x, z = members.x.double().numpy(), members.z.double()[:, 0].numpy()
        layers, noise = network.layers(), network.noise.numpy()
        for epoch in range(self.epochs):
            rngs = [Generator().manual_seed(seed_of(seed, 1, epoch)) for seed in members.seeds]
            order = torch.stack([torch.randperm(members.rows.shape[1], generator=rng) for rng in rngs])
            for rows in members.rows.gather(1, order).T.numpy():
                see(layers, noise, x[rows][:, None], z[rows])
            network.refine_prior()

    def _outputs(self, network, x):
        m, v = network(x[None])
        shape, rate = network.noise[0]
        return m[0], (v[0] + rate / (shape - 1)).sqrt()

    def _law(self, outputs):
        mean, scale = outputs
        return Gaussian(self._decode(mean), self._decode_scale(scale))
