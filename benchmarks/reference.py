"""CARD regression, written plainly from the paper: the yardstick for `benchmarks/run.py`.

The response is diffused towards N(f(x), I), a network learns the noise, and 1000 steps of the
reverse chain draw from p(y|x) (CARD, Alg. 1 and 2). Everything is what one writes first in
PyTorch: a DataLoader, one embedding table per layer, Adam, an exponential moving average by a
loop over the parameters, and a sampler that moves all draws of all rows as one tensor.

Nothing here is meant to be slow, and nothing here is imported by the library. Run as a
program, it measures itself on random data of Boston's shape.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Settings:
    """The paper's settings for the UCI sets; batch size and epochs are Boston's."""

    n_steps: int = 1000
    beta_first: float = 1e-4
    beta_last: float = 0.02
    width: int = 128
    rate: float = 1e-3
    amsgrad: bool = True
    clip: float = 1.0
    ema: float = 0.9999
    batch: int = 32
    epochs: int = 5000
    mean_hidden: tuple[int, ...] = (100, 50)
    mean_dropout: float = 0.2
    mean_epochs: int = 1000
    mean_patience: int = 50


class Diffusion:
    """Coefficients of the forward chain and of its posterior; index t - 1 holds step t."""

    def __init__(self, settings: Settings):
        self.beta = torch.linspace(settings.beta_first, settings.beta_last, settings.n_steps)
        alpha = 1 - self.beta
        self.abar = alpha.cumprod(0)
        before = torch.cat([torch.ones(1), self.abar[:-1]])
        self.gamma_0 = self.beta * before.sqrt() / (1 - self.abar)
        self.gamma_1 = (1 - before) * alpha.sqrt() / (1 - self.abar)
        self.gamma_2 = 1 + (self.abar.sqrt() - 1) * (alpha.sqrt() + before.sqrt()) / (1 - self.abar)
        self.spread = (self.beta * (1 - before) / (1 - self.abar)).sqrt()

    def forward_draw(self, y: Tensor, f: Tensor, t: Tensor, eps: Tensor) -> Tensor:
        """One draw of q(y_t | y_0, f(x))."""
        abar = self.abar[t - 1].unsqueeze(1)
        return abar.sqrt() * y + (1 - abar.sqrt()) * f + (1 - abar).sqrt() * eps


class ConditionalLinear(nn.Module):
    """An affine map whose outputs are scaled by a learnable row of its own for each step t."""

    def __init__(self, n_in: int, n_out: int, n_steps: int):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.embedding = nn.Embedding(n_steps + 1, n_out)
        nn.init.uniform_(self.embedding.weight)

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        return self.embedding(t) * self.linear(h)


class Denoiser(nn.Module):
    """The noise in y_t as predicted from (y_t, f(x), x, t)."""

    def __init__(self, n_features: int, settings: Settings):
        super().__init__()
        width, n_steps = settings.width, settings.n_steps
        self.first = ConditionalLinear(n_features + 2, width, n_steps)
        self.second = ConditionalLinear(width, width, n_steps)
        self.third = ConditionalLinear(width, width, n_steps)
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor, y_t: Tensor, f: Tensor, t: Tensor) -> Tensor:
        h = torch.cat([y_t, f, x], dim=1)
        for layer in (self.first, self.second, self.third):
            h = F.softplus(layer(h, t))
        return self.last(h)


def mean_network(n_features: int, settings: Settings) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_out in settings.mean_hidden:
        layers += [nn.Linear(n_features, n_out), nn.LeakyReLU(0.01), nn.Dropout(settings.mean_dropout)]
        n_features = n_out
    return nn.Sequential(*layers, nn.Linear(n_features, 1))


def adam(network: nn.Module, settings: Settings) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=settings.rate, amsgrad=settings.amsgrad)


def batches(x: Tensor, y: Tensor, settings: Settings) -> DataLoader:
    return DataLoader(TensorDataset(x, y), batch_size=settings.batch, shuffle=True)


def mean_epoch(network: nn.Module, optimiser: torch.optim.Optimizer, loader: DataLoader) -> None:
    network.train()
    for x, y in loader:
        optimiser.zero_grad()
        F.mse_loss(network(x), y).backward()
        optimiser.step()


def best_number_of_epochs(x: Tensor, y: Tensor, settings: Settings) -> int:
    """Epochs to the best validation error: the first 60 % of the rows train, the rest validate."""
    cut = round(0.6 * len(x))
    network = mean_network(x.shape[1], settings)
    optimiser = adam(network, settings)
    loader = batches(x[:cut], y[:cut], settings)
    best, best_epoch = math.inf, 1
    for epoch in range(1, settings.mean_epochs + 1):
        mean_epoch(network, optimiser, loader)
        network.eval()
        with torch.no_grad():
            error = F.mse_loss(network(x[cut:]), y[cut:]).item()
        if error < best:
            best, best_epoch = error, epoch
        elif epoch - best_epoch >= settings.mean_patience:
            break
    return best_epoch


def fit_mean(x: Tensor, y: Tensor, settings: Settings) -> nn.Module:
    """f(x): early stopping chooses the number of epochs, then a new network trains on all rows."""
    n_epochs = best_number_of_epochs(x, y, settings)
    network = mean_network(x.shape[1], settings)
    optimiser = adam(network, settings)
    loader = batches(x, y, settings)
    for _ in range(n_epochs):
        mean_epoch(network, optimiser, loader)
    return network.eval().requires_grad_(False)


def antithetic_times(n: int, n_steps: int) -> Tensor:
    """Steps 1..T: half are uniform, the other half mirror them."""
    t = torch.randint(1, n_steps + 1, (n // 2 + 1,))
    return torch.cat([t, n_steps + 1 - t])[:n]


def training_step(
    network: Denoiser,
    average: Denoiser,
    optimiser: torch.optim.Optimizer,
    diffusion: Diffusion,
    x: Tensor,
    y: Tensor,
    f: Tensor,
    settings: Settings,
) -> None:
    """One step of Alg. 1, with clipping and the moving average of the weights."""
    t = antithetic_times(len(x), settings.n_steps)
    eps = torch.randn_like(y)
    loss = F.mse_loss(network(x, diffusion.forward_draw(y, f, t, eps), f, t), eps)
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
    optimiser.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), network.parameters(), strict=True):
            slow.mul_(settings.ema).add_(fast, alpha=1 - settings.ema)


class Trainer:
    """The denoiser, its moving average and its optimiser; `run` takes as many steps as are asked for."""

    def __init__(self, x: Tensor, y: Tensor, mean: nn.Module, settings: Settings):
        self.settings, self.mean = settings, mean
        self.diffusion = Diffusion(settings)
        self.network = Denoiser(x.shape[1], settings)
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.optimiser = adam(self.network, settings)
        self.loader = batches(x, y, settings)

    def run(self, n_steps: int) -> Denoiser:
        done = 0
        while done < n_steps:
            for x, y in self.loader:
                with torch.no_grad():
                    f = self.mean(x)
                training_step(
                    self.network, self.average, self.optimiser, self.diffusion, x, y, f, self.settings
                )
                done += 1
                if done == n_steps:
                    break
        return self.average


@torch.no_grad()
def draw(
    network: Denoiser,
    mean: nn.Module,
    x: Tensor,
    n_draws: int,
    settings: Settings,
    last_steps: int | None = None,
) -> Tensor:
    """Draws (n_draws, n_rows) by Alg. 2; `last_steps` cuts the chain short, for timing only."""
    diffusion = Diffusion(settings)
    f = mean(x).repeat(n_draws, 1)
    y = f + torch.randn_like(f)
    x_all = x.repeat(n_draws, 1)
    for t in range(last_steps or settings.n_steps, 0, -1):
        abar = diffusion.abar[t - 1]
        eps = network(x_all, y, f, torch.tensor([t]))
        y_0 = (y - (1 - abar.sqrt()) * f - (1 - abar).sqrt() * eps) / abar.sqrt()
        if t == 1:
            y = y_0
        else:
            k = t - 1
            y = diffusion.gamma_0[k] * y_0 + diffusion.gamma_1[k] * y + diffusion.gamma_2[k] * f
            y = y + diffusion.spread[k] * torch.randn_like(y)
    return y.reshape(n_draws, len(x))


def training_rate(trainer: Trainer, n_steps: int) -> float:
    """Steps a second over `n_steps` steps, by the processor's clock."""
    start = time.process_time()
    trainer.run(n_steps)
    return n_steps / (time.process_time() - start)


