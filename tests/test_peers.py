"""Today's peers: from quantiles and draws to a law, what is said of a missing package, and each of them."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm, t
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

from card.bench.cli import app
from card.bench.comparison import comparison, verdict, wins
from card.bench.errors import DataNotAvailable
from card.bench.methods import methods
from card.distribution import Distribution, Draws
from card.peers import (
    CatBoostGaussianRegressor,
    ConformalGBMRegressor,
    LightGBMQuantileRegressor,
    NGBoostRegressor,
    PeerNotAvailable,
    QuantileForestRegressor,
    SplineFlowRegressor,
    TabICLQuantileRegressor,
    TabPFNQuantileRegressor,
    TreeffuserRegressor,
    XGBoostDistributionRegressor,
)
from card.peers.quantiles import half_widths
from card.peers.route import LEVELS, QuantileGrid, bell, resolution

# ------------------------------------------------------------------------ from quantiles to a law


@pytest.fixture
def laws():
    """A bell, a skew law, two modes far apart, and ties; through their quantiles at `LEVELS`."""
    z = ndtri(LEVELS)
    two_modes = np.where(z < 0, -10.0 + 0.1 * z, 10.0 + 0.1 * z)
    tied = np.round(z)
    return QuantileGrid(LEVELS, [3 + 2 * z, np.exp(z), two_modes, tied], least=0.01)


@pytest.mark.parametrize("levels", [(0.2, 0.7), (0.1, 0.5, 0.9), LEVELS, (0.6, 0.7, 0.8)])
def test_the_quantiles_of_a_gaussian_give_that_gaussian_back(levels):
    law = QuantileGrid(levels, (3 + 2 * ndtri(levels))[None], least=1e-3)
    wanted = norm(3, 2)
    q, y = np.array([1e-6, 0.025, 0.4, 0.999]), np.array([[-9.0, 0.0, 3.0, 8.0]])
    np.testing.assert_allclose(law.quantile(q)[0], wanted.ppf(q))
    np.testing.assert_allclose(law.cdf(y)[0], wanted.cdf(y[0]))
    np.testing.assert_allclose(law.logpdf(y)[0], wanted.logpdf(y[0]))
    assert law.mean() == pytest.approx([3.0])
    assert law.std() == pytest.approx([2.0])


def test_at_its_levels_the_law_has_the_quantiles_it_was_given(laws):
    z = ndtri(LEVELS)
    np.testing.assert_allclose(laws.quantile(LEVELS)[:2], [3 + 2 * z, np.exp(z)])
    assert laws.interval(0.95)[1] == pytest.approx(np.exp([z[0], z[-1]]))


def test_the_cdf_inverts_the_quantiles_in_the_middle_and_in_the_tails(laws):
    q = np.array([1e-9, 0.01, 0.025, 0.0251, 0.333, 0.5, 0.91, 0.99, 1 - 1e-9])
    np.testing.assert_allclose(laws.cdf(laws.quantile(q)), np.tile(q, (4, 1)), atol=1e-12)


def cells(law, n=4000):
    """Midpoints of narrow cells, and density times width there; none lies across a level, where it jumps."""
    edges = np.union1d(np.linspace(-6.5, 6.5, n), ndtri(LEVELS))
    ends = law.quantile(norm.cdf(edges[:-1]).clip(1e-12)), law.quantile(norm.cdf(edges[1:]))
    middle = 0.5 * (ends[0] + ends[1])
    return middle, law.pdf(middle) * (ends[1] - ends[0])


@pytest.mark.parametrize("row", range(4))
def test_the_density_integrates_to_one_to_the_mean_and_to_the_variance(laws, row):
    law = laws[row : row + 1]
    y, mass = (part[0] for part in cells(law))
    assert mass.sum() == pytest.approx(1, abs=1e-5)
    assert law.mean()[0] == pytest.approx(mass @ y, abs=1e-5)
    assert law.std()[0] ** 2 == pytest.approx(mass @ (y - law.mean()[0]) ** 2, rel=1e-4)


def test_the_density_is_the_slope_of_the_cdf(laws):
    y = laws.quantile([0.011, 0.21, 0.44, 0.77, 0.991])
    slope = (laws.cdf(y + 1e-6) - laws.cdf(y - 1e-6)) / 2e-6
    np.testing.assert_allclose(laws.pdf(y), slope, rtol=1e-5)


def test_quantiles_that_cross_are_sorted():
    crossed = QuantileGrid((0.1, 0.5, 0.9), [[1.0, 3.0, 2.0]], least=1e-3)
    np.testing.assert_array_equal(crossed.quantile([0.1, 0.5, 0.9]), [[1.0, 2.0, 3.0]])


def test_ties_are_drawn_apart_about_the_median_and_leave_other_rows_alone():
    law = QuantileGrid((0.1, 0.5, 0.9), [[5.0, 5.0, 5.0], [4.0, 5.0, 6.0]], least=0.01)
    assert law.mean()[0] == pytest.approx(5.0)
    assert law.std()[0] == pytest.approx(0.01)
    assert law.logpdf(np.array([5.0, 5.0]))[0] == pytest.approx(norm(5, 0.01).logpdf(5))
    np.testing.assert_array_equal(law.quantile([0.1, 0.9])[1], [4.0, 6.0])


def test_no_density_exceeds_what_the_least_slope_allows(laws):
    y = np.tile(np.linspace(-12, 12, 5001), (4, 1))
    assert laws.pdf(y).max() <= norm.pdf(0) / 0.01 + 1e-9


def test_an_outermost_pair_that_lies_close_makes_no_thin_tail():
    law = QuantileGrid((0.025, 0.05, 0.5, 0.95, 0.975), [[-2.0, -2.0, 0.0, 2.0, 2.0]], least=1e-6)
    scale = 2.0 / -ndtri(0.025)
    np.testing.assert_allclose(law.quantile([0.001, 0.999])[0], scale * ndtri([0.001, 0.999]), rtol=1e-4)


def test_scaling_and_shifting_the_quantiles_scales_and_shifts_the_law(laws):
    moved = QuantileGrid(LEVELS, 7 - 3 + 5 * laws.quantile(LEVELS), least=0.05)
    np.testing.assert_allclose(moved.mean(), 4 + 5 * laws.mean())
    np.testing.assert_allclose(moved.std(), 5 * laws.std())
    y = laws.quantile([0.01, 0.33, 0.81])
    np.testing.assert_allclose(moved.logpdf(4 + 5 * y), laws.logpdf(y) - np.log(5), atol=1e-6)


def test_draws_follow_the_law(laws):
    draws = laws.sample(20_000, random_state=0)
    share = (draws <= laws.quantile(0.3)).mean(0)
    assert share == pytest.approx(np.full(4, 0.3), abs=0.015)
    np.testing.assert_array_equal(draws, laws.sample(20_000, random_state=0))


def test_some_rows_are_the_laws_of_those_rows(laws):
    np.testing.assert_array_equal(laws[[2, 0]].quantile([0.2, 0.9]), laws.quantile([0.2, 0.9])[[2, 0]])
    np.testing.assert_allclose(laws[1:].mean(), laws.mean()[1:], atol=1e-12)


def test_a_background_bounds_what_a_miss_costs_and_hardly_changes_what_is_right():
    z = ndtri(LEVELS)
    plain = QuantileGrid(LEVELS, [z, 0 * z], least=1e-3)
    law = QuantileGrid(LEVELS, [z, 0 * z], least=1e-3, background=(0.0, 2.0))
    assert law.logpdf(np.array([0.3, 0.0])) == pytest.approx(plain.logpdf(np.array([0.3, 0.0])), abs=1e-3)
    assert plain.logpdf(np.array([0.0, 1.0]))[1] < -1e5
    assert law.logpdf(np.array([0.0, 1.0]))[1] == pytest.approx(np.log(1e-3) + norm(0, 2).logpdf(1.0))
    np.testing.assert_array_equal(law.quantile([0.01, 0.6]), plain.quantile([0.01, 0.6]))
    y = np.linspace(-20, 20, 40_001)
    assert law[:1].pdf(y[None]).sum() * 1e-3 == pytest.approx(1)


@pytest.mark.parametrize(
    ("levels", "values", "least", "message"),
    [
        ((0.5, 0.5), [[1.0, 2.0]], 1.0, "each above the one before"),
        ((0.5,), [[1.0]], 1.0, "two or more"),
        ((0.0, 0.5), [[1.0, 2.0]], 1.0, "strictly between 0 and 1"),
        ((0.1, 0.5), [[1.0, 2.0, 3.0]], 1.0, "one column a level, 2; got 3"),
        ((0.1, 0.5), [[1.0, np.nan]], 1.0, "must be finite"),
        ((0.1, 0.5), [[1.0, 2.0]], 0.0, "least must be above 0"),
    ],
)
def test_what_is_no_quantile_grid_is_refused(levels, values, least, message):
    with pytest.raises(ValueError, match=message):
        QuantileGrid(levels, values, least)


def test_the_resolution_is_in_the_units_of_the_response_and_never_zero():
    y = np.random.default_rng(0).normal(50, 4, 1000)
    assert resolution(10 * y) == pytest.approx(10 * resolution(y))
    assert resolution(y) == pytest.approx(1e-3 * y.std())
    assert resolution(np.full(5, 3.0)) > 0
    assert resolution(np.zeros(5)) > 0
    assert bell(y) == pytest.approx((y.mean(), y.std()))


# ------------------------------------------------------------------------------- the conformal peer


def test_half_widths_are_the_order_statistics_that_promise_coverage():
    widths = half_widths(np.arange(19.0, 0.0, -1.0))  # 1..19: the k-th smallest is k
    np.testing.assert_array_equal(widths, [2, 4, 6, 8, 10, 12, 14, 16, 18, 19])


def test_conformal_intervals_are_those_of_mapie():
    mapie = pytest.importorskip("mapie.regression")
    X, y = fan(200)
    model = ConformalGBMRegressor(random_state=0).fit(X, y)
    f, _ = model.model_
    rng = np.random.default_rng(1)
    X_new, y_new = X[:57] + 0.01 * rng.standard_normal((57, 1)), y[:57]
    theirs = mapie.SplitConformalRegressor(f, confidence_level=[0.2, 0.9, 0.95], prefit=True)
    _, intervals = theirs.conformalize(X_new, y_new).predict_interval(X[:5])
    widths = half_widths(np.abs(y_new - f.predict(X_new)))[[1, 8, 9]]
    np.testing.assert_allclose((intervals[:, 1] - intervals[:, 0]) / 2, np.tile(widths, (5, 1)))


def test_conformal_intervals_cover_new_rows():
    X, y = fan(2000)
    law = ConformalGBMRegressor(random_state=0).fit(X[:1000], y[:1000]).predict_distribution(X[1000:])
    low, high = law.interval(0.9).T
    assert ((y[1000:] >= low) & (y[1000:] <= high)).mean() == pytest.approx(0.9, abs=0.05)


# ------------------------------------------------------------------------------- what is not there


def test_the_names_of_the_benchmark_are_registered():
    wanted = (
        "pbp, mc-dropout, deep-ensembles, gcds, ngboost, catboost, quantile-forest, lightgbm-quantile, "
        "xgboost-distribution, treeffuser, mdn, spline-flow, conformal-gbm, tabpfn, tabicl"
    )
    assert set(wanted.split(", ")) | {"card"} <= set(methods())


NEEDS = {
    "ngboost": (NGBoostRegressor, "ngboost"),
    "catboost": (CatBoostGaussianRegressor, "catboost"),
    "quantile_forest": (QuantileForestRegressor, "quantile-forest"),
    "lightgbm": (LightGBMQuantileRegressor, "lightgbm"),
    "xgboost_distribution": (XGBoostDistributionRegressor, "xgboost-distribution"),
    "zuko": (SplineFlowRegressor, "zuko"),
}


@pytest.mark.parametrize("module", NEEDS)
def test_a_missing_package_is_named_with_the_extra_that_has_it(module, monkeypatch):
    cls, package = NEEDS[module]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PeerNotAvailable, match=rf"package {package} .*pip install 'card-diffusion\[peers\]'"):
        cls().fit(*fan(30))


def bench(tmp_path, monkeypatch, names: str):
    monkeypatch.chdir(tmp_path)
    words = ["run", "uci", "--datasets", "yacht", "--splits", "0", "--methods", names, "--results", "out"]
    result = CliRunner().invoke(app, words)
    path = tmp_path / "out" / "uci.jsonl"
    return result, [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_goes_on_past_a_missing_package_and_missing_weights(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ngboost", None)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    result, reports = bench(tmp_path, monkeypatch, "ngboost,tabpfn,conformal-gbm")
    assert result.exit_code == 1
    assert [r["method"] for r in reports] == ["conformal-gbm"]
    assert "failed: yacht split 0 ngboost default: PeerNotAvailable: this method needs" in result.stderr
    assert (
        "tabpfn weights (weights/tabpfn-regressor.ckpt under CARD_DATA): data not available" in result.stdout
    )


def test_a_report_of_a_peer_has_every_metric_and_is_shown_beside_the_papers_methods(tmp_path, monkeypatch):
    result, (report,) = bench(tmp_path, monkeypatch, "conformal-gbm")
    assert result.exit_code == 0
    assert set(report["metrics"]) == {"rmse", "nll", "nll_paper", "crps", "qice", "picp", "piw"}
    assert all(np.isfinite(value) for value in report["metrics"].values())
    shown = CliRunner().invoke(app, ["table", "uci", "--methods", "all", "--results", "out"]).stdout
    parts = shown.split("\n\n")
    titles = ("RMSE", "NLL by", "QICE", "PICP", "Exact NLL", "CRPS", "Seconds")
    assert [part.startswith(title) for part, title in zip(parts, titles, strict=True)] == [True] * 7
    assert all("conformal-gbm" in part for part in parts)
    assert "Deep Ensembles (paper)" in parts[0]
    assert parts[4].endswith("Made from draws or quantiles, so not exact: conformal-gbm.")


# ---------------------------------------------------------------------------- stand-ins for others


class StandIn:
    """Answers as a pretrained network does: quantiles of N(mean, std^2) of the training responses."""

    def __init__(self, model_path, **settings):
        assert Path(model_path).exists()
        assert settings["device"] == "cpu"

    def fit(self, X, y):
        self.mean, self.std = y.mean(), y.std()
        return self

    def predict(self, X, output_type, quantiles=None, alphas=None):
        assert output_type == "quantiles"
        values = np.tile(self.mean + self.std * ndtri(quantiles or alphas), (len(X), 1))
        return list(values.T) if quantiles else values  # TabPFN: one array a level; TabICL: one of all


@pytest.mark.parametrize(
    ("module", "name", "cls"),
    [
        ("tabpfn", "TabPFNRegressor", TabPFNQuantileRegressor),
        ("tabicl", "TabICLRegressor", TabICLQuantileRegressor),
    ],
)
def test_pretrained_networks_are_asked_for_quantiles_once_weights_are_there(
    module, name, cls, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{name: StandIn}))
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    X, y = fan(50)
    with pytest.raises(DataNotAvailable, match=f"{module} weights"):
        cls().fit(X, y)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / f"{module}-regressor.ckpt").touch()
    law = cls(random_state=0).fit(X, y).predict_distribution(X[:3])
    assert law.mean() == pytest.approx(np.full(3, y.mean()))
    assert law.std() == pytest.approx(np.full(3, y.std()))


TREEFFUSER = """
import numpy as np

