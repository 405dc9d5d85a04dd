import math
from itertools import pairwise

import pytest
import torch
from oracles import exact_std, gamma_step, gaussian_denoiser, table_noise

from card.denoise import TableDenoiser
from card.nn import generators, softplus
from card.noise import even_log_snr, linear
from card.sample import (
    Ddim,
    Multistep,
    ShortChain,
    all_nodes,
    ancestral,
    even_nodes,
    log_snr_nodes,
    make_sampler,
)

MEAN, STD = 0.7, 0.3


def no_noise():
    raise AssertionError("a deterministic sampler asked for noise")


def flow_std(sampler) -> float:
    """Standard deviation that the flow gives N(0.7, 0.3^2): it is linear, so two latents tell it."""
    denoise = gaussian_denoiser(sampler.schedule, MEAN, STD)
    ends = sampler(denoise, torch.tensor([-1.0, 1.0], dtype=torch.float64), no_noise)
    return float(ends[1] - ends[0]) / 2


def test_the_step_is_the_papers_gamma_form_to_rounding():
    beta = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    schedule = linear()
    rng = torch.Generator().manual_seed(0)
    y_t, f, z, eps = (torch.randn(64, generator=rng, dtype=torch.float64) for _ in range(4))
    sampler = ancestral(schedule)
    for t in (1000, 999, 500, 17, 2, 1):
        a, s = schedule.alpha[t], schedule.sigma[t]
        y0_hat = (y_t - (1 - a) * f - s * eps) / a
        ours, _ = sampler.step(lambda r, k, a=a, s=s: (r - s * eps) / a, y_t - f, t, t - 1, None, lambda: z)
        paper = gamma_step(y_t, y0_hat, f, z, beta, t)
        assert torch.allclose(ours + f, paper, rtol=0, atol=1e-11)


def test_ancestral_chain_draws_the_gaussian_of_its_denoiser():
    schedule = linear()
    rng = torch.Generator().manual_seed(1)

    def normal():
        return torch.randn(20_000, generator=rng)

    draws = ancestral(schedule)(gaussian_denoiser(schedule, MEAN, STD), normal(), normal)
    assert float(draws.mean()) == pytest.approx(MEAN, abs=0.01)
    assert float(draws.std()) == pytest.approx(0.296, abs=0.005)


@pytest.mark.parametrize(("n", "std"), [(10, 0.185), (20, 0.237), (50, 0.273)])
def test_ddim_on_even_steps_loses_spread_as_known(n, std):
    schedule = linear()
    assert flow_std(Ddim(schedule, even_nodes(schedule, n))) == pytest.approx(std, abs=0.012)


@pytest.mark.parametrize("n", [10, 20, 50])
def test_multistep_keeps_the_spread_with_few_evaluations(n):
    schedule = linear()
    assert flow_std(Multistep(schedule, log_snr_nodes(schedule, n))) == pytest.approx(STD, abs=0.011)


def test_stochastic_multistep_draws_the_gaussian_too():
    schedule = linear()
    rng = torch.Generator().manual_seed(2)

    def normal():
        return torch.randn(20_000, generator=rng, dtype=torch.float64)

    sampler = make_sampler("multistep-sde", schedule, 40)
    draws = sampler(gaussian_denoiser(schedule, MEAN, STD), normal(), normal)
    assert float(draws.mean()) == pytest.approx(MEAN, abs=0.01)
    assert float(draws.std()) == pytest.approx(STD, abs=0.012)


@pytest.mark.parametrize(("std", "narrower"), [(0.02, 0.817), (0.05, 0.926), (0.3, 0.988), (2.0, 0.997)])
def test_the_chain_draws_small_residuals_too_narrow(std, narrower):
    assert exact_std(make_sampler("ancestral", linear(), 0), std) == pytest.approx(narrower * std, rel=1e-3)


@pytest.mark.parametrize("std", [0.02, 0.3])
def test_the_chain_left_one_step_early_holds_y_1_with_its_noise(std):
    schedule = linear(10, 0.01, 0.95)
    early, whole = (
        exact_std(make_sampler(name, schedule, 0), std) for name in ("ancestral-to-1", "ancestral")
    )
    alpha, sigma = float(schedule.alpha[1]), float(schedule.sigma[1])
    estimate = (
        alpha * std**2 / (alpha**2 * std**2 + sigma**2)
    )  # of y_0 from y_1: the last step is this and no more
    assert whole == pytest.approx(estimate * early, rel=1e-6)


