import copy

import numpy as np
import pytest
import torch
from oracles import table_noise

from card.checkpoint import Checkpoint
from card.denoise import TableDenoiser, UnitDenoiser
from card.nn import MLP, generators, member, normal
from card.noise import linear
from card.train import Loop, Training, batches, seed_of, train

SCHEDULES = {"table": linear(200, 1e-3, 0.1), "short table": linear(50, 1e-3, 0.35)}


def data(n_members: int = 3, n: int = 40):
    rng = torch.Generator().manual_seed(5)
    x = torch.randn(n_members * n, 2, generator=rng)
    f = torch.randn(n_members * n, 1, generator=rng)
    r = torch.randn(n_members * n, 1, generator=rng)
    return x, f, r, torch.arange(n_members * n).view(n_members, n)


def make(kind: str, seeds):
    if kind in SCHEDULES:
        return TableDenoiser(2, 1, SCHEDULES[kind], generators(seeds), width=16)
    return UnitDenoiser(2, 1, generators(seeds), width=16, dropout=0.2)


def fit(kind, seeds, rows, how, held_out=None, stage=None, x=None):
    x, f, r, _ = data()
    net = make(kind, seeds)
    held = None
    if held_out is not None:

        def held(epoch):
            return net.loss_at(
                r[held_out], net.context(x[held_out], f[held_out]), torch.zeros(held_out.shape), r[held_out]
            )

    trace = train(net, lambda b, g: net.loss(r[b], x[b], f[b], g), rows, seeds, how, held, stage)
    return net, trace


@pytest.mark.parametrize("kind", ["table", "short table", "unit"])
def test_members_trained_together_equal_members_trained_alone(kind):
    rows = data()[3]
    how = Training(epochs=6, batch_size=16, amsgrad=True, ema=0.99, clip=0.5)
    seeds = [11, 12, 13]
    together, _ = fit(kind, seeds, rows, how)
    for m in range(3):
        alone, _ = fit(kind, seeds[m : m + 1], rows[m : m + 1], how)
        for name, value in member(together, m).items():
            assert torch.allclose(value, alone.state_dict()[name], atol=1e-6), name


@pytest.mark.parametrize(
    ("n_members", "n_targets", "mean_input"), [(1, 1, True), (3, 2, True), (2, 1, False)]
)
def test_the_gradient_in_closed_form_is_that_of_autograd(n_members, n_targets, mean_input):
    schedule, seeds = linear(200, 1e-3, 0.1), range(n_members)
    net = TableDenoiser(2, n_targets, schedule, generators(seeds), width=16, mean_input=mean_input)
    net.double()
    rng = torch.Generator().manual_seed(1)
    r, f = (20 * torch.randn(n_members, 30, n_targets, generator=rng).double() for _ in range(2))
    x = torch.randn(n_members, 30, 2, generator=rng).double()
    rngs = generators(seeds)
    k, eps = net.antithetic_times(30, rngs), normal(rngs, 30, n_targets)
    y = net.rounded.diffuse(r, eps, k) + f
    gates = net.times.weight[torch.arange(n_members)[:, None], k]
    expected = (table_noise(net, y, f, x, gates) - eps).square().mean(dim=(1, 2))
    losses = net.loss(r, x, f, generators(seeds))
    torch.testing.assert_close(losses, expected)
    weights, parameters = torch.arange(1.0, n_members + 1), list(net.parameters())
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    (2 * losses * weights).sum().backward()
    (net.loss(r, x, f, generators(seeds)) * -weights).sum().backward()
    for parameter, gradient in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def tiny_numbers_are_kept():
    return float(torch.tensor([1e-39]) * 1.0) > 0


def test_a_training_leaves_the_processors_treatment_of_tiny_numbers_as_it_was():
    x, f, r, rows = data(1)
    module, within = make("table", [0]), []

    def loss(b, rngs):
        within.append(tiny_numbers_are_kept())
        return module.loss(r[b], x[b], f[b], rngs)

    for before in (True, False):
        torch.set_flush_denormal(not before)
        try:
            train(module, loss, rows, [0], Training(1, 20, ema=0.9))
            assert tiny_numbers_are_kept() == before
        finally:
            torch.set_flush_denormal(False)
    assert not any(within)


def test_after_a_training_each_weight_stands_for_itself_again():
    x, f, r, rows = data(1)
    module = make("table", [0])
    train(module, lambda b, rngs: module.loss(r[b], x[b], f[b], rngs), rows, [0], Training(2, 20, ema=0.9))
    assert all(p.grad is None for p in module.parameters())
    assert all(p.untyped_storage().nbytes() == 4 * p.numel() for p in module.parameters())


@pytest.mark.parametrize("amsgrad", [False, True])
def test_it_is_the_same_whether_a_tables_rows_wait_or_all_of_them_move(amsgrad, monkeypatch):
    rows = data()[3]
    how = Training(epochs=8, batch_size=16, amsgrad=amsgrad, ema=0.99)
    waiting, moving = Loop(make("table", [1]), 1, 40, how), Loop(make("short table", [1]), 1, 40, how)
    assert list(waiting.tables) == ["times"]
    assert not moving.tables
    lazy, _ = fit("table", [1, 2, 3], rows, how)
    monkeypatch.setattr("card.train.LAZY_COST", 10**6)
    dense, _ = fit("table", [1, 2, 3], rows, how)
    far = {name: (value - dense.state_dict()[name]).abs() for name, value in lazy.state_dict().items()}
    table = far.pop(
        "times.weight"
    )  # rows wait with the eps that Adam had, which few gradients are as small as
    assert (table > 1e-5).float().mean() < 0.01
    assert max(float(each.max()) for each in far.values()) < 1e-6