class Treeffuser:
    def __init__(self, seed, n_jobs):
        assert n_jobs == 1

    def fit(self, X, y):
        if X.shape[1] > 1:
            raise ValueError("too wide for a stand-in")
        self.slope = float((X[:, 0] @ y) / (X[:, 0] @ X[:, 0]))

    def sample(self, X, n_samples, seed):
        return self.slope * X + np.random.default_rng(seed).normal(0, 0.1, (n_samples, len(X), 1))
"""


@pytest.fixture
def treeffuser_environment(tmp_path, monkeypatch):
    """An interpreter of its own that has a stand-in for the package."""
    (tmp_path / "treeffuser.py").write_text(TREEFFUSER)
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\n[ "$1" = -I ] || exit 3\nshift\n'
        f'PYTHONPATH="{tmp_path}" exec "{sys.executable}" -P "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("CARD_TREEFFUSER", str(python))


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
def test_treeffuser_is_fitted_and_drawn_from_in_an_environment_of_its_own(treeffuser_environment):
    X = np.linspace(1, 2, 40)[:, None]
    model = TreeffuserRegressor(n_draws=400, random_state=0).fit(X, 3 * X[:, 0])
    law = model.predict_distribution(X)
    assert isinstance(law, Draws)
    assert law.draws.shape == (400, 40, 1)
    assert law.mean() == pytest.approx(3 * X[:, 0], abs=0.03)
    assert law.logpdf(3 * X[:, 0]) == pytest.approx(norm(0, 0.1).logpdf(0), abs=0.3)
    np.testing.assert_array_equal(model.predict_distribution(X).draws, law.draws)
    with pytest.raises(RuntimeError, match=r"treeffuser failed in .*: ValueError: too wide for a stand-in"):
        TreeffuserRegressor().fit(np.hstack([X, X]), X[:, 0])


def test_treeffuser_says_how_to_make_its_environment(monkeypatch):
    monkeypatch.delenv("CARD_TREEFFUSER", raising=False)
    with pytest.raises(PeerNotAvailable, match="CARD_TREEFFUSER names, which is not set: python3 -m venv"):
        TreeffuserRegressor().fit(*fan(30))
    monkeypatch.setenv("CARD_TREEFFUSER", "/nowhere/python")
    with pytest.raises(PeerNotAvailable, match="which names /nowhere/python, where there is none"):
        TreeffuserRegressor().fit(*fan(30))


# --------------------------------------------------------------------------- each, where it is installed


PEERS = {
    "ngboost": NGBoostRegressor(n_estimators=100, learning_rate=0.1, patience=10, random_state=0),
    "catboost": CatBoostGaussianRegressor(random_state=0),
    "quantile_forest": QuantileForestRegressor(random_state=0),
    "lightgbm": LightGBMQuantileRegressor(random_state=0),
    "xgboost_distribution": XGBoostDistributionRegressor(random_state=0),
    "zuko": SplineFlowRegressor(transforms=1, hidden=(32,), epochs=25, lr=0.02, random_state=0),
    "sklearn": ConformalGBMRegressor(random_state=0),
}


def fan(n=600, seed=0):
    """y = 10 + 5 x + noise that is N(0, (0.5 + x)^2), x in [0, 2] by tenths: leaves have many rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 2, n).round(1)
    return x[:, None], 10 + 5 * x + (0.5 + x) * rng.standard_normal(n)


