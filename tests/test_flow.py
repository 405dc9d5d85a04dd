import numpy as np
import pytest
import torch
from oracles import gaussian_denoiser, mixture_cdf, mixture_denoiser
from scipy.special import ndtr

from card.denoise import UnitDenoiser
from card.distribution import Curves
from card.flow import Curve, latents, ode, solve
from card.nn import generators
from card.noise import even_log_snr

SCHEDULE = even_log_snr(12, 0.01, 30.0)


def curve_of(denoise, n_nodes: int, schedule=SCHEDULE) -> Curve:
    """The curve of one row for a denoiser of r alone, tangents by automatic differentiation."""
    z = latents(n_nodes)

    def both(state, k):
        value, slope = torch.func.jvp(lambda r: denoise(r, k), (state[0],), (state[1],))
        return torch.stack([value, slope])

    top = schedule.n_steps
    centre = float(schedule.alpha[top]) * denoise(torch.zeros(1, dtype=torch.float64), top)
    start = z[None, :, None] + centre
    y, dy = solve(both, ode(schedule), start, torch.ones_like(start))
    return Curve.through(y[..., 0][:, None], z, dy[..., 0][:, None])


@pytest.fixture(autouse=True)
def _torch_loads_its_forward_mode_with_a_deprecated_tool():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))


def test_the_flow_of_a_gaussian_is_the_gaussian():
    curves = Curves(curve_of(gaussian_denoiser(SCHEDULE, 0.7, 0.3), 12))
    q = np.linspace(0.01, 0.99, 99)
    truth = 0.7 + 0.3 * torch.special.ndtri(torch.from_numpy(q)).numpy()
    assert np.abs(curves.quantile(q)[0] - truth).max() < 0.02
    assert curves.mean()[0] == pytest.approx(0.7, abs=0.01)
    assert curves.std()[0] == pytest.approx(0.3, abs=0.01)


def test_two_modes_are_found_and_their_cdf_is_right():
    schedule = even_log_snr(40, 0.005, 60.0)
    curves = Curves(curve_of(mixture_denoiser(schedule, [-1.0, 1.0], 0.15), 45, schedule))
    y = np.linspace(-1.6, 1.6, 400)
    cdf = curves.cdf(y[None])[0]
    truth = mixture_cdf(torch.from_numpy(y), [-1.0, 1.0], 0.15).numpy()
    assert np.abs(cdf - truth).mean() < 0.015
    density = curves.pdf(y[None])[0]
    peaks = [i for i in range(1, 399) if density[i] > density[i - 1] and density[i] > density[i + 1]]
    tall = [y[i] for i in peaks if density[i] > 0.5]
    assert any(abs(p + 1) < 0.15 for p in tall)
    assert any(abs(p - 1) < 0.15 for p in tall)
    assert density[np.abs(y) < 0.3].max() < 0.2


def wild_curve(n_rows: int = 20, n_members: int = 3) -> Curve:
    """Curves of random monotone flows, members apart."""
    rng = torch.Generator().manual_seed(3)
    z = latents(12)
    dy = torch.rand(n_members, n_rows, 12, generator=rng, dtype=torch.float64) * 3 + 0.01
    y = torch.cumsum(torch.rand(n_members, n_rows, 12, generator=rng, dtype=torch.float64), -1)
    return Curve.through(y * 2 + torch.arange(n_members)[:, None, None], z, dy)


def test_quantiles_invert_the_mixtures_cdf_and_never_cross():
    curves = Curves(wild_curve())
    q = np.concatenate([[1e-6, 1e-3], np.linspace(0.01, 0.99, 99), [1 - 1e-3, 1 - 1e-6]])
    values = curves.quantile(q)
    assert np.abs(curves.cdf(values) - q).max() < 1e-8
    assert (np.diff(values, axis=1) > 0).all()


def test_the_density_is_the_derivative_of_the_cdf_and_integrates_to_one():
    curves = Curves(wild_curve(3))
    y = curves.quantile(ndtr(np.linspace(-5, 5, 30_001)))
    density = curves.pdf(y)
    assert np.abs(np.trapezoid(density, y, axis=1) - 1).max() < 1e-3
    derivative = np.diff(curves.cdf(y), axis=1) / np.diff(y, axis=1)
    middle = np.exp((np.log(density[:, 1:]) + np.log(density[:, :-1])) / 2)
    assert np.abs(derivative / middle - 1).mean() < 1e-3


def test_tails_fall_slower_than_a_gaussians_and_still_hold_all_mass():
    curves = Curves(curve_of(gaussian_denoiser(SCHEDULE, 0.0, 1.0), 12))
    far = np.array([[6.0, 10.0, 30.0]])
    bell = -0.5 * far**2 - 0.919
    assert (curves.logpdf(far) > bell).all()
    assert (np.diff(curves.logpdf(far)) < 0).all()
    assert curves.cdf(np.array([[-1e9, 1e9]])).tolist() == [[0.0, 1.0]]
    assert curves.cdf(curves.quantile([1e-12, 1 - 1e-12]))[0] == pytest.approx([1e-12, 1 - 1e-12], abs=1e-14)


def test_moments_are_those_of_the_quantile_function():
    curves = Curves(wild_curve())
    fine = curves.quantile((np.arange(20_000) + 0.5) / 20_000)
    assert np.allclose(curves.mean(), fine.mean(1), rtol=2e-3)
    assert np.allclose(curves.std(), fine.std(1), rtol=5e-3)