def sampling_rate(
    network: Denoiser, mean: nn.Module, x: Tensor, n_draws: int, settings: Settings, last_steps: int
) -> float:
    """Row-steps a second (rows x draws x steps) over the last few steps of the chain."""
    start = time.process_time()
    draw(network, mean, x, n_draws, settings, last_steps)
    return len(x) * n_draws * last_steps / (time.process_time() - start)


@dataclass(frozen=True)
class Rates:
    """What the reference does on one thread."""

    mean_seconds: float
    steps: float  # training steps a second
    row_steps: float  # rows x draws x steps a second

    def budget(self, n_train: int, n_test: int, n_draws: int, settings: Settings) -> tuple[float, float]:
        """Seconds that the paper's whole training takes, and all its draws for the test rows."""
        steps = settings.epochs * -(-n_train // settings.batch)
        train = self.mean_seconds + steps / self.steps
        return train, n_test * n_draws * settings.n_steps / self.row_steps


def measure(
    x: Tensor, y: Tensor, n_test: int, n_draws: int, settings: Settings, last_steps: int = 20
) -> Rates:
    """All rates on standardised training rows x, y; sampling for the first `n_test` of them."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.process_time()
    mean = fit_mean(x, y, settings)
    mean_seconds = time.process_time() - start
    trainer = Trainer(x, y, mean, settings)
    trainer.run(50)
    steps = training_rate(trainer, 400)
    return Rates(
        mean_seconds, steps, sampling_rate(trainer.average, mean, x[:n_test], n_draws, settings, last_steps)
    )


def main() -> None:
    settings = Settings()
    torch.manual_seed(0)
    x, y = torch.randn(455, 13), torch.randn(455, 1)
    for _ in range(3):
        rates = measure(x, y, 51, 1000, settings)
        print(
            f"mean model {rates.mean_seconds:.1f} s, training {rates.steps:.0f} steps/s at batch 32, "
            f"sampling {rates.row_steps / 1e6:.2f} M row-steps/s"
        )


if __name__ == "__main__":
    main()