@pytest.fixture(scope="module", params=PEERS)
def learned(request):
    """A peer's package, its model, and its prediction around x = 0.25 and around x = 1.75."""
    pytest.importorskip(request.param)
    X, y = fan()
    model = clone(PEERS[request.param]).fit(X, y)
    rows = np.concatenate([np.linspace(0.1, 0.4, 20), np.linspace(1.6, 1.9, 20)])[:, None]
    return request.param, model, rows, model.predict_distribution(rows)


def halves(values):
    return np.array([values[:20].mean(), values[20:].mean()])


def test_the_mean_is_learned(learned):
    *_, rows, d = learned
    assert halves(d.mean()) == pytest.approx(10 + 5 * halves(rows[:, 0]), abs=0.7)


def test_the_spread_is_learned(learned):
    name, _, rows, d = learned
    narrow, wide = halves(d.std())
    assert (narrow + wide) / 2 == pytest.approx(0.5 + rows.mean(), rel=0.3)
    assert wide > 1.3 * narrow or name == "sklearn", "the truth is three times as wide"


def test_a_prediction_is_a_whole_distribution(learned):
    _, model, rows, d = learned
    assert isinstance(d, Distribution)
    q = np.array([0.01, 0.025, 0.3, 0.5, 0.9, 0.999])
    y = d.quantile(q)
    np.testing.assert_allclose(d.cdf(y), np.tile(q, (len(rows), 1)), atol=1e-6)
    np.testing.assert_allclose(cells(d, 1000)[1].sum(1), 1, atol=0.01)
    assert d.sample(7, random_state=0).shape == (7, len(rows))
    np.testing.assert_array_equal(model.predict(rows), d.mean())
    np.testing.assert_allclose(d[3:5].quantile(0.4), d.quantile(0.4)[3:5])


