"""Denoisers of class prototypes: which class is behind a noisy one-hot vector?

Here y_0 is one of the C unit vectors e_c, and a noisy residual r_k = a r_0 + s eps, with r_0 = y_0 - f, is a
noisy prototype y_k = r_k + a f = a y_0 + s eps. Its likelihood under class c is that of N(a e_c, s^2 I), so
that whoever knows p(c | x) knows the perfect denoiser at every noise level:

    p(c | x, y_k) = softmax_c(log p(c | x) + (a / s^2) y_k),     E[r_0 | x, r_k] = p(. | x, y_k) - f.

`PrototypeDenoiser` learns what is unknown in it, p(c | x), and takes the rest as it is. A network reads a row
once, and learns from the cross-entropy of the posterior. `RowDenoiser` corrects log f: a network that
returns 0 leaves p(c | x) = f, so training starts from the base classifier and can only add to it.
`EncoderDenoiser` has an encoder of x and logits of its own: next to a decent f the correction is too faint
a signal to train an encoder by. What the network says, g, and f are then pooled,

    log p(c | x) = a log f_c + b log g_c + const,

with two numbers fitted on held-out rows. At the largest noise level the posterior is p(c | x) itself: the
class probabilities, without a draw.

`ProductDenoiser` is the network of the paper: it predicts eps, with no knowledge of the geometry.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from card.denoise import Denoiser, TableDenoiser
from card.nn import Linear, affine, normal, softplus, uniform
from card.noise import Schedule
from card.stacked import Stacked

SMALLEST = 1e-6  # probability of f whose logarithm is taken
LEVEL = (1.5, 1.0)  # mean and spread of log(s / a) in training: where a prototype is hard to tell without x


class PrototypeDenoiser(Denoiser):
    """M networks that know the classes' geometry.

    Parameters
    ----------
    mean_input : whether f has a part in p(c | x)
    centred : whether the prior is N(f, I); otherwise N(0, I), and r is y itself
    """

    pool: Tensor

    def __init__(self, n_classes: int, mean_input: bool, centred: bool) -> None:
        super().__init__()
        self.n_classes, self.mean_input, self.centred = n_classes, mean_input, centred
        self.register_buffer("pool", torch.tensor([0.0, 1.0]))  # exponents of f and of g

    @property
    @abstractmethod
    def n_members(self) -> int: ...

    @abstractmethod
    def logits(self, x: Tensor, f: Tensor, rngs: Sequence[Generator] | None = None) -> Tensor:
        """What the networks say, log g + const (M, N, C)."""

    def context(self, x, f, rngs=None):
        """log p(c | x), and f where the prior is centred there: (M, N, 2C)."""
        log_g = self.logits(x, f, rngs).log_softmax(dim=2)
        log_p = (self.pool[0] * log_of(f) + self.pool[1] * log_g).log_softmax(dim=2)
        return torch.cat([log_p, f if self.centred else torch.zeros_like(f)], dim=2)

    def at(self, context, schedule):
        alpha, sigma = schedule.alpha.tolist(), schedule.sigma.tolist()
        log_p, f = context.split(self.n_classes, dim=2)

        def denoise(r: Tensor, k: int) -> Tensor:
            y = r + alpha[k] * f
            return torch.softmax(log_p + alpha[k] / sigma[k] ** 2 * y, dim=2) - f

        return denoise

    def direct(self, context: Tensor) -> Tensor:
        """p(c | x) (M, N, C): the posterior where the noise is so large that y_k says nothing."""
        return context[..., : self.n_classes].exp()

    def loss(self, r, x, f, rngs):
        """Cross-entropy (M,) of the posterior at random levels; r = e_c - f is largest at c."""
        n = r.shape[1]
        log_p, centre = self.context(x, f, rngs).split(self.n_classes, dim=2)
        strata = (torch.arange(n, device=r.device) + uniform(rngs, n)) / n
        ratio = torch.exp(LEVEL[0] + LEVEL[1] * torch.special.ndtri(strata.clamp(1e-4, 1 - 1e-4)))[..., None]
        prototype = r + centre + ratio * normal(rngs, *r.shape[1:])  # y_k / a
        logits = (log_p + prototype / ratio.square()).transpose(1, 2)
        return functional.cross_entropy(logits, r.argmax(dim=2), reduction="none").mean(dim=1)


def log_of(f: Tensor) -> Tensor:
    return f.clamp_min(SMALLEST).log()


class RowDenoiser(PrototypeDenoiser):
    """Reads features of a row, and f, and corrects log f by two hidden layers."""

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        rngs: Sequence[Generator],
        width: int = 128,
        dropout: float = 0.0,
        mean_input: bool = True,
        centred: bool = True,
    ) -> None:
        super().__init__(n_classes, mean_input, centred)
        self.n_features, self.width, self.dropout = n_features, width, dropout
        self.first = Linear(n_features + n_classes * mean_input, width, rngs)
        self.hidden = Linear(width, width, rngs)
        self.last = Linear(width, n_classes, rngs, zero=True)

    @property
    def n_members(self) -> int:
        return len(self.last.weight)

    def logits(self, x, f, rngs=None):
        h = functional.silu(self.first(torch.cat([f, x], dim=2) if self.mean_input else x))
        if rngs is not None and self.dropout > 0:
            h = h * (uniform(rngs, *h.shape[1:]) >= self.dropout) / (1.0 - self.dropout)
        correction = self.last(functional.silu(self.hidden(h)))
        return correction + log_of(f) if self.mean_input else correction


class EncoderDenoiser(PrototypeDenoiser):
    """Encoders of rows x (M, B, *shape), each with a last layer that gives logits."""

    def __init__(
        self, networks: Stacked, n_classes: int, mean_input: bool = True, centred: bool = True
    ) -> None:
        super().__init__(n_classes, mean_input, centred)
        self.networks = networks

    @property
    def n_members(self) -> int:
        return len(next(self.networks.parameters()))

    def logits(self, x, f, rngs=None):
        return self.networks(x)


def with_head(encoder: nn.Module, width: int, n_classes: int) -> nn.Sequential:
    """An encoder's `width` outputs made logits."""
    return nn.Sequential(encoder, nn.SiLU(), nn.Linear(width, n_classes))


