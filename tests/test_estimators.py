import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, RepeatedKFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from card import CARDRegressor
from card.estimators import fit_together
from card.fit import fit_unit_denoiser

QUICK = {"epochs": 6, "repeats": 1, "cv": 2, "random_state": 0}
PAPER = {"epochs": 4, "n_steps": 30, "beta_T": 0.3, "mean_epochs": 5, "n_draws": 40, "random_state": 0}


def table(n: int = 80, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1.0, d + 1) + rng.normal(size=n) * (0.5 + 0.4 * (X[:, 0] > 0))


X, Y = table()
BOTH = np.column_stack([Y, Y**2])


@pytest.fixture(scope="module")
def modern() -> CARDRegressor:
    return CARDRegressor(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def paper() -> CARDRegressor:
    return CARDRegressor.from_recipe("paper", **PAPER).fit(X, Y)


@pytest.fixture(params=["modern", "paper"])
def reg(request) -> CARDRegressor:
    return request.getfixturevalue(request.param)


def test_everything_has_the_promised_shape(reg):
    assert reg.predict(X).shape == (80,)
    assert reg.predict_quantiles(X, [0.05, 0.5, 0.95]).shape == (80, 3)
    assert reg.predict_quantiles(X, 0.5).shape == (80,)
    assert reg.predict_interval(X, coverage=0.95).shape == (80, 2)
    assert reg.sample(X, n_draws=11, random_state=0).shape == (11, 80)
    d = reg.predict_distribution(X)
    assert d.cdf(Y).shape == d.pdf(Y).shape == d.logpdf(Y).shape == (80,)
    assert d.cdf(np.tile(Y[:, None], 4)).shape == (80, 4)
    assert reg.predict(X[:1]).shape == (1,)


@pytest.mark.parametrize(
    "make", [lambda: CARDRegressor(**QUICK), lambda: CARDRegressor.from_recipe("paper", **PAPER)]
)
def test_several_targets(make):
    reg = make().set_params(n_draws=50).fit(X, BOTH)
    assert reg.predict(X).shape == (80, 2)
    assert reg.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (80, 3, 2)
    assert reg.predict_interval(X).shape == (80, 2, 2)
    assert reg.sample(X, 5, random_state=1).shape == (5, 80, 2)
    assert reg.predict_distribution(X).logpdf(BOTH).shape == (80,)


def test_a_column_vector_keeps_its_shape():
    reg = CARDRegressor(**QUICK).fit(X, Y[:, None])
    assert reg.predict(X).shape == (80, 1)
    assert reg.predict_interval(X).shape == (80, 2, 1)
    assert reg.sample(X, 3, random_state=0).shape == (3, 80, 1)


def test_predictions_do_not_depend_on_the_other_rows_or_their_order(modern, paper):
    whole = modern.predict_quantiles(X, [0.1, 0.9])
    order = np.random.default_rng(1).permutation(80)
    assert np.array_equal(modern.predict_quantiles(X[order], [0.1, 0.9]), whole[order])
    one_by_one = np.concatenate([modern.predict_quantiles(X[i : i + 1], [0.1, 0.9]) for i in range(80)])
    assert np.array_equal(one_by_one, whole)
    assert np.allclose(paper.predict(X[order]), paper.predict(X)[order], atol=1e-5)
    assert np.allclose(paper.predict(X[5:6]), paper.predict(X)[5:6], atol=1e-5)


def test_a_row_does_not_feel_that_others_have_several_modes():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(600, 1))
    side = np.where(rng.random(600) < 0.5, 1.0, -1.0)
    y = np.where(x[:, 0] > 0, 2 * side, 0.0) + 0.1 * rng.normal(size=600)
    model = CARDRegressor(mean="zero", cv=2, epochs=150, random_state=0).fit(x, y)
    new = np.linspace(-0.9, 0.9, 40)[:, None]
    curves = model.model_.curves(model._encode(new), model.schedule_, model.n_nodes)
    assert curves.y.shape[-1] > model.n_nodes  # some are solved on a finer grid
    alone = np.concatenate([model.predict_quantiles(row[None], [0.05, 0.5, 0.95]) for row in new])
    assert np.allclose(model.predict_quantiles(new, [0.05, 0.5, 0.95]), alone, rtol=0, atol=1e-5)


