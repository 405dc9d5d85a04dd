"""The regressor is at home among scikit-learn's tools and the frames that people use."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from houses import QUICK, houses
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from card import CARDRegressor, load


@pytest.fixture
def quick():
    return CARDRegressor(**QUICK)


def test_in_a_pipeline_with_frames_between_the_steps(quick):
    frame = houses(80)
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["area", "rooms"]),
        (OrdinalEncoder(encoded_missing_value=-1), ["town"]),
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipeline = make_pipeline(prepare, quick).fit(frame, frame["price"])
    assert pipeline[-1].feature_names_in_.tolist() == ["area", "rooms", "town"]
    assert pipeline.predict(frame).shape == (80,)
    assert np.isfinite(pipeline.score(frame, frame["price"]))


def test_with_polars_between_the_steps(quick):
    X = pl.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0) ** 0.5})
    pipeline = make_pipeline(StandardScaler().set_output(transform="polars"), quick)
    assert pipeline.fit(X, np.arange(40.0)).predict(X).shape == (40,)


def test_pandas_and_polars_give_the_same_model(quick):
    frame = houses(60)
    X, y = frame.drop(columns="price"), frame["price"].to_numpy()
    a = CARDRegressor(**QUICK).fit(X, y).predict(X)
    b = CARDRegressor(**QUICK).fit(pl.from_pandas(X), y).predict(pl.from_pandas(X))
    np.testing.assert_array_equal(a, b)


def test_a_frame_with_one_category_only_is_predicted_as_in_the_full_frame(quick):
    frame = houses(80).assign(town=lambda f: pd.Categorical(f["town"]))
    X = frame.drop(columns="price")
    model = quick.fit(X, frame["price"])
    only = X[X["town"] == "Köln"].assign(town=lambda f: f["town"].cat.remove_unused_categories())
    full = model.predict(X)[(X["town"] == "Köln").to_numpy()]
    np.testing.assert_allclose(model.predict(only), full, rtol=1e-5)


def test_a_saved_model_reads_raw_tables_as_before(quick, tmp_path):
    frame = houses(60)
    X = frame.drop(columns="price")
    expected = quick.fit(X, frame["price"]).predict(X)
    quick.save(tmp_path / "m.card")
    loaded = load(tmp_path / "m.card")
    assert loaded.target_names_ == ["price"]
    np.testing.assert_allclose(loaded.predict(X), expected, rtol=1e-6)
    records = X.astype(object).where(X.notna(), None).to_dict("records")
    np.testing.assert_allclose(loaded.predict(records), expected, rtol=1e-5)


def test_renamed_and_reordered_columns_are_refused(quick):
    frame = houses(60)
    X = frame.drop(columns="price")
    quick.fit(X, frame["price"])
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        quick.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- city"):
        quick.predict(X.rename(columns={"town": "city"}))
