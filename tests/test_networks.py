"""Base classifiers and encoders: their size, their shapes, and what they must not do."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from card import networks
from card.networks import (
    Residual,
    Skip,
    conv_encoder,
    lenet5,
    lenet_encoder,
    linear_encoder,
    mlp,
    resnet9,
    resnet18,
    seeded,
)

LENET = 6 * 25 + 6 + 16 * 150 + 16 + 120 * 401 + 84 * 121 + 2 * (6 + 16 + 120 + 84)  # up to the features
RESNET9 = 9 * (3 * 32 + 32 * 64 + 2 * 64 * 64 + 64 * 128 + 3 * 128 * 128) + 2 * (32 + 3 * 64 + 4 * 128)
CASES = {
    "mlp": (lambda: mlp((1, 28, 28), 10), (1, 28, 28), 10, 785 * 300 + 301 * 100 + 1010),
    "mlp of a table": (lambda: mlp((7,), 3, batch_norm=True), (7,), 3, 8 * 300 + 301 * 100 + 303 + 800),
    "no hidden layer": (lambda: mlp((7,), 3, hidden=()), (7,), 3, 24),
    "lenet5": (lenet5, (1, 28, 28), 10, LENET + 850),
    "lenet5 of colours": (lambda: lenet5((3, 32, 32), 7), (3, 32, 32), 7, LENET + 6 * 50 + 120 * 176 + 595),
    "resnet18": (resnet18, (3, 32, 32), 10, 11_173_962),
    "resnet9": (resnet9, (3, 32, 32), 10, RESNET9 + 1290),
    "linear encoder": (lambda: linear_encoder((1, 4, 4), 8), (1, 4, 4), 8, 17 * 8 + 2 * 9 * 8 + 6 * 8),
    "lenet encoder": (lenet_encoder, (1, 28, 28), 2048, LENET + 85 * 2048 + 2 * 2048),
    "conv encoder": (lambda: conv_encoder(width=20), (3, 32, 32), 20, RESNET9 + 129 * 20 + 40),
}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=list(CASES))
def case(request):
    build, shape, n_out, n_parameters = CASES[request.param]
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    return seeded(0, build), x, n_out, n_parameters


def test_rows_go_in_and_one_vector_each_comes_out(case):
    net, x, n_out, _ = case
    assert net(x).shape == (3, n_out)


def test_the_features_are_what_the_head_reads(case):
    net, x, _, _ = case
    net.eval()
    torch.testing.assert_close(net.head(net.embed(x)), net(x))


def test_the_number_of_parameters_is_that_of_the_layers_by_hand(case):
    net, _, _, n_parameters = case
    assert sum(p.numel() for p in net.parameters()) == n_parameters


def test_every_parameter_takes_part(case):
    net, x, _, _ = case
    net(x).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_once_trained_a_row_does_not_depend_on_its_neighbours(case):
    net, x, _, _ = case
    net(x)
    net.eval()
    torch.testing.assert_close(net(x[1:2]), net(x)[1:2], rtol=1e-4, atol=1e-5)


def test_known_sizes():
    assert sum(p.numel() for p in lenet5().parameters()) == 61_706 + 2 * (6 + 16 + 120 + 84)
    assert sum(p.numel() for p in mlp((784,), 10).parameters()) == 266_610
    assert 0.6e6 < sum(p.numel() for p in resnet9().parameters()) < 0.62e6


def test_the_same_seed_gives_the_same_network_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (seeded(s, lambda: mlp((4,), 3)) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)


def test_resnet18_keeps_the_full_image_in_its_stem_and_ends_at_an_eighth():
    net, x = resnet18().eval(), torch.zeros(1, 3, 32, 32)
    assert net.features[0](x).shape == (1, 64, 32, 32)
    assert net.features[:-2](x).shape == (1, 512, 4, 4)
    assert not any(isinstance(m, nn.MaxPool2d) for m in net.modules())


def test_lenet_pools_by_the_average():
    pools = [m for m in lenet5().modules() if isinstance(m, nn.AvgPool2d | nn.MaxPool2d)]
    assert [type(m) for m in pools] == [nn.AvgPool2d, nn.AvgPool2d]


def test_a_residual_block_whose_inner_part_is_silent_passes_its_input_on():
    x = torch.rand(2, 4, 5, 5)
    block, skip = Residual(4, 4).eval(), Skip(nn.Sequential(nn.Conv2d(4, 4, 1))).eval()
    for silent in (*block.inner[-1][-1].parameters(), *skip.inner[-1].parameters()):
        nn.init.zeros_(silent)
    torch.testing.assert_close(block(x), x)
    torch.testing.assert_close(skip(x), x)


def test_a_residual_block_that_changes_size_adds_two_paths_before_its_last_relu():
    block, x = seeded(4, lambda: Residual(2, 3, stride=2)), torch.randn(4, 2, 6, 6)
    first, second, skip = (m.weight for m in block.modules() if isinstance(m, nn.Conv2d))

    def normalised(v):
        return functional.batch_norm(v, None, None, training=True)

    inner = functional.relu(normalised(functional.conv2d(x, first, stride=2, padding=1)))
    inner = normalised(functional.conv2d(inner, second, padding=1))
    expected = functional.relu(normalised(functional.conv2d(x, skip, stride=2)) + inner)
    torch.testing.assert_close(block(x), expected)


def test_the_linear_encoder_is_the_papers_formula():
    net, x = seeded(3, lambda: linear_encoder((1, 3, 3), 5)), torch.rand(4, 1, 3, 3)
    affine = [m for m in net.modules() if isinstance(m, nn.Linear)]

    def normalised(v):
        return (v - v.mean(0)) / (v.var(0, unbiased=False) + 1e-5).sqrt()

    layer = x.flatten(1)
    for g in affine[:2]:
        layer = functional.softplus(normalised(g(layer)))
    torch.testing.assert_close(net(x), normalised(affine[2](layer)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [lenet_encoder, lambda: linear_encoder((1, 28, 28), 16)])
def test_an_encoders_outputs_are_normalised_over_the_batch(build):
    out = build()(torch.randn(16, 1, 28, 28))
    torch.testing.assert_close(out.mean(0), torch.zeros(out.shape[1]), rtol=0, atol=1e-4)
    assert out.std(0, unbiased=False).median().item() == pytest.approx(1, abs=0.01)


def test_images_of_another_size_are_refused_in_plain_words():
    with pytest.raises(ValueError, match=r"reads rows of shape \(1, 28, 28\); got \(1, 32, 32\)"):
        lenet5()(torch.zeros(2, 1, 32, 32))
    with pytest.raises(ValueError, match=r"got \(28, 28\)"):
        mlp((1, 28, 28), 10)(torch.zeros(2, 28, 28))


@pytest.mark.parametrize("build", [lenet5, resnet18, resnet9, lenet_encoder, conv_encoder])
@pytest.mark.parametrize("shape", [(5,), (1, 4, 28), (0, 32, 32)])
def test_what_is_no_image_is_refused_before_any_layer_is_made(build, shape):
    with pytest.raises(ValueError, match=r"images of shape \(channels, height, width\), at least \d+ pixels"):
        build(shape)


@pytest.mark.parametrize("side", [12, 13, 15])
def test_lenet_works_down_to_its_smallest_image(side):
    assert networks.lenet5((1, side, side), 2)(torch.zeros(2, 1, side, side)).shape == (2, 2)


@pytest.mark.parametrize("build", [resnet9, resnet18])
def test_residual_networks_work_down_to_eight_pixels(build):
    assert build((1, 8, 8), 2)(torch.zeros(2, 1, 8, 8)).shape == (2, 2)