def test_draws_do_not_depend_on_what_else_is_drawn(reg, monkeypatch):
    whole = reg.sample(X, 9, random_state=3)
    assert np.allclose(reg.sample(X[:13], 9, random_state=3), whole[:, :13], atol=1e-5)
    assert np.array_equal(reg.sample(X, 9, random_state=3), whole)
    assert not np.array_equal(reg.sample(X, 9, random_state=4), whole)


@pytest.mark.parametrize(
    "make", [lambda: CARDRegressor(**QUICK), lambda: CARDRegressor.from_recipe("paper", **PAPER)]
)
def test_a_random_state_repeats_a_fit_bit_for_bit(make, modern, paper):
    again = make().fit(X, Y)
    first = paper if again.denoiser == "table" else modern
    assert np.array_equal(again.predict(X), first.predict(X))


def test_scaling_and_shifting_y_scales_and_shifts_the_quantiles(modern):
    other = CARDRegressor(**QUICK).fit(X, 1000.0 * Y - 5.0)
    ours = 1000.0 * modern.predict_quantiles(X, [0.1, 0.9]) - 5.0
    assert np.allclose(other.predict_quantiles(X, [0.1, 0.9]), ours, rtol=1e-3, atol=1.0)


def test_splits_fitted_together_equal_splits_fitted_alone():
    data = [table(seed=s) for s in range(3)]
    together = [CARDRegressor.from_recipe("paper", **(PAPER | {"random_state": s})) for s in range(3)]
    alone = [clone(e) for e in together]
    fit_together(together, [x for x, _ in data], [y for _, y in data])
    for one, other, (x, y) in zip(alone, together, data, strict=True):
        one.fit(x, y)
        assert np.allclose(one.sample(x, 5, random_state=0), other.sample(x, 5, random_state=0), atol=2e-3)


@pytest.mark.parametrize("sampler", ["ancestral", "short-chain", "ddim", "multistep", "multistep-sde"])
def test_every_sampler_serves_the_papers_network(paper, sampler):
    other = pickle.loads(pickle.dumps(paper)).set_params(sampler=sampler, n_evaluations=8)
    assert np.isfinite(other.predict(X)).all()


def test_how_fine_the_flow_is_solved_may_be_said_after_the_fit(modern):
    def quantiles(n_evaluations: int) -> np.ndarray:
        other = pickle.loads(pickle.dumps(modern)).set_params(n_evaluations=n_evaluations)
        return other.predict_quantiles(X)

    off = [np.abs(quantiles(n) - quantiles(48)).mean() for n in (4, 12, 24)]
    assert off[0] > 2 * off[1] > 4 * off[2] > 0


@pytest.mark.parametrize(
    "switches", [{"prior": "zero"}, {"mean_input": False}, {"mean": "zero"}, {"schedule": "cosine"}]
)
def test_the_papers_switches_change_the_fit(paper, switches):
    other = CARDRegressor.from_recipe("paper", **PAPER, **switches).fit(X, Y)
    assert np.isfinite(other.predict(X)).all()
    assert not np.allclose(other.predict(X), paper.predict(X))


def test_the_authors_variant_keeps_dropout_of_f_on():
    plain = CARDRegressor.from_recipe("paper", **PAPER, mean_dropout=0.2).fit(X, Y)
    noisy = CARDRegressor.from_recipe("paper", **PAPER, mean_dropout=0.2, noisy_mean=True).fit(X, Y)
    assert np.array_equal(plain.predict_mean_model(X).mean(), noisy.predict_mean_model(X).mean())
    assert not np.allclose(plain.predict(X), noisy.predict(X))


@pytest.mark.parametrize("mean", [LinearRegression(), ExtraTreesRegressor(10, random_state=0), "mlp", "zero"])
def test_any_mean_model_can_stand_in(mean):
    reg = CARDRegressor(**QUICK, mean=mean).fit(X, Y)
    assert np.isfinite(reg.predict_interval(X)).all()


def test_a_fitted_mean_model_is_taken_as_it_is():
    mean = LinearRegression().fit(X, Y)
    paper = CARDRegressor.from_recipe("paper", **PAPER, mean=mean, standardise_x=False).fit(X, Y)
    assert np.allclose(paper.predict_mean_model(X).mean(), mean.predict(X), atol=1e-4)


