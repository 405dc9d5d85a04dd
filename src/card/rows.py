"""Adam for tables of which a batch touches few rows, with the updates of dense Adam.

Dense Adam moves a row on every step, also while its gradient is zero: its moments decay and the
row drifts on. Without a gradient the drift is a geometric series, so n steps of it can be made up
for at once when the row is next looked up. Let a row have first moment m and second moment v after
step t, and let w_j = lr sqrt(1 - beta2^j) / (1 - beta1^j) be the bias-corrected rate of step j. For
n idle steps the row moves by

    -m / sqrt(v) * sum_{i=1..n} b^i w_{t+i} = -u (Q_t - b^n Q_{t+n}),     Q_t = sum_{i>=1} b^i w_{t+i},

with b = beta1 for AMSGrad (the largest second moment stays) and b = beta1 / sqrt(beta2) for Adam (v
decays too). The moving average of the weights follows by the same rule: with decay d and rho = b / d,

    ema <- d^n ema + (1 - d^n)(row - u Q_t) + (1 - d) u d^n (U_t - rho^n U_{t+n}),
    U_t = sum_{i>=1} rho^i Q_{t+i}.

Adam's eps stands beside sqrt(v) as it was after step t; it matters only where v is near eps^2.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.signal import lfilter
from torch import Tensor, nn

EPS = 1e-8


def _tails(values: np.ndarray, ratio: float) -> np.ndarray:
    """sum_{i>=1} ratio^i values[t + i] for every t, the last value repeated for ever."""
    last = values[-1] * ratio / (1.0 - ratio)  # t = -1, and from there backwards by
    earlier, _ = lfilter([ratio], [1.0, -ratio], values[:0:-1], zi=[ratio * last])  # ratio * (value + tail)
    return np.append(earlier[::-1], last)


class RowAdam:
    """Adam (or AMSGrad) and the moving average for a table (M, R, O), each row kept as of its last use.

    `state` (M R, 5, O) holds, side by side, a row's weight, its two moments, the largest second moment
    and its moving average; `last` (M R,) the step of which they are.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        rates: np.ndarray,
        betas: tuple[float, float],
        amsgrad: bool,
        ema_decay: float,
    ) -> None:
        n_members, n_rows, width = weight.shape
        device = weight.device
        self.shape = weight.shape
        self.beta1, self.beta2 = betas
        self.amsgrad, self.decay = amsgrad, ema_decay
        self.first_row = torch.arange(n_members, device=device)[:, None] * n_rows
        self.state = torch.zeros(n_members * n_rows, 5, width, device=device)
        self.state[:, 0] = self.state[:, 4] = weight.detach().flatten(0, 1)
        self.last = torch.zeros(n_members * n_rows, dtype=torch.long, device=device)
        self.grad = torch.zeros(n_members * n_rows, width, device=device)
        self.buffer = self.state[:0]  # of the rows in use, so that no step allocates it anew
        self.now = 0

        t = np.arange(len(rates) + 1)
        first = np.maximum(t, 1)
        self.correction = np.sqrt(1.0 - self.beta2**first)
        self.rates = np.concatenate([rates[:1], rates]) * self.correction / (1.0 - self.beta1**first)
        ratio = self.beta1 if amsgrad else self.beta1 / np.sqrt(self.beta2)
        rho = ratio / ema_decay
        q = _tails(self.rates, ratio)
        self.tails = torch.from_numpy(np.stack([q, _tails(q, rho)], 1)).to(device)  # Q, U
        bases = np.array([self.beta1, self.beta2, ema_decay, ratio, rho])
        self.powers = torch.from_numpy(bases ** t[:, None]).to(device)

    def look_up(self, k: Tensor) -> Tensor:
        """The rows k (M, B), brought up to date, as a leaf whose gradient `step` will read."""
        with torch.no_grad():
            self.touched = (k + self.first_row).flatten()
            self.fresh = self._caught_up(self.touched)
            self.leaf = self.fresh[:, 0].reshape(*k.shape, -1).clone()
        return self.leaf.requires_grad_()

    def square_norm(self) -> Tensor:
        """Squared norm of each member's gradient (M,), rows met twice in a batch summed first."""
        assert self.leaf.grad is not None
        grad = self.leaf.grad.flatten(0, 1)
        self.grad.index_add_(0, self.touched, grad)
        self.batch_grad = self.grad.index_select(0, self.touched)
        self.grad.index_fill_(0, self.touched, 0.0)
        return (grad * self.batch_grad).view(len(self.first_row), -1).sum(1)

    def step(self, scale: Tensor) -> None:
        """One step of Adam on the touched rows, gradients of member m times scale[m] (M,)."""
        self.now += 1
        grad = self.batch_grad
        grad.view(len(scale), -1).mul_(scale[:, None])
        weight, m, v, peak, ema = self.fresh.unbind(1)
        m.lerp_(grad, 1.0 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1.0 - self.beta2)
        torch.maximum(peak, v, out=peak)
        weight.sub_(self._direction(m, v, peak), alpha=float(self.rates[self.now]))
        ema.lerp_(weight, 1.0 - self.decay)
        self.state.index_copy_(0, self.touched, self.fresh)
        self.last.index_fill_(0, self.touched, self.now)

    def finish(self) -> None:
        """Bring every row up to date."""
        self.state = self._caught_up(torch.arange(len(self.state), device=self.state.device))
        self.buffer = self.state[:0]
        self.last.fill_(self.now)

    @property
    def weight(self) -> Tensor:
        return self.state[:, 0].reshape(self.shape)

    @property
    def ema(self) -> Tensor:
        return self.state[:, 4].reshape(self.shape)

    def _direction(self, m: Tensor, v: Tensor, peak: Tensor) -> Tensor:
        return m / (peak if self.amsgrad else v).sqrt().add_(EPS * float(self.correction[self.now]))

    def _caught_up(self, rows: Tensor) -> Tensor:
        """The rows' state (B, 5, O) after the steps they sat idle."""
        if self.buffer.shape[0] != len(rows):
            self.buffer = self.state.new_empty(len(rows), *self.state.shape[1:])
        fresh = torch.index_select(self.state, 0, rows, out=self.buffer)
        last = self.last.index_select(0, rows)
        beta1_n, beta2_n, decay_n, ratio_n, rho_n = self.powers.index_select(0, self.now - last).unbind(1)
        (q, u), (q_now, u_now) = self.tails.index_select(0, last).unbind(1), self.tails[self.now].tolist()
        moved = q - ratio_n * q_now
        lag = q * (1 - decay_n) - (1 - self.decay) * decay_n * (u - rho_n * u_now)
        by_row = torch.stack([moved, lag, beta1_n, beta2_n, decay_n], 1).to(fresh.dtype)[:, :, None]

        weight, m, v, peak, ema = fresh.unbind(1)
        direction = self._direction(m, v, peak)
        ema.sub_(weight).mul_(by_row[:, 4]).add_(weight).addcmul_(by_row[:, 1], direction, value=-1.0)
        weight.addcmul_(by_row[:, 0], direction, value=-1.0)
        m.mul_(by_row[:, 2])
        v.mul_(by_row[:, 3])
        return fresh

    def snapshot(self) -> dict[str, Tensor]:
        return {"state": self.state, "last": self.last, "now": torch.tensor(self.now)}

    def load(self, snapshot: dict[str, Tensor]) -> None:
        self.state.copy_(snapshot["state"])
        self.last.copy_(snapshot["last"])
        self.now = int(snapshot["now"])
