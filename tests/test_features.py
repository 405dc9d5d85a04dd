"""Tables become numbers by rules fixed at fit; nothing about the frame at predict can change them."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from card.columns import is_table, read_table
from card.features import Features


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def houses(rng):
    n = 60
    frame = pd.DataFrame(
        {
            "area": rng.normal(100, 20, n),
            "rooms": rng.integers(1, 6, n),
            "garden": rng.random(n) < 0.5,
            "town": rng.choice(["Ulm", "Bonn", "Köln"], n),
            "street": [f"street {i}" for i in rng.integers(0, 60, n)],
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
        }
    )
    frame.loc[::7, "area"] = np.nan
    frame.loc[3::11, "town"] = None
    frame.loc[5, "sold"] = pd.NaT
    return frame


def test_numeric_arrays_are_standardised_by_the_population_std(rng):
    X = rng.normal(3, 7, (50, 4)).astype(np.float32)
    wide = X.astype(np.float64)
    expected = (wide - wide.mean(0)) / wide.std(0)
    out = Features.fit(X).transform(X)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "as_input", [np.ndarray.tolist, lambda X: X.astype(object), pd.DataFrame, pl.DataFrame]
)
def test_every_container_of_numbers_gives_the_same_numbers(rng, as_input):
    X = rng.normal(size=(20, 3))
    np.testing.assert_array_equal(
        Features.fit(as_input(X)).transform(as_input(X)), Features.fit(X).transform(X)
    )


def test_pandas_polars_arrow_and_records_agree_on_a_mixed_table(houses):
    records = houses.astype(object).where(houses.notna(), None).to_dict("records")
    features = Features.fit(houses)
    expected = features.transform(houses)
    for other in (pl.from_pandas(houses), pa.Table.from_pandas(houses, preserve_index=False), records):
        refit = Features.fit(other)
        assert refit.kinds == features.kinds
        np.testing.assert_array_equal(refit.transform(other), expected)
        np.testing.assert_array_equal(features.transform(other), expected)


def test_kinds_are_recognised(houses):
    assert Features.fit(houses).kinds == {
        "area": "number",
        "rooms": "number",
        "garden": "boolean",
        "town": "category",
        "street": "many",
        "sold": "date",
    }


def test_a_frame_that_holds_only_one_category_is_encoded_as_in_the_full_frame():
    full = pd.DataFrame({"level": pd.Categorical(["a", "b", "c", "c"])})
    only_c = pd.DataFrame({"level": pd.Categorical(["c"])})
    features = Features.fit(full)
    np.testing.assert_array_equal(features.transform(only_c), features.transform(full)[2:3])


def test_rows_are_encoded_alone_as_together_and_in_any_order(houses):
    features = Features.fit(houses)
    together = features.transform(houses)
    alone = np.concatenate([features.transform(houses.iloc[i : i + 1]) for i in range(len(houses))])
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(features.transform(houses[::-1]), together[::-1])


def test_the_order_of_training_rows_does_not_matter_to_the_columns(houses):
    a, b = Features.fit(houses), Features.fit(houses.sample(frac=1, random_state=1))
    assert a.names_out == b.names_out
    np.testing.assert_allclose(a.transform(houses), b.transform(houses), atol=1e-5)


def test_gaps_take_the_median_and_are_marked():
    frame = pd.DataFrame({"v": [1.0, 2.0, 30.0, None]})
    features = Features.fit(frame)
    assert features.names_out == ["v", "v=(missing)"]
    out = features.transform(frame)
    np.testing.assert_array_equal(out[:, 1], [0, 0, 0, 1])
    assert out[3, 0] == out[1, 0]


def test_a_gap_at_predict_where_fit_had_none_takes_the_median():
    features = Features.fit(pd.DataFrame({"v": [1.0, 2.0, 30.0]}))
    out = features.transform(pd.DataFrame({"v": [None, 2.0]}))
    assert out.shape == (2, 1)
    assert out[0] == out[1]


def test_an_unseen_category_is_all_zeros_and_a_missing_one_has_its_own_column():
    features = Features.fit(pd.DataFrame({"t": ["a", "b", None]}))
    out = features.transform(pd.DataFrame({"t": ["new", None, "a"]}))
    np.testing.assert_array_equal(out, [[0, 0, 0], [0, 0, 1], [1, 0, 0]])


def test_declared_integer_codes_are_categories_by_name_by_position_and_by_mask():
    X = np.array([[1, 10.0], [2, 20.0], [1, 30.0]])
    for categorical in ([0], [-2], ["x0"], [True, False]):
        features = Features.fit(X, categorical)
        assert features.names_out == ["x0=1", "x0=2", "x1"]
        np.testing.assert_array_equal(features.transform(X)[:, :2], [[1, 0], [0, 1], [1, 0]])


def test_codes_read_as_integers_floats_or_strings_are_the_same_levels():
    features = Features.fit(pd.DataFrame({"zip": [1, 2, 1]}), ["zip"])
    for cells in ([2], [2.0], ["2"], ["2.0"]):
        np.testing.assert_array_equal(features.transform(pd.DataFrame({"zip": cells})), [[0, 1]])


def test_an_unknown_declared_column_is_named():
    with pytest.raises(ValueError, match="'colour', which X does not have"):
        Features.fit(pd.DataFrame({"a": [1.0, 2.0]}), ["colour"])


def test_many_levels_make_few_columns_and_distinguish_frequent_levels(rng):
    ids = np.array([f"id{i}" for i in rng.zipf(1.5, 4000) % 700])
    features = Features.fit(pd.DataFrame({"id": ids}))
    assert features.kinds == {"id": "many"}
    assert len(features.names_out) == 16 + 1 + 8
    frequent = pd.Series(ids).value_counts().index[:16]
    rows = features.transform(pd.DataFrame({"id": frequent}))
    np.testing.assert_array_equal(rows[:, :16], np.eye(16))


def test_a_level_seen_once_counts_as_unseen(rng):
    free_text = pd.DataFrame({"note": [f"text {i}" for i in range(50)]})
    features = Features.fit(free_text)
    unseen = features.transform(pd.DataFrame({"note": ["never seen"]}))
    np.testing.assert_array_equal(features.transform(free_text), np.repeat(unseen, 50, axis=0))


def test_dates_keep_their_order_their_season_and_their_weekday():
    days = pd.DataFrame({"day": pd.date_range("2021-01-01", "2022-12-31")})
    features = Features.fit(days)
    out = features.transform(days)
    assert features.names_out[1:] == [f"{w} {c} of day" for c in ("year", "week") for w in ("sin", "cos")]
    assert (np.diff(out[:, 0]) > 0).all()
    np.testing.assert_allclose(out[:365, 1:3], out[365:, 1:3], atol=1e-4)
    np.testing.assert_allclose(out[:-7, 3:5], out[7:, 3:5], atol=1e-4)


def test_iso_strings_are_dates_and_equal_to_them():
    stamps = pd.to_datetime(["2021-03-01 10:00", "2021-03-02 11:30", None, "2022-01-01 00:00"])
    typed = pd.DataFrame({"t": stamps})
    written = pd.DataFrame({"t": ["2021-03-01 10:00", "2021-03-02T11:30:00", None, "2022-01-01"]})
    features = Features.fit(typed)
    assert Features.fit(written).kinds == {"t": "date"}
    np.testing.assert_array_equal(features.transform(written), features.transform(typed))


def test_a_date_with_a_zone_is_the_moment_it_names():
    features = Features.fit(pl.DataFrame({"t": [dt.datetime(2020, 5, 1, 12), dt.datetime(2021, 5, 1)]}))
    berlin = pl.DataFrame({"t": [dt.datetime(2020, 5, 1, 14)]}).with_columns(
        pl.col("t").dt.replace_time_zone("Europe/Berlin")
    )
    utc = pl.DataFrame({"t": [dt.datetime(2020, 5, 1, 12)]})
    np.testing.assert_array_equal(features.transform(berlin), features.transform(utc))


def test_booleans_with_gaps_and_as_words():
    features = Features.fit(pd.DataFrame({"b": pd.array([True, False, None, True], dtype="boolean")}))
    assert features.kinds == {"b": "boolean"}
    typed = features.transform(pd.DataFrame({"b": pd.array([True, None, False], dtype="boolean")}))
    words = features.transform(pd.DataFrame({"b": ["true", None, "False"]}))
    np.testing.assert_array_equal(typed, words)


def test_constant_and_empty_columns_are_zero_even_when_they_change_later():
    train = pd.DataFrame({"c": [5.0, 5.0, 5.0], "tiny": [0.1 + 0.2, 0.3, 0.3], "none": [None] * 3})
    features = Features.fit(train)
    later = features.transform(pd.DataFrame({"c": [7.0], "tiny": [9.0], "none": [1.0]}))
    np.testing.assert_array_equal(later, np.zeros((1, 4)))
    words = features.transform(pd.DataFrame({"c": [7.0], "tiny": [9.0], "none": ["new"]}))
    np.testing.assert_array_equal(words, later)


@pytest.mark.parametrize("column", [[1e308, -1e308, 1e307, 0.0], [1e-308, 3e-308, 5e-324, 2e-308]])
def test_extreme_values_are_standardised_without_overflow(column):
    X = np.array(column)[:, None]
    out = Features.fit(X).transform(X)
    assert np.isfinite(out).all()
    np.testing.assert_allclose([out.mean(), out.std()], [0, 1], atol=1e-6)


def test_a_wild_value_neither_overflows_nor_drowns_the_others(rng):
    X = np.append(rng.normal(size=99), 1e308)[:, None]
    out = Features.fit(X).transform(X)
    core = X[:99, 0]
    np.testing.assert_allclose(out[:99, 0], (core - core.mean()) / core.std(), rtol=1e-5)
    assert 16 < out[99, 0] < 1000


def test_far_values_keep_their_order(rng):
    features = Features.fit(rng.normal(size=(100, 1)))
    z = features.transform(np.geomspace(1, 1e300, 200)[:, None])
    assert (np.diff(z[:, 0]) > 0).all()
    assert (features.transform(np.array([[-1e300], [1e308]])) * [[-1], [1]] > 16).all()


def test_infinite_values_are_refused_and_their_column_named():
    with pytest.raises(ValueError, match="infinity in column 'b'"):
        Features.fit(pd.DataFrame({"a": [1.0, 2.0], "b": [np.inf, 1.0]}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["b", "a"], "must be in the same order as they were in fit"),
        (["a", "z"], "unseen at fit time:\n- z\nFeature names seen at fit time, yet now missing:\n- b"),
        (["a"], "yet now missing:\n- b"),
    ],
)
def test_other_columns_than_at_fit_are_refused_in_scikit_learns_words(columns, message):
    features = Features.fit(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=message):
        features.transform(pd.DataFrame({name: [1.0] for name in columns}))


def test_an_array_of_another_width_is_refused():
    with pytest.raises(ValueError, match="X has 3 features, but 2 are expected as input"):
        Features.fit(np.eye(2)).transform(np.eye(3))


def test_records_go_by_name_and_an_absent_name_is_a_gap():
    features = Features.fit([{"a": 1.0, "b": "x"}, {"a": 3.0, "b": "y"}, {"b": "y"}])
    out = features.transform([{"b": "y", "a": 3.0}, {"b": "x"}])
    np.testing.assert_array_equal(out, [[1, 0, 0, 1], [0, 1, 1, 0]])
    with pytest.raises(ValueError, match="unseen at fit time:\n- c"):
        features.transform([{"a": 1.0, "c": 2}])


def test_text_in_a_column_of_numbers_is_shown():
    features = Features.fit(pd.DataFrame({"a": [1.0, 2.0]}))
    np.testing.assert_array_equal(
        features.transform(pd.DataFrame({"a": ["1", None]})),
        features.transform(pd.DataFrame({"a": [1, None]})),
    )
    with pytest.raises(ValueError, match="column 'a' held numbers at fit; now it holds 'many'"):
        features.transform(pd.DataFrame({"a": ["1", "many"]}))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_tables_are_refused_at_fit(shape):
    with pytest.raises(ValueError, match="while a minimum of 1 is required"):
        Features.fit(np.empty(shape))


def test_cells_that_are_no_values_are_refused():
    with pytest.raises(TypeError, match="argument must be a string or a number, not 'dict'"):
        Features.fit(np.array([[{"a": 1}, 2.0]], dtype=object))
    with pytest.raises(ValueError, match="Complex data not supported"):
        Features.fit(np.array([[1j, 2.0]]))
    with pytest.raises(ValueError, match="unique column names, got:\n- 'a' 2 times"):
        Features.fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TypeError, match="collect it first"):
        Features.fit(pl.LazyFrame({"a": [1]}))


def test_state_survives_json_bit_for_bit(houses):
    features = Features.fit(houses, ["rooms"])
    state, arrays = features.to_state()
    again = Features.from_state(json.loads(json.dumps(state, allow_nan=False)), arrays)
    assert again.encoders == features.encoders
    np.testing.assert_array_equal(again.transform(houses), features.transform(houses))


def test_every_encoded_column_knows_its_source(houses):
    features = Features.fit(houses)
    assert len(features.sources) == len(features.names_out) == features.transform(houses).shape[1]
    for name, source in zip(features.names_out, features.sources, strict=True):
        assert features.columns[source] in name


def test_tables_are_told_from_numeric_arrays():
    frame = pd.DataFrame({"a": [1]})
    assert all(is_table(X) for X in (frame, pl.from_pandas(frame), [{"a": 1}], [[1, "a"]], np.array([["a"]])))
    assert not any(
        is_table(X) for X in (np.eye(2), np.eye(2).astype(object), [[1, 2]], [1.0, 2.0], np.arange(3))
    )


def test_words_for_missing_are_gaps_in_text_columns():
    table = read_table([["NA"], ["x"], [""], [None]])
    features = Features.fit(table.columns[0].values[:, None])
    np.testing.assert_array_equal(features.transform([["NA"], ["x"]]), [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("cells", "same"),
    [
        (["31.12.2024", "1.2.2024", None], ["2024-12-31", "2024-02-01", None]),
        (["12/31/2024", "01/02/2024"], ["2024-12-31", "2024-01-02"]),
        (["31/12/2024 09:30", "01/02/2024 10:00"], ["2024-12-31T09:30", "2024-02-01T10:00"]),
        (["31-12-2024", "01-02-2024"], ["2024-12-31", "2024-02-01"]),
        (["2024/12/31", "2024/2/1"], ["2024-12-31", "2024-02-01"]),
    ],
)
def test_dates_written_as_people_do_are_dates(cells, same):
    features = Features.fit(pd.DataFrame({"t": cells}))
    assert features.kinds == {"t": "date"}
    moments = pd.DataFrame({"t": pd.to_datetime(same, format="ISO8601")})
    expected = Features.fit(moments).transform(moments)
    state, arrays = features.to_state()
    for model in (features, Features.from_state(json.loads(json.dumps(state)), arrays)):
        for form in (pd.DataFrame({"t": cells}), pd.DataFrame({"t": same}), moments):
            np.testing.assert_array_equal(model.transform(form), expected)


@pytest.mark.parametrize("cells", [["03/04/2024", "05/06/2024"], ["31.12.2024", "2024-12-31"], ["31.12.24"]])
def test_dates_that_can_be_read_in_two_ways_are_not_guessed(cells):
    assert Features.fit(pd.DataFrame({"t": cells})).kinds == {"t": "category"}


@pytest.mark.parametrize(
    ("then", "now", "shown"),
    [("2024-01-05", "31.12.2024", "2024-05-31"), ("31.12.2024", "12/31/2024", "31.05.2024")],
)
def test_text_in_a_column_of_dates_is_no_gap(then, now, shown):
    features = Features.fit(pd.DataFrame({"t": [then, then]}))
    with pytest.raises(ValueError, match=f"dates such as {shown} at fit; now it holds '{now}'"):
        features.transform(pd.DataFrame({"t": [then, now]}))


def test_periods_are_the_moments_they_begin_at():
    months = pd.DataFrame({"m": pd.period_range("2024-01", periods=5, freq="M")})
    moments = pd.DataFrame({"m": months["m"].dt.to_timestamp()})
    features = Features.fit(months)
    np.testing.assert_array_equal(features.transform(months), Features.fit(moments).transform(moments))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, lambda d: [{"ok": 1, "bad": [1]}]])
def test_the_column_of_a_cell_that_is_no_value_is_named(make):
    with pytest.raises(TypeError, match=r"column 'bad': .* not 'list'"):
        Features.fit(make({"ok": [1], "bad": [[1]]}))