def test_the_same_seed_gives_the_same_prediction_and_rows_do_not_feel_each_other(learned):
    name, model, rows, d = learned
    np.testing.assert_allclose(model.predict_distribution(rows[7:9]).quantile(0.2), d.quantile(0.2)[7:9])
    if name in {"ngboost", "zuko"}:  # too slow to fit twice
        return
    again = clone(model).fit(*fan()).predict_distribution(rows)
    np.testing.assert_array_equal(again.quantile([0.1, 0.7]), d.quantile([0.1, 0.7]))


def test_a_peer_that_was_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        ConformalGBMRegressor().predict_distribution(np.zeros((2, 1)))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_held_out_must_leave_rows_on_both_sides(share):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        ConformalGBMRegressor(calibration_fraction=share).fit(*fan(30))


def test_a_flow_leaves_the_global_generator_alone():
    pytest.importorskip("zuko")
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    SplineFlowRegressor(epochs=1, random_state=0).fit(*fan(30))
    assert torch.equal(before, torch.random.get_rng_state())


# ------------------------------------------------------------------------------ one against the others


def report(method, dataset, split, **metrics):
    identity = {"dataset": dataset, "split": split, "method": method, "recipe": "default", "seed": split}
    return {**identity, "metrics": metrics, "config": {"rows": [90, 10]}}


