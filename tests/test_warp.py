"""Held-out latents that are not normal are made so; few of them change little."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from card import CARDRegressor
from card.averaging import MOST_SET_ASIDE, Means, fit_warp, set_aside
from card.fit import fit_unit_denoiser
from card.flow import Curve, latents
from card.mean import ZeroMean
from card.train import Training
from card.warp import Warp


def normal_scores(n: int, scale: float = 1.0) -> np.ndarray:
    return norm.ppf((np.arange(n) + 0.5) / n, scale=scale)


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.3])
def test_held_out_latents_become_normal(scale):
    z = normal_scores(100_000, scale)
    warped, _ = Warp.fit(z)(z)
    levels = np.array([0.025, 0.1, 0.3, 0.5, 0.8, 0.975])
    assert np.quantile(warped, levels) == pytest.approx(norm.ppf(levels), abs=0.03)


def test_latents_of_a_heavy_tailed_law_become_normal():
    z = np.random.default_rng(0).standard_t(3, 100_000)
    warped, _ = Warp.fit(z)(z)
    for level in (0.5, 0.8, 0.95):
        assert np.mean(np.abs(warped) < norm.ppf(0.5 + level / 2)) == pytest.approx(level, abs=0.01)


def test_a_fiftieth_of_the_rows_is_set_aside_and_no_more_than_some_hundreds():
    assert set_aside(3000, None, seed=0).sum() == 60
    assert set_aside(300_000, None, seed=0).sum() == MOST_SET_ASIDE
    assert (set_aside(3000, None, seed=0) != set_aside(3000, None, seed=1)).any()


def test_groups_are_set_aside_as_a_whole():
    groups = np.random.default_rng(0).integers(0, 200, 4000)
    aside = set_aside(4000, groups, seed=0)
    assert not set(groups[aside]) & set(groups[~aside])
    assert 60 < aside.sum() <= 80


def test_of_a_few_large_groups_none_is_set_aside():
    assert not set_aside(4000, np.arange(4000) % 5, seed=0).any()


class Shrinking:
    """Stands for a model whose latents are 0.8 times as large when all predict as when one does."""

    n_members, mean = 3, ZeroMean(1)
    seen: list[np.ndarray]

    def __init__(self) -> None:
        self.seen = []

    def latents_alone(self, x, f, z, *_):
        assert (f == 0).all()
        return z[..., 0]

    def latents_together(self, x, z, *_):
        self.seen.append(x)
        return 0.8 * z[:, 0]


@pytest.mark.parametrize("n_aside", [0, 300])
def test_the_warp_is_fitted_to_latents_as_large_as_rows_set_aside_say_they_will_be(n_aside):
    n = 9000
    z = np.random.default_rng(0).permutation(normal_scores(n, 1.25))[:, None].astype(np.float32)
    x, aside = np.arange(n, dtype=np.float32)[:, None], np.arange(n) < n_aside
    fold = np.where(aside, -1, np.arange(n) % 3)
    means = Means(ZeroMean(1), np.zeros((1, n, 1), np.float32), fold, 3, np.zeros(1), aside)
    model = Shrinking()
    warp = fit_warp(model, x, z, means, None, 10, seed=0)
    assert warp.z == pytest.approx((1.0 if n_aside else 1.25) * warp.g, abs=0.05)
    assert [list(each.ravel()) for each in model.seen] == ([list(range(n_aside))] if n_aside else [])


def test_folds_that_are_drawn_leave_rows_aside_and_folds_that_are_given_do_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2600, 1))
    y = X[:, 0] + rng.standard_normal(2600)
    how = {"mean": LinearRegression(), "epochs": 1, "n_evaluations": 6, "n_nodes": 6, "random_state": 0}
    drawn = CARDRegressor(**how).fit(X, y)
    given = CARDRegressor(cv=KFold(3, shuffle=True, random_state=0), **how).fit(X, y)
    assert (drawn.model_.mean.fold < 0).sum() == 52
    assert (given.model_.mean.fold >= 0).all()
    assert drawn.model_.warp is not None
    assert given.model_.warp is not None


def test_no_denoiser_learns_from_rows_of_no_fold():
    rng = np.random.default_rng(0)
    x, f, r = (torch.from_numpy(rng.standard_normal((60, 1)).astype(np.float32)) for _ in range(3))
    fold = np.where(np.arange(60) < 15, -1, np.arange(60) % 3)
    other = torch.where(torch.from_numpy(fold)[:, None] < 0, 100.0, r)
    how = Training(epochs=3, batch_size=16, patience=5)
    one, two = (fit_unit_denoiser(x, f, each, fold, 3, 0, how, 8, 0.0)[0].state_dict() for each in (r, other))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_rows_speak_by_their_number_against_the_prior_so_that_a_handful_changes_little():
    z = np.linspace(-2, 2, 50)
    g, _ = Warp.fit(normal_scores(40, scale=0.5), prior=500)(z)
    assert g == pytest.approx(z * 540 / (40 * 0.5 + 500), abs=0.01)


def test_the_derivative_is_that_of_the_warp_inside_and_beyond_its_knots():
    warp = Warp.fit(np.random.default_rng(1).standard_t(3, 5000))
    z = np.linspace(-5, 5, 501)
    ahead, behind = warp(z + 1e-6)[0], warp(z - 1e-6)[0]
    assert warp(z)[1] == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-6)
    assert (warp(z)[1] > 0).all()


def test_a_warped_curve_is_still_a_distribution_with_the_density_of_its_cdf():
    z = latents(12)
    warp = Warp.fit(normal_scores(20_000, scale=0.8))
    g, slope = (torch.from_numpy(a) for a in warp(z.numpy()))
    plain = torch.sinh(z)[None, None]
    curve = Curve.through(plain, g, torch.cosh(z)[None, None] / slope)
    y = torch.linspace(-60, 60, 200_001, dtype=torch.float64)[None]
    density = curve.logpdf(y).exp()[0].numpy()
    assert np.trapezoid(density, y[0].numpy()) == pytest.approx(1.0, abs=1e-3)
    between = np.diff(curve.cdf(y)[0].numpy()) / np.diff(y[0].numpy())
    assert between == pytest.approx((density[1:] + density[:-1]) / 2, abs=1e-4)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = X[:, 0] + 0.3 * rng.standard_normal(200)
    return CARDRegressor(mean="zero", epochs=40, random_state=0).fit(X, y), X


def test_averaging_the_denoisers_brings_members_closer_and_keeps_their_mean(fitted):
    model, X = fitted
    near = model.predict_distribution(X)
    model.model_.apart = 1.0
    apart = model.predict_distribution(X)
    model.model_.apart = 0.5
    assert near.decompose().epistemic.mean() < 0.5 * apart.decompose().epistemic.mean()
    assert near.mean() == pytest.approx(apart.mean(), abs=0.05)


def test_the_warp_acts_on_the_predicted_cdf(fitted):
    model, X = fitted
    y = np.zeros(len(X))
    kept = Warp.fit(normal_scores(20_000, scale=0.8))
    single = model.model_.member(0).curves(model._encode(X), model.schedule_, 40)
    z = single.at(torch.from_numpy(y)[:, None])[0][0, :, 0].numpy()
    model.model_.warp = kept
    warped = model.model_.member(0).curves(model._encode(X), model.schedule_, 40)
    model.model_.warp = None
    u = warped.cdf(torch.from_numpy(y)[:, None])[:, 0].numpy()
    inside = np.abs(z) < 2.3
    assert u[inside] == pytest.approx(ndtr(kept(z)[0])[inside], abs=2e-3)


def test_large_tables_are_warped_and_small_ones_are_not(fitted):
    assert fitted[0].model_.warp is None
    X = np.random.default_rng(0).uniform(-1, 1, (2500, 1))
    y = X[:, 0] + np.random.default_rng(1).standard_t(2, 2500)
    model = CARDRegressor(mean="zero", epochs=1, n_evaluations=6, n_nodes=6, random_state=0).fit(X, y)
    u = model.predict_distribution(X).cdf(y)
    model.model_.warp = None
    plain = model.predict_distribution(X).cdf(y)
    levels = np.arange(1, 10) / 10
    assert (
        np.abs(np.quantile(u, levels) - levels).max()
        < 0.7 * np.abs(np.quantile(plain, levels) - levels).max()
    )