def test_early_stopping_is_each_members_own():
    rows = data()[3]
    how = Training(epochs=60, batch_size=16, lr=3e-2, ema=0.9, patience=5)
    seeds = [1, 2, 3]
    together, trace = fit("unit", seeds, rows[:, :30], how, held_out=rows[:, 30:])
    for m in range(3):
        alone, own = fit("unit", seeds[m : m + 1], rows[m : m + 1, :30], how, held_out=rows[m : m + 1, 30:])
        assert int(own.best_epoch[0]) == int(trace.best_epoch[m])
        for name, value in member(together, m).items():
            assert torch.allclose(value, alone.state_dict()[name], atol=1e-5), name
    assert trace.epochs < 60


def test_the_best_weights_are_kept_not_the_last():
    rows = data()[3]
    how = Training(epochs=40, batch_size=16, lr=5e-2, ema=0.9)
    _, trace = fit("unit", [1, 2, 3], rows[:, :30], how, held_out=rows[:, 30:])
    losses = torch.stack(trace.losses)
    assert torch.equal(losses.min(0).values, trace.best_loss)
    assert torch.equal(losses.argmin(0) + 1, trace.best_epoch)


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", ["table", "unit"])
def test_a_broken_run_continues_to_the_same_bits(kind, tmp_path):
    rows = data()[3]
    seeds = [4, 5, 6]
    held_out = rows[:, 30:] if kind == "unit" else None
    how = Training(epochs=12, batch_size=16, amsgrad=True, ema=0.99, final_lr=1e-5, warmup=0.1)
    whole, _ = fit(kind, seeds, rows[:, :30], how, held_out)

    x, f, r, _ = data()
    stage = Checkpoint(tmp_path / "run", "id", seconds=0).stage("denoiser")
    net = make(kind, seeds)
    count = 0

    def loss(b, g):
        nonlocal count
        count += 1
        if count == 14:
            raise Killed
        return net.loss(r[b], x[b], f[b], g)

    held = None
    if held_out is not None:

        def held(epoch):
            return net.loss_at(
                r[held_out], net.context(x[held_out], f[held_out]), torch.zeros(held_out.shape), r[held_out]
            )

    with pytest.raises(Killed):
        train(net, loss, rows[:, :30], seeds, how, held, stage)
    resumed, trace = fit(kind, seeds, rows[:, :30], how, held_out, stage)
    assert trace.epochs == 12
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    how = Training(epochs=1, batch_size=16)
    rows = data()[3]
    fit("unit", [1, 2, 3], rows, how, stage=Checkpoint(tmp_path, "one").stage("denoiser"))
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit("unit", [1, 2, 3], rows, how, stage=Checkpoint(tmp_path, "two").stage("denoiser"))
    (tmp_path / "denoiser.safetensors").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="cannot be read"):
        fit("unit", [1, 2, 3], rows, how, stage=Checkpoint(tmp_path, "one").stage("denoiser"))


def test_every_row_is_met_once_an_epoch_and_the_last_batch_may_be_short():
    rows = torch.arange(20).view(2, 10)
    parts = list(batches(rows, 4, generators([1, 2])))
    assert [part.shape[1] for part in parts] == [4, 4, 2]
    assert torch.equal(torch.cat(parts, 1).sort(1).values, rows)


def test_clipping_bounds_each_members_gradient_by_itself():
    x = torch.ones(2, 1, 1)
    net = MLP((1, 1), torch.relu, generators([1, 1]))
    before = copy.deepcopy(net.state_dict())
    scale = torch.tensor([1e6, 1.0])
    train(
        net,
        lambda b, g: net(x).flatten(1).sum(1) * scale,
        torch.zeros(2, 1, dtype=torch.long),
        [1, 2],
        Training(epochs=1, batch_size=1, clip=1.0),
    )
    moved = {name: value - before[name] for name, value in net.state_dict().items()}
    assert torch.allclose(moved["layers.0.weight"][0], moved["layers.0.weight"][1], atol=1e-6)


def test_learning_rates_warm_up_and_fall():
    rates = Training(epochs=10, batch_size=1, lr=1.0, final_lr=0.1, warmup=0.2).rates(10)
    assert len(rates) == 100
    assert rates[0] == pytest.approx(0.05)
    assert rates.argmax() == 19
    assert rates[-1] == pytest.approx(0.1)
    assert (np.diff(rates[20:]) < 0).all()


def test_seeds_are_stable_between_releases():
    assert seed_of(1, 2, 3) == seed_of(1, 2, 3)
    assert seed_of(1, 2, 3) != seed_of(1, 3, 2)
    assert seed_of(0, 0) == 6375474604893067239


def test_a_checkpoint_removes_its_own_files_and_nobody_elses(tmp_path):
    checkpoint = Checkpoint(tmp_path, "mine")
    checkpoint.stage("mean").save(lambda: {"a": torch.ones(1)}, force=True)
    Checkpoint(tmp_path, "theirs").stage("other").save(lambda: {"a": torch.ones(1)}, force=True)
    (tmp_path / "llama.safetensors").write_bytes(b"not ours")
    (tmp_path / ".mean.safetensors.17.partial").write_bytes(b"its writer was killed")
    checkpoint.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama.safetensors", "other.safetensors"]