@pytest.mark.parametrize("cv", [3, GroupKFold(4), TimeSeriesSplit(3)])
def test_folds_of_every_kind(cv):
    groups = np.arange(80) % 10 if isinstance(cv, GroupKFold) else None
    reg = CARDRegressor(**(QUICK | {"cv": cv})).fit(X, Y, groups=groups)
    assert np.isfinite(reg.predict(X)).all()


def test_works_in_pipelines_searches_clones_and_pickles(modern):
    pipeline = make_pipeline(StandardScaler(), CARDRegressor(**QUICK)).fit(X, Y)
    assert pipeline.score(X, Y) > 0.5
    search = GridSearchCV(CARDRegressor(**QUICK), {"dropout": [0.0, 0.2]}, cv=2).fit(X, Y)
    assert search.best_estimator_.predict(X).shape == (80,)
    assert np.array_equal(pickle.loads(pickle.dumps(modern)).predict(X), modern.predict(X))
    assert clone(modern).get_params() == modern.get_params()


def test_f_alone_is_a_bell_around_the_mean_model(modern):
    bell = modern.predict_mean_model(X)
    assert np.corrcoef(bell.mean(), Y)[0, 1] > 0.8
    assert (bell.std() > 0).all()


def test_tables_with_words_and_gaps_are_welcome():
    frame = pd.DataFrame({"a": X[:, 0], "town": np.where(X[:, 1] > 0, "Ulm", "Bonn"), "b": X[:, 2]})
    frame.loc[::7, "a"] = np.nan
    reg = CARDRegressor(**QUICK).fit(frame, Y)
    only = frame[frame.town == "Ulm"]
    assert np.array_equal(reg.predict(only), reg.predict(frame)[frame.town == "Ulm"])
    with pytest.raises(ValueError, match="feature names"):
        reg.predict(frame[["b", "a", "town"]])


def test_counts_ordinals_and_bounds_are_honoured():
    many = np.round(np.exp(X[:, 0]))
    counts = CARDRegressor(**QUICK, response="count").fit(X, many)
    draws = counts.sample(X, 20, random_state=0)
    assert (draws == np.round(draws)).all()
    assert draws.min() >= 0
    assert (draws == 0).mean() == pytest.approx((many == 0).mean(), abs=0.15)
    assert counts.predict_distribution(X).pdf(np.tile(np.arange(200.0), (80, 1))).sum(1) == pytest.approx(1.0)
    levels = np.array([1.0, 2.0, 5.0])[np.digitize(X[:, 0], [-0.5, 0.5])]
    ordinal = CARDRegressor(**QUICK, response="ordinal").fit(X, levels)
    assert set(np.unique(ordinal.sample(X, 20, random_state=0))) <= {1.0, 2.0, 5.0}
    share = CARDRegressor(**QUICK, bounds=(0, 1)).fit(X, 1 / (1 + np.exp(-Y)))
    interval = share.predict_interval(X, 0.99)
    assert interval.min() >= 0
    assert interval.max() <= 1


SHAPED = {
    "bounds": {"bounds": (-100, 100)},
    "count": {"response": "count"},
    "split": {"conformal": "split"},
    "cv+": {"conformal": "cv+"},
    "draws": {"sampler": "multistep", "n_draws": 20},
}


@pytest.mark.parametrize("how", SHAPED)
def test_a_response_of_one_column_in_a_table_is_predicted_as_such(how):
    y = np.round(np.abs(Y))
    flat, tall = (CARDRegressor(**QUICK, **SHAPED[how]).fit(X, each) for each in (y, y[:, None]))
    for name, more in (("predict", ()), ("predict_interval", (0.8,)), ("predict_quantiles", ([0.1, 0.9],))):
        one, other = (getattr(model, name)(X, *more) for model in (flat, tall))
        assert np.array_equal(one[..., None], other), name
    assert np.array_equal(flat.sample(X, 5, 0)[..., None], tall.sample(X, 5, 0))
    parts = tall.predict_distribution(X)
    assert parts.std().shape == parts.decompose().epistemic.shape == (80, 1)


