import numpy as np
import pytest
import torch
from torch import nn

from card.rows import RowAdam


@pytest.mark.parametrize("amsgrad", [True, False])
@pytest.mark.parametrize("rates", [np.full(300, 1e-3), np.linspace(1e-3, 1e-5, 300)])
def test_rows_touched_now_and_then_move_as_dense_adam_moves_them(amsgrad, rates):
    rng = torch.Generator().manual_seed(0)
    start = torch.rand(2, 40, 8, generator=rng)
    dense = nn.Parameter(start.clone())
    adam = torch.optim.Adam([dense], amsgrad=amsgrad)
    average = start.clone()
    lazy = RowAdam(nn.Parameter(start.clone()), rates, (0.9, 0.999), amsgrad, 0.99)
    for rate in rates:
        k = torch.randint(0, 40, (2, 5), generator=rng)
        target = torch.randn(2, 5, 8, generator=rng)
        adam.param_groups[0]["lr"] = float(rate)
        (dense[torch.arange(2)[:, None], k] - target).square().sum().backward()
        adam.step()
        adam.zero_grad()
        average.lerp_(dense.detach(), 0.01)
        (lazy.look_up(k) - target).square().sum().backward()
        lazy.square_norm()
        lazy.step(torch.ones(2))
    lazy.finish()
    assert torch.allclose(lazy.weight, dense.detach(), atol=5e-6)
    assert torch.allclose(lazy.ema, average, atol=5e-6)


def test_the_gradient_norm_counts_a_row_met_twice_once():
    table = nn.Parameter(torch.zeros(2, 5, 3))
    lazy = RowAdam(table, np.full(5, 1e-3), (0.9, 0.999), True, 0.99)
    k = torch.tensor([[1, 1, 2], [4, 0, 4]])
    weight = torch.arange(18.0).view(2, 3, 3)
    (lazy.look_up(k) * weight).sum().backward()
    dense = torch.zeros(2, 5, 3)
    for m in range(2):
        for b in range(3):
            dense[m, k[m, b]] += weight[m, b]
    assert torch.allclose(lazy.square_norm(), dense.square().sum((1, 2)))