def many(method, dataset, values, metric="crps"):
    return [report(method, dataset, i, **{metric: value}) for i, value in enumerate(values)]


def test_a_win_needs_a_difference_beyond_that_of_splits_that_overlap():
    rng = np.random.default_rng(0)
    base, noise = rng.normal(5, 1, 20), rng.normal(0, 1, 20)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    limit = t.ppf(0.975, 19) * np.sqrt(1 / 20 + 1 / 9)
    for shift, wanted in ((0.99 * limit, 0), (1.01 * limit, 1), (-1.01 * limit, -1)):
        theirs = many("b", "boston", base + noise + shift)
        assert verdict(many("a", "boston", base), theirs, "crps") == wanted
    naive = t.ppf(0.975, 19) * np.sqrt(1 / 20)
    assert naive < 0.6 * limit, "the plain test would find twice as much"


def test_only_splits_that_both_have_are_compared():
    ours, theirs = many("a", "boston", [1.0, 1.1, 1.2, 99.0]), many("b", "boston", [2.0, 2.1, 2.2])
    assert verdict(ours, theirs, "crps") == 1
    assert verdict(ours[3:], theirs, "crps") is None
    assert verdict(ours[:1], theirs, "crps") is None


def test_an_infinite_score_loses_to_a_finite_one_and_draws_with_another():
    finite, infinite = many("a", "boston", [9.0, 9.0]), many("b", "boston", [1.0, None])
    assert verdict(finite, infinite, "crps") == 1
    assert verdict(infinite, finite, "crps") == -1
    assert verdict(infinite, infinite, "crps") == 0