def test_draws_are_the_same_with_and_without_a_promise_about_intervals():
    how = {**QUICK, "sampler": "multistep", "n_draws": 30}
    promised = CARDRegressor(**how, conformal="split").fit(X, Y)
    draws = promised.sample(X, 30, random_state=1)
    assert len(np.unique(draws[:, 0])) == 30
    assert draws[:, :10] == pytest.approx(promised.sample(X[:10], 30, random_state=1), abs=1e-5)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"bounds": 5}, "bounds must be"),
        ({"bounds": (0, 1, 2)}, "bounds must be"),
        ({"bounds": ("a", "b")}, "bounds must be"),
        ({"mean": LinearRegression().fit(X, Y)}, "reads X as it is"),
        ({"cv": RepeatedKFold(n_splits=3, n_repeats=2)}, "without repeats"),
    ],
)
def test_what_would_go_wrong_in_silence_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        CARDRegressor(**QUICK | how).fit(X, Y)


def test_ordinal_levels_are_of_one_target():
    with pytest.raises(ValueError, match="for one target"):
        CARDRegressor(**QUICK, response="ordinal").fit(X, np.round(BOTH))


def test_a_fitted_regressor_speaks_the_users_units():
    f = LinearRegression().fit(X, 1000 + 50 * Y)
    model = CARDRegressor(**QUICK, mean=f, standardise_x=False).fit(X, 1000 + 50 * Y)
    assert model.predict_mean_model(X).mean() == pytest.approx(f.predict(X), rel=1e-5)
    assert model.predict(X) == pytest.approx(f.predict(X), abs=60)


def test_gaps_are_refused_where_nothing_encodes_them():
    holed = X.copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        CARDRegressor(**QUICK, standardise_x=False).fit(holed, Y)


@pytest.mark.parametrize("cv", [3, GroupKFold(3)])
def test_groups_stay_whole_around_a_mean_that_has_nothing_to_learn(cv, monkeypatch):
    folds = []

    def learn(x, f, r, fold, *rest):
        folds.append(fold)
        return fit_unit_denoiser(x, f, r, fold, *rest)

    monkeypatch.setattr("card.fit.fit_unit_denoiser", learn)
    groups = np.arange(80) // 8
    CARDRegressor(**QUICK | {"cv": cv}, mean="zero").fit(X, Y, groups=groups)
    assert folds[0].max() == 2
    assert all(len(np.unique(folds[0][groups == g])) == 1 for g in range(10))


def test_pairs_of_rows_may_come_from_a_generator():
    pairs = [(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))]
    one, other = (
        CARDRegressor(**QUICK | {"cv": cv, "repeats": 2}, mean=LinearRegression()).fit(X, Y)
        for cv in (pairs, (pair for pair in pairs))
    )
    assert np.array_equal(one.predict(X), other.predict(X))


def test_outside_the_data_the_epistemic_part_grows_and_stays_large():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 3))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(200)
    model = CARDRegressor(random_state=0).fit(x, y)
    ends = np.array([[far, 0, 0] for far in (2, -2, 10, -10, 1e3, -1e3)])
    known, outside = (model.predict_distribution(each).decompose() for each in (x, ends))
    assert np.sqrt(outside.epistemic).min() > 3 * np.sqrt(known.epistemic).mean()
    assert np.abs(model.predict(ends)).max() < np.abs(y).max() + np.ptp(y)