def test_variance_parts_sum_to_the_variance():
    curves = Curves(wild_curve())
    parts = curves.decompose()
    assert np.allclose(parts.aleatoric + parts.epistemic, curves.std() ** 2)
    assert (parts.epistemic > 0).all()


def test_crossed_nodes_and_bad_tangents_still_give_a_distribution():
    z = latents(12)
    y = torch.linspace(0, 1, 12, dtype=torch.float64).repeat(1, 1, 1).clone()
    y[0, 0, 5] = -3.0
    dy = torch.ones_like(y)
    dy[0, 0, 3], dy[0, 0, 7] = -1.0, 0.0
    curves = Curves(Curve.through(y, z, dy))
    values = curves.quantile(np.linspace(0.001, 0.999, 500))
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0).all()


def test_tangents_by_hand_are_the_derivative():
    net = UnitDenoiser(2, 3, generators([1, 2]), width=16).double()
    rng = torch.Generator().manual_seed(0)
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=rng, dtype=torch.float64) * 0.5
    x, f, r = (torch.randn(2, 5, k, generator=rng, dtype=torch.float64) for k in (2, 3, 3))
    context = net.context(x, f)
    directions = torch.randn(2, 2, 5, 3, generator=rng, dtype=torch.float64)
    plain, both = net.at(context, SCHEDULE), net.at_with_tangents(context, SCHEDULE)
    with torch.no_grad():
        out = both(torch.cat([r[None], directions]), 4)
        assert torch.allclose(out[0], plain(r, 4), atol=1e-12)
        for j in range(2):
            h = 1e-6
            slope = (plain(r + h * directions[j], 4) - plain(r - h * directions[j], 4)) / (2 * h)
            assert torch.allclose(out[1 + j], slope, atol=1e-7)


def test_a_bell_given_another_mean_moves_as_it_is():
    curve = curve_of(gaussian_denoiser(SCHEDULE, 0.7, 0.3), 12)
    moved = Curves(curve.with_mean(torch.tensor([0.9], dtype=torch.float64)))
    before = Curves(curve)
    q = np.linspace(0.1, 0.9, 9)
    assert moved.mean()[0] == pytest.approx(0.9, abs=1e-6)
    assert np.abs(moved.quantile(q) - before.quantile(q) - 0.2).max() < 0.01


def test_modes_stay_where_they_are_when_the_mean_moves():
    schedule = even_log_snr(40, 0.005, 60.0)
    curve = curve_of(mixture_denoiser(schedule, [-1.0, 1.0], 0.15), 45, schedule)
    moved = Curves(curve.with_mean(torch.tensor([0.4], dtype=torch.float64)))
    assert moved.mean()[0] == pytest.approx(0.4, abs=1e-4)
    above = 1.0 - moved.cdf(np.zeros(1))[0]  # 0.7, but for what the draws move within a mode
    assert above == pytest.approx(0.7, abs=0.03)
    y = np.linspace(-1.6, 1.6, 400)
    density = moved.pdf(y[None])[0]
    assert y[density.argmax()] == pytest.approx(1.0, abs=0.1)
    assert y[np.where(y < 0, density, 0).argmax()] == pytest.approx(-1.0, abs=0.1)


def test_rows_of_a_mixture_with_means_of_their_own_stay_distributions():
    wanted = torch.linspace(7.0, 9.0, 20, dtype=torch.float64)
    curves = Curves(wild_curve().with_mean(wanted))
    assert np.abs(curves.mean() - wanted.numpy()).max() < 1e-3
    q = np.linspace(0.01, 0.99, 99)
    assert np.abs(curves.cdf(curves.quantile(q)) - q).max() < 1e-8
    assert np.abs(curves[3:5].quantile(q) - curves.quantile(q)[3:5]).max() == 0


def test_the_same_curve_in_more_pieces_is_the_same_curve():
    curve = wild_curve()
    denser = curve.denser(4)
    y = torch.linspace(-4, 30, 101, dtype=torch.float64).expand(len(curve), -1)
    for ours, theirs in zip(denser.at(y), curve.at(y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("apart", [0.0, 1.0, 1e3])
def test_quantiles_of_a_mixture_of_members_far_apart_invert_its_cdf_to_the_far_tails(apart):
    z = latents(9)
    rng = torch.Generator().manual_seed(0)
    steep = torch.exp(torch.randn(3, 40, 1, generator=rng, dtype=torch.float64))
    y = steep * torch.sinh(z) + apart * torch.randn(3, 40, 1, generator=rng, dtype=torch.float64)
    curve = Curve.through(y, z, steep * torch.cosh(z))
    q = torch.tensor([1e-12, 1e-4, 0.1, 1 / 3, 0.5, 2 / 3, 0.9, 1 - 1e-9], dtype=torch.float64)
    found = curve.quantile(q)
    assert (found.diff() > 0).all()
    torch.testing.assert_close(curve.cdf(found), q.expand(40, -1), rtol=1e-6, atol=1e-15)
    torch.testing.assert_close(curve.rows([7, 3]).quantile(q), found[[7, 3]], rtol=0, atol=0)


def test_quantiles_of_curves_with_kinks_arrive_in_few_steps(monkeypatch):
    curve, levels, asked = wild_curve(), (torch.arange(1000) + 0.5).double() / 1000, []
    at = Curve.at
    monkeypatch.setattr(Curve, "at", lambda self, y: asked.append(y.numel()) or at(self, y))
    quantiles = curve.quantile(levels)
    assert sum(asked) <= 14 * quantiles.numel()
