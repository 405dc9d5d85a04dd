"""A response that goes over orders of magnitude is learned as its logarithm, where that helps."""

import numpy as np
import pandas as pd
import pytest
from shell import predicted, run

from card import CARDRegressor, load
from card.datasets import load_uci, make_toy
from card.features import Features
from card.magnitude import goes_over_orders, prefers_logarithm
from card.metrics import picp

QUICK = {"cv": 2, "repeats": 1, "epochs": 10}


def power_law(n: int = 300, seed: int = 0):
    """y = x^3 times noise of 15 %: from about 1e-6 to 1000."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.01, 10, size=(n, 1))
    return x, np.exp(3 * np.log(x[:, 0]) + 0.15 * rng.normal(size=n))


@pytest.fixture(scope="module")
def fitted():
    return CARDRegressor(random_state=0, **QUICK).fit(*power_law())


def prefers(X, y) -> bool:
    plain, with_logs = (Features.fit(X, with_logs=logs).transform(X) for logs in (False, True))
    return prefers_logarithm(plain, with_logs, y[:, None], None, 0)


@pytest.mark.parametrize(
    ("name", "n"), [("log_log_cubic", 300), ("log_log_cubic", 2000), ("log_log_linear", 2000)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_noise_that_is_a_share_of_the_response_asks_for_the_logarithm(name, n, seed):
    X, _, y, _ = make_toy(name, n=n, random_state=seed).split()
    assert goes_over_orders(y[:, None])
    assert prefers(X, y)


@pytest.mark.parametrize("split", [0, 1, 2])
def test_large_responses_that_are_known_well_speak_against_it(split):
    X, _, y, _ = load_uci("yacht").split(split)
    assert goes_over_orders(y[:, None])
    assert not prefers(X, y)


@pytest.mark.parametrize(
    "y",
    [np.linspace(5, 50, 200), np.linspace(-1, 1000, 200), np.linspace(0, 1000, 200), np.logspace(0, 9, 50)],
)
def test_narrow_negative_zero_and_few_responses_are_not_asked(y):
    assert not goes_over_orders(y[:, None])


def test_two_targets_are_not_asked():
    assert not goes_over_orders(np.logspace(0, 9, 400).reshape(-1, 2))


def test_the_choice_is_the_datas_and_can_be_taken_from_them(fitted):
    X, y = power_law()
    assert fitted.model_.codec.response == "positive"
    assert CARDRegressor(random_state=0, response="real", **QUICK).fit(X, y).model_.codec.response == "real"
    bounded = CARDRegressor(random_state=0, bounds=(0, None), **QUICK).fit(X, y)
    assert bounded.model_.codec.response == "real"


def test_small_responses_are_told_as_well_as_large_ones(fitted):
    X, y = power_law(2000, seed=1)
    interval = fitted.predict_interval(X, coverage=0.9)
    small, large = X[:, 0] < 1, X[:, 0] > 5
    for part in (small, large):
        assert picp(y[part], *interval[part].T) == pytest.approx(90, abs=8)
    assert (interval > 0).all()
    ratio = np.log(fitted.predict(X) / X[:, 0] ** 3)
    assert np.abs(ratio).mean() < 0.05


def test_a_power_law_goes_on_outside_the_data(fitted):
    x = np.array([[12.0], [15.0]])
    np.testing.assert_allclose(fitted.predict(x), x[:, 0] ** 3, rtol=0.25)


def test_columns_of_zero_and_below_at_predict_are_taken(fitted):
    assert np.isfinite(fitted.predict(np.array([[0.0], [-3.0], [np.nan], [1e300]]))).all()


def test_a_model_of_logarithms_comes_back_from_its_file(fitted, tmp_path):
    X, y = power_law(40, seed=2)
    fitted.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card")
    np.testing.assert_array_equal(again.predict_quantiles(X), fitted.predict_quantiles(X))
    np.testing.assert_array_equal(
        again.predict_distribution(X).logpdf(y), fitted.predict_distribution(X).logpdf(y)
    )


def test_f_alone_is_a_lognormal_in_the_shape_of_the_response(fitted):
    X, _ = power_law(40, seed=3)
    alone = fitted.predict_mean_model(X)
    assert (alone.quantile(0.001) > 0).all()
    table = CARDRegressor(random_state=0, **QUICK).fit(*(a.reshape(300, 1) for a in power_law()))
    assert table.predict_mean_model(X).mean().shape == table.predict(X).shape == (40, 1)


def test_conformal_intervals_of_logarithms_cover():
    X, y = power_law(600)
    model = CARDRegressor(random_state=0, conformal="split", **QUICK).fit(X, y)
    X_new, y_new = power_law(2000, seed=1)
    lower, upper = model.predict_interval(X_new, coverage=0.9).T
    assert picp(y_new, lower, upper) >= 85
    assert (lower > 0).all()


def test_zero_is_refused_where_numbers_above_it_were_promised():
    X = np.arange(20.0)[:, None]
    with pytest.raises(ValueError, match=r"numbers above 0, but y holds 0\.0: use response='real'"):
        CARDRegressor(response="positive").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="'positive' is for one target, but y has 2 columns"):
        CARDRegressor(response="positive").fit(X, np.c_[X, X] + 1)


def test_a_fitted_mean_of_the_response_itself_is_refused():
    from sklearn.linear_model import LinearRegression

    X, y = power_law(50)
    mean = LinearRegression().fit(X, y)
    with pytest.raises(ValueError, match="learns log y, but mean is fitted already and predicts y"):
        CARDRegressor(response="positive", mean=mean, standardise_x=False).fit(X, y)


def test_columns_and_their_logarithms_are_named(fitted):
    assert fitted.features_.names_out == ["x0", "log of x0"]
    assert fitted.features_.sources.tolist() == [0, 0]
    X, y = power_law()
    frame = pd.DataFrame({"size": X[:, 0], "sign": -X[:, 0], "town": np.where(X[:, 0] > 5, "Ulm", "Bonn")})
    model = CARDRegressor(random_state=0, **QUICK).fit(frame, y)
    assert model.features_.names_out == ["size", "sign", "town=Bonn", "town=Ulm", "log of size"]


def test_the_command_line_says_that_it_took_the_logarithm(tmp_path):
    X, y = power_law(200)
    pd.DataFrame({"size": X[:, 0], "cost": y}).to_csv(tmp_path / "t.csv", index=False)
    settings = [f"--set={name}={value}" for name, value in QUICK.items()]
    said = run("fit", tmp_path / "t.csv", "--target=cost", "--out", tmp_path / "m.card", *settings)
    assert "cost holds numbers, over orders of magnitude, learned as their logarithm" in said.stdout
    assert (predicted(tmp_path / "m.card", tmp_path / "t.csv", "--quantiles=0.001")["q0.001"] > 0).all()