@pytest.fixture
def three():
    """a beats b on two data sets and draws on the third, c has not run the third."""
    reports = []
    for dataset, b in (("boston", 1.0), ("yacht", 1.0), ("wine", 0.0)):
        reports += many("a", dataset, [1.0, 1.1, 1.2])
        reports += many("b", dataset, np.array([1.0, 1.1, 1.2]) + b)
    return [*reports, *many("c", "boston", [9.0, 9.0, 9.1]), *many("c", "yacht", [9.0, 9.0, 9.1])]


def test_wins_draws_and_losses_are_counted_over_data_sets(three):
    table, *_ = comparison(three)
    rows = {row[0]: row[1:3] for row in table.rows}
    assert rows == {"b": ("3", "2-1-0"), "c": ("2", "2-0-0")}


def test_ranks_are_over_the_data_sets_that_all_have_run(three):
    _, table, *_ = comparison(three)
    assert table.rows == (("a", "1.00"), ("b", "2.00"), ("c", "3.00"))
    assert table.notes[0].startswith("On boston, yacht, over the splits")
    assert "2.34" in table.notes[1], "q = 2.343 times the root of 3 * 4 / (6 * 2)"
    assert "p = 0.14" in table.notes[2]


def test_ranks_are_over_the_splits_that_all_have_run():
    easy_split_only = [*many("a", "boston", [1.0, 9.0, 9.0]), *many("b", "boston", [2.0])]
    _, table, *_ = comparison(easy_split_only)
    assert table.rows == (("a", "1.00"), ("b", "2.00"))


def test_wins_are_the_first_table_of_a_comparison():
    reports = [*many("a", "boston", [1.0, 2.0, 3.0]), *many("b", "boston", [1.1, 2.1, 3.2])]
    assert wins(reports) == comparison(reports)[:1]


def test_a_comparison_without_a_data_set_in_common_says_so():
    _, table, *_ = comparison([*many("a", "boston", [1.0, 2.0]), *many("b", "yacht", [1.0, 2.0])])
    assert table.notes == ("No data set has been run by every method.",)