class BatchNorm(nn.Module):
    """M batch normalisations: (M, B, H) over B while training, by running statistics afterwards."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n_members: int, width: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(n_members, 1, width))
        self.bias = nn.Parameter(torch.zeros(n_members, 1, width))
        self.register_buffer("running_mean", torch.zeros(n_members, 1, width))
        self.register_buffer("running_var", torch.ones(n_members, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = x.mean(dim=1, keepdim=True), x.var(dim=1, keepdim=True, correction=0)
            n = x.shape[1]
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * (n / max(n - 1, 1)), self.momentum)
        scale = self.weight * (var + 1e-5).rsqrt()
        return torch.addcmul(self.bias - mean * scale, x, scale)


class ProductDenoiser(TableDenoiser):
    """The paper's network for classes (CARD, on classification; BatchNorm as in its published code).

        encoder(x) -> BatchNorm
        concat(y_k, f) -> Linear * row of step k -> BatchNorm -> Softplus
        product of the two -> 2 x [Linear * row of step k -> BatchNorm -> Softplus] -> Linear

    The encoder's own last layer is the BatchNorm.
    """

    def __init__(
        self,
        encoder: Stacked,
        n_classes: int,
        schedule: Schedule,
        rngs: Sequence[Generator],
        width: int,
        mean_input: bool = True,
        centred: bool = True,
    ) -> None:
        super().__init__(0, n_classes, schedule, rngs, width, mean_input, centred)
        self.encoder = encoder
        self.norms = nn.ModuleList(BatchNorm(len(rngs), width) for _ in range(3))

    @property
    def n_members(self) -> int:
        return len(self.last.weight)

    def context(self, x, f, rngs=None):
        nothing = f.new_empty(*f.shape[:2], 0)
        return torch.cat([super().context(nothing, f), self.encoder(x)], dim=2)

    def noise_of(self, first: Tensor, encoded: Tensor, gates: Tensor) -> Tensor:
        """eps, from the first layer's sums and the encoded rows (M, B, H) and table rows (M, B or 1, 3H)."""
        one, two, three = gates.split(self.width, dim=-1)
        h = softplus(self.norms[0](first * one)) * encoded
        h = softplus(self.norms[1](self.hidden[0](h) * two))
        h = softplus(self.norms[2](self.hidden[1](h) * three))
        return self.last(h)

    def at(self, context, schedule):
        if schedule is not self.schedule:
            raise ValueError(
                "This network knows only the time steps it was trained on: pick nodes among them."
            )
        alpha, sigma = schedule.alpha.tolist(), schedule.sigma.tolist()
        row, encoded = context.split(self.width, dim=2)
        response = self.first.weight[:, : self.n_targets]

        def denoise(r: Tensor, k: int) -> Tensor:
            eps = self.noise_of(affine(row, r, response), encoded, self.times.at(k))
            return (r - sigma[k] * eps) / alpha[k]

        return denoise

    def loss(self, r, x, f, rngs):
        k = self.antithetic_times(r.shape[1], rngs)
        eps = normal(rngs, *r.shape[1:])
        y = self.rounded.diffuse(r, eps, k)
        y = y + f if self.centred else y
        first = self.first(torch.cat([y, f] if self.mean_input else [y], dim=2))
        return (self.noise_of(first, self.encoder(x), self.times(k)) - eps).square().mean(dim=(1, 2))