def test_between_clusters_of_rows_the_epistemic_part_grows():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-3, -1, 60), rng.uniform(1, 3, 60)])[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(120)
    model = CARDRegressor(random_state=0).fit(x, y)
    known, gap = (
        model.predict_distribution(np.linspace(*ends, 30)[:, None]).decompose()
        for ends in ((-2.8, -1.2), (-0.5, 0.5))
    )
    assert np.sqrt(gap.epistemic).mean() > 1.5 * np.sqrt(known.epistemic).mean()


HOSTILE = {
    "a constant far from zero": (X, np.full(80, 1e12)),
    "twenty rows": table(20),
    "one column": table(60, 1),
    "five hundred columns": table(60, 500),
    "duplicates": (np.repeat(X[:20], 4, 0), np.repeat(Y[:20], 4)),
    "cauchy noise": (X, X[:, 0] + np.random.default_rng(2).standard_cauchy(80)),
    "twelve orders of magnitude": (X, 10.0 ** (6 * np.tanh(X[:, 0]))),
    "constant y": (X, np.full(80, 3.5)),
    "perfectly predictable y": (X, 2.0 * X[:, 0]),
    "constant columns": (np.column_stack([X, np.ones(80), np.zeros(80)]), Y),
    "huge y": (X, 1e300 * Y / np.abs(Y).max()),
    "tiny y": (X, 1e-300 * Y),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_fits_and_gives_sane_intervals(name):
    features, response = HOSTILE[name]
    d = CARDRegressor(**QUICK).fit(features, response).predict_distribution(features)
    interval = d.interval(0.9)
    assert np.isfinite(interval).all()
    assert (interval[:, 0] <= interval[:, 1]).all()
    assert np.isfinite(d.mean()).all()
    assert not np.isnan(d.logpdf(response)).any()
    inside = ((interval[:, 0] <= response) & (response <= interval[:, 1])).mean()
    assert inside > 0.6 or name in {"constant y", "perfectly predictable y"}


def test_constant_y_is_predicted_as_itself():
    reg = CARDRegressor(**QUICK).fit(X, np.full(80, 3.5))
    assert np.allclose(reg.predict_interval(X), 3.5, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CARDRegressor().fit(X, np.where(Y > 1, np.nan, Y)), "Input y contains NaN"),
        (lambda: CARDRegressor().fit(X, np.where(Y > 1, np.inf, Y)), "Input y contains infinity"),
        (lambda: CARDRegressor().fit(X[:3], Y[:3]), "minimum of 4 is required"),
        (lambda: CARDRegressor().fit(X, Y[:-1]), "inconsistent numbers of samples"),
        (lambda: CARDRegressor().fit(X, None), "requires y to be passed"),
        (lambda: CARDRegressor(n_draws=0).fit(X, Y), "n_draws"),
        (lambda: CARDRegressor(mean="median").fit(X, Y), "mean"),
        (lambda: CARDRegressor(sampler="ancestral").fit(X, Y), "needs denoiser='table'"),
        (lambda: CARDRegressor(denoiser="table").fit(X, Y), "sampler='flow' needs denoiser='unit'"),
        (lambda: CARDRegressor(bounds=(2, 1)).fit(X, Y), "low < high"),
        (lambda: CARDRegressor(bounds=(0, 1)).fit(X, Y), "widen them"),
        (lambda: CARDRegressor(response="count").fit(X, Y), "whole numbers of 0 or more"),
        (lambda: CARDRegressor.from_recipe("papre"), "recipe must be one of modern, paper"),
    ],
)
def test_bad_fits_are_refused_in_plain_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_requests_are_refused_in_plain_words(modern):
    with pytest.raises(NotFittedError):
        CARDRegressor().predict(X)
    with pytest.raises(ValueError, match="expecting 3 features"):
        modern.predict(X[:, :2])
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        modern.predict_quantiles(X, [0.5, 1.5])
    with pytest.raises(ValueError, match="n_draws"):
        modern.sample(X, 0)


def test_an_interrupted_fit_leaves_the_estimator_unfitted(monkeypatch):
    import card.fit

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    reg = CARDRegressor(**QUICK).fit(X, Y)
    monkeypatch.setattr(card.fit, "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        reg.fit(X, Y)
    with pytest.raises(NotFittedError):
        reg.predict(X)


def test_a_rating_keeps_the_mean_of_f_and_a_measurement_does_not():
    levels = np.clip(np.round(Y / 3), -1, 1)
    rating = CARDRegressor(**QUICK).fit(X, levels)
    assert np.abs(rating.predict(X) - rating.predict_mean_model(X).mean()).max() < 1e-3
    measured = CARDRegressor(**QUICK).fit(X, Y)
    assert np.abs(measured.predict(X) - measured.predict_mean_model(X).mean()).max() > 1e-2


def test_a_rating_around_a_mean_of_the_users_is_learned_whole():
    levels = np.clip(np.round(Y / 3), -1, 1)
    reg = CARDRegressor(**QUICK | {"epochs": 60}, mean="zero").fit(X, levels)
    assert np.corrcoef(reg.predict(X), levels)[0, 1] > 0.5
