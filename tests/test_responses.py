"""Positive responses: the distribution of exp(U), from that of U."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from card.distribution import Curves, Gaussian
from card.flow import Curve, latents
from card.responses import Positive, Within

MEMBERS = [(0.2, 0.5), (0.5, 0.4)]  # mean and std of log y


def bells(n: int = 3) -> Curves:
    """Two members, each normal, for rows that differ by 1."""
    z = latents(41)
    rows = torch.arange(n, dtype=torch.float64)[:, None]
    y = torch.stack([mu + rows + sd * z for mu, sd in MEMBERS])
    dy = torch.stack([torch.full((n, len(z)), sd, dtype=torch.float64) for _, sd in MEMBERS])
    return Curves(Curve.through(y, z, dy))


def lognormals(row: int) -> list:
    return [stats.lognorm(sd, scale=np.exp(mu + row)) for mu, sd in MEMBERS]


@pytest.mark.parametrize("row", [0, 2])
def test_exp_of_bells_is_the_mixture_of_lognormals(row):
    positive, y = Positive(bells()), np.array([0.5, 1.0, 3.0]) * np.exp(row)
    values = np.tile(y, (3, 1))
    laws = lognormals(row)
    np.testing.assert_allclose(positive.cdf(values)[row], np.mean([p.cdf(y) for p in laws], 0), atol=1e-3)
    np.testing.assert_allclose(positive.pdf(values)[row], np.mean([p.pdf(y) for p in laws], 0), rtol=2e-2)


def test_mean_and_both_parts_of_the_variance_are_those_of_the_lognormals():
    positive, laws = Positive(bells()), lognormals(1)
    parts = positive.decompose()
    assert positive.mean()[1] == pytest.approx(np.mean([p.mean() for p in laws]), rel=5e-3)
    assert parts.aleatoric[1] == pytest.approx(np.mean([p.var() for p in laws]), rel=0.05)
    assert parts.epistemic[1] == pytest.approx(np.var([p.mean() for p in laws]), rel=0.05)


def test_the_cdf_of_a_quantile_is_its_level_and_the_density_integrates_to_one():
    positive, q = Positive(bells()), [0.001, 0.3, 0.999]
    np.testing.assert_allclose(positive.cdf(positive.quantile(q)), np.tile(q, (3, 1)), atol=1e-8)
    total, _ = quad(lambda u: float(positive[:1].pdf(np.exp([u]))[0] * np.exp(u)), -8, 8, limit=400)
    assert total == pytest.approx(1.0, abs=1e-3)


def test_nothing_lies_at_or_below_zero():
    positive = Positive(bells())
    np.testing.assert_array_equal(positive.cdf(np.array([0.0, -1.0, -np.inf])), 0.0)
    np.testing.assert_array_equal(positive.logpdf(np.array([0.0, -1.0, -np.inf])), -np.inf)
    assert np.isnan(positive.cdf(np.array([np.nan, 1.0, 1.0]))[0])
    assert (positive.sample(200, random_state=0) > 0).all()
    assert positive.support == (0.0, np.inf)


def test_a_heavy_tail_does_not_carry_the_mean_off():
    wide = Curves(Curve(bells().curve.y * 8.0, bells().curve.z, bells().curve.dz / 8.0))
    mean, top = Positive(wide).mean(), Positive(wide).quantile(0.9999)
    assert (mean < top).all()
    assert np.isfinite(Positive(wide).std()).all()


def test_a_gaussian_around_f_becomes_a_lognormal():
    law = Positive(Gaussian(np.array([0.3]), np.array(0.2)))
    assert law.mean()[0] == pytest.approx(stats.lognorm(0.2, scale=np.exp(0.3)).mean(), rel=1e-3)
    assert law.std()[0] == pytest.approx(stats.lognorm(0.2, scale=np.exp(0.3)).std(), rel=2e-2)


def test_bounds_are_honoured_on_top():
    law, q = Within(Positive(bells()), 1.0, 4.0), np.linspace(0.01, 0.99, 9)
    values = law.quantile(q)
    assert ((values >= 1.0) & (values <= 4.0)).all()
    np.testing.assert_allclose(law.cdf(values), np.tile(q, (3, 1)), atol=1e-6)
