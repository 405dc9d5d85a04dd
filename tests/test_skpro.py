"""skpro's own checks pass, and its numbers are the model's."""

import numpy as np
import pandas as pd
import pytest
from houses import QUICK, houses

from card import CARDRegressor

skpro = pytest.importorskip("skpro")
pytestmark = pytest.mark.filterwarnings("ignore")  # skpro's, on its own account

from card.integrations.skpro import CARDProbaRegressor  # noqa: E402


@pytest.fixture(scope="module")
def fitted():
    frame = houses(80)
    X, y = frame.drop(columns=["price", "town", "sold"]), frame[["price"]]
    return CARDProbaRegressor(CARDRegressor(**QUICK)).fit(X, y), X


def test_every_check_of_skpro_passes():
    from skpro.utils import check_estimator

    results = check_estimator(CARDProbaRegressor, verbose=False)
    assert len(results) > 20
    assert [name for name, outcome in results.items() if outcome != "PASSED"] == []


def test_quantiles_intervals_and_moments_are_exactly_the_models(fitted):
    adapter, X = fitted
    distribution = adapter.estimator_.predict_distribution(X)
    np.testing.assert_array_equal(adapter.predict_quantiles(X, [0.1, 0.7]), distribution.quantile([0.1, 0.7]))
    np.testing.assert_array_equal(adapter.predict_interval(X, 0.9), distribution.interval(0.9))
    np.testing.assert_array_equal(adapter.predict(X)["price"], distribution.mean())
    np.testing.assert_allclose(adapter.predict_var(X)["price"], distribution.std() ** 2)


def test_the_distribution_object_agrees_with_the_model(fitted):
    adapter, X = fitted
    distribution, theirs = adapter.estimator_.predict_distribution(X), adapter.predict_proba(X)
    np.testing.assert_allclose(theirs.mean()["price"], distribution.mean(), rtol=0.02)
    middle = distribution.quantile(0.5)
    np.testing.assert_allclose(
        theirs.cdf(pd.DataFrame({"price": middle}, index=X.index))["price"], 0.5, atol=0.01
    )


def test_several_targets_keep_their_names(fitted):
    frame = houses(60)
    y = pd.DataFrame({"price": frame["price"], "rent": frame["price"] / 100})
    adapter = CARDProbaRegressor(CARDRegressor(**{**QUICK, "n_draws": 60})).fit(frame[["area", "rooms"]], y)
    quantiles = adapter.predict_quantiles(frame[["area", "rooms"]], [0.25, 0.75])
    assert list(quantiles.columns) == [("price", 0.25), ("price", 0.75), ("rent", 0.25), ("rent", 0.75)]
    assert (quantiles["price"][0.75] > quantiles["price"][0.25]).all()
    ratio = quantiles["price"][0.75].mean() / quantiles["rent"][0.75].mean()
    assert ratio == pytest.approx(100, rel=0.5)