@pytest.mark.parametrize("std", [0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0])
@pytest.mark.parametrize(("n", "off"), [(64, 0.003), (80, 0.0015), (128, 0.0005)])
def test_the_short_chain_has_the_spread_of_the_chain(std, n, off):
    chain = exact_std(make_sampler("ancestral", linear(), 0), std)
    assert exact_std(make_sampler("short-chain", linear(), n), std) == pytest.approx(chain, rel=off)


@pytest.mark.parametrize("std", [0.01, 0.05, 0.3, 2.0])
def test_the_short_chain_left_at_y_1_has_the_spread_of_the_chain_left_there(std):
    chain = exact_std(make_sampler("ancestral-to-1", linear(), 0), std)
    assert exact_std(make_sampler("short-chain-to-1", linear(), 64), std) == pytest.approx(chain, rel=0.003)


def test_a_short_chain_of_as_many_evaluations_is_the_chain():
    schedule = linear(50, 1e-4, 0.4)
    assert make_sampler("short-chain", schedule, 50) == make_sampler("ancestral", schedule, 50)


def test_over_single_nodes_the_short_chain_takes_the_chains_own_steps():
    schedule = linear(50, 1e-4, 0.4)
    short, chain = ShortChain(schedule, all_nodes(schedule)), make_sampler("ancestral", schedule, 0)
    assert exact_std(short, 0.1) == pytest.approx(exact_std(chain, 0.1), rel=1e-12)


@pytest.mark.parametrize("n", [2, 7, 64, 499, 999])
def test_a_short_chain_has_the_asked_for_steps_the_last_of_them_the_chains_own(n):
    nodes = make_sampler("short-chain", linear(), n).nodes
    steps = [k - j for k, j in pairwise(nodes)]
    assert (nodes[0], nodes[-1], len(steps)) == (1000, 0, n)
    assert steps[-1] == 1 or n < 16
    assert min(steps) > 0


def measured_order(make) -> float:
    """Slope of log error against log step; the end of the grid is fixed far below the scale."""
    errors = []
    for n in (20, 40, 80):
        schedule = even_log_snr(n, 1e-4, 200.0)
        errors.append(abs(flow_std(make(schedule)) - STD))
    return math.log2(errors[0] / errors[2]) / 2


def test_ddim_is_of_first_order_and_multistep_of_second():
    assert measured_order(lambda s: Ddim(s, all_nodes(s))) == pytest.approx(1.0, abs=0.25)
    assert measured_order(lambda s: Multistep(s, all_nodes(s))) == pytest.approx(2.0, abs=0.4)


def test_node_grids_fall_from_the_top_to_zero():
    schedule = linear()
    for nodes in (even_nodes(schedule, 10), log_snr_nodes(schedule, 10)):
        assert nodes[0] == 1000
        assert nodes[-2:] == (1, 0)
        assert list(nodes) == sorted(nodes, reverse=True)


def test_bad_nodes_and_names_are_refused():
    schedule = linear(10, 0.1, 0.5)
    with pytest.raises(ValueError, match="Nodes must fall from at most 10 to 0"):
        Ddim(schedule, (3, 5, 0))
    with pytest.raises(ValueError, match="sampler must be"):
        make_sampler("euler", schedule, 5)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_the_papers_network_says_in_sampling_what_it_says_in_training(size):
    schedule = linear(50)
    network = TableDenoiser(3, 2, schedule, generators([0, 1]), width=16)
    x, f, r = (size * torch.randn(2, 40, n, generator=torch.Generator().manual_seed(n)) for n in (3, 2, 2))
    for k in (1, 25, 50):
        eps = table_noise(network, r + f, f, x, network.times.at(k)).detach()
        alpha, sigma = float(schedule.alpha[k]), float(schedule.sigma[k])
        estimate = network.at(network.context(x, f), schedule)(r, k)
        torch.testing.assert_close(estimate, (r - sigma * eps) / alpha, rtol=1e-4, atol=1e-4 * size / alpha)


def test_softplus_is_the_same_with_and_without_gradients():
    x = torch.tensor([-200.0, -20.0, -1.0, 0.0, 0.5, 30.0, 100.0, 1e4])
    with torch.no_grad():
        torch.testing.assert_close(softplus(x), torch.nn.functional.softplus(x), rtol=1e-6, atol=1e-7)
