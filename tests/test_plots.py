"""Each picture shows the numbers it claims to show."""

import sys

import numpy as np
import pytest
from gaussians import Gaussians
from scipy.stats import norm

from card import plots


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_fan_chart_draws_the_median_along_x_and_a_band_for_each_coverage():
    x = np.array([3.0, 1.0, 2.0])
    ax = plots.fan_chart(x, Gaussians(10 * x, 1.0), y=10 * x, coverages=[0.5, 0.9])
    (median,) = ax.lines
    np.testing.assert_allclose(median.get_xydata(), [[1, 10], [2, 20], [3, 30]])
    wide, narrow, points = ax.collections
    edge = norm.ppf(0.95)
    assert wide.get_paths()[0].get_extents().ymin == pytest.approx(10 - edge)
    assert wide.get_paths()[0].get_extents().ymax == pytest.approx(30 + edge)
    assert narrow.get_paths()[0].get_extents().ymax == pytest.approx(30 + norm.ppf(0.75))
    np.testing.assert_array_equal(points.get_offsets(), np.column_stack([x, 10 * x]))


def test_density_draws_the_predicted_density_and_marks_the_observed_value():
    ax = plots.density(Gaussians([0.0, 5.0], [1.0, 2.0]), row=1, y=9.0)
    curve, mean, observed = ax.lines
    t, p = curve.get_data()
    np.testing.assert_allclose(p, norm.pdf(t, 5, 2))
    assert np.trapezoid(p, t) == pytest.approx(0.996, abs=3e-3)
    assert mean.get_xdata()[0] == 5
    assert observed.get_xdata()[0] == 9


def test_ridges_have_equal_heights_and_the_first_row_is_on_top():
    ax = plots.density_ridge(Gaussians([0.0, 1.0, 2.0], [1.0, 0.2, 3.0]), y=[0, 1, 2], labels=list("abc"))
    ridges = [line.get_ydata() for line in ax.lines[0:6:2]]
    np.testing.assert_allclose([r.max() - base for r, base in zip(ridges, (2, 1, 0), strict=True)], 1.6)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c", "b", "a"]


def test_pit_bars_count_every_row(rng):
    values = rng.random(1000)
    ax = plots.pit(values, n_bins=10)
    assert [bar.get_height() for bar in ax.containers[0]] == np.histogram(values, 10, (0, 1))[0].tolist()


def test_coverage_curve_is_the_share_of_rows_inside_the_central_interval():
    values = norm.cdf(np.random.default_rng(0).normal(0, 2, 4000))  # a forecaster whose std is half the truth
    ax = plots.coverage_curve(values)
    nominal, observed = ax.lines[-1].get_data()
    at_90 = observed[np.isclose(nominal, 0.9)][0]
    assert at_90 == pytest.approx(2 * norm.cdf(norm.ppf(0.95) / 2) - 1, abs=0.02)
    assert observed[-1] == 1


def test_qice_bars_are_percent():
    ax = plots.qice_bars([0.2, 0.3, 0.5], n_rows=50)
    assert [bar.get_height() for bar in ax.containers[0]] == pytest.approx([20, 30, 50])


def test_misses_stand_out_in_the_picture_of_intervals():
    y, mean = np.array([0.0, 5.0, 2.0]), np.array([0.0, 1.0, 2.0])
    ax = plots.intervals_vs_observed(y, mean, mean - 1, mean + 1)
    _, inside, outside = ax.collections
    np.testing.assert_array_equal(inside.get_offsets(), [[0, 0], [2, 2]])
    np.testing.assert_array_equal(outside.get_offsets(), [[1, 5]])


def test_a_long_table_is_thinned_evenly():
    y = np.arange(1000.0)
    ax = plots.intervals_vs_observed(y, y, y - 1, y + 1, max_rows=11)
    shown = ax.collections[1].get_offsets()[:, 1]
    assert len(shown) == 11
    assert (shown[0], shown[-1]) == (0, 999)


def test_reliability_points_are_the_bins_with_rows():
    proba = np.array([[0.95, 0.05], [0.95, 0.05], [0.35, 0.65]])
    ax = plots.reliability_diagram(np.array([0, 1, 1]), proba)
    np.testing.assert_allclose(ax.collections[-1].get_offsets(), [[0.65, 1.0], [0.95, 0.5]])


def test_risk_coverage_ends_at_the_error_rate():
    ax = plots.risk_coverage([True, True, False, True], [0.9, 0.8, 0.2, 0.7])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0, 0, 0, 25])


def test_parts_are_drawn_as_standard_deviations():
    ax = plots.uncertainty_parts([4.0, 9.0], [1.0, 0.0])
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[2, 1], [3, 0]])


def test_the_largest_effect_is_on_top():
    ax = plots.column_effects(["a", "b", "c"], [1.0, 3.0, 2.0])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "c", "b"]


def test_every_picture_draws_on_the_axes_it_is_given():
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert plots.pit([0.1, 0.9], ax=ax) is ax


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'card-diffusion\[plots\]'"):
        plots.pit([0.5])


def test_the_most_probable_class_is_on_top_and_the_observed_one_stands_out():
    ax = plots.class_probabilities(["a", "b", "c"], [0.2, 0.7, 0.1], widths=[0.4, 0.1, 0.3], observed="a")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c", "a", "b"]
    bars = ax.containers[0]
    assert [bar.get_width() for bar in bars] == [0.1, 0.2, 0.7]
    assert bars[1].get_facecolor() != bars[0].get_facecolor() == bars[2].get_facecolor()
    assert [text.get_text() for text in ax.texts] == ["PIW 0.3", "PIW 0.4", "PIW 0.1"]


def test_of_a_thousand_classes_the_likeliest_are_drawn():
    p = np.arange(1000) / np.arange(1000).sum()
    ax = plots.class_probabilities(np.arange(1000), p, max_classes=3)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["997", "998", "999"]


def test_shares_of_a_row_fill_its_bar_and_the_true_class_has_a_dot():
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    ax = plots.class_shares(p, ["a", "b", "c"], labels=["first", "second"], y=["b", "b"])
    widths = np.array([[bar.get_width() for bar in bars] for bars in ax.containers])
    np.testing.assert_allclose(widths.sum(axis=0), 1)
    dots = np.concatenate([c.get_offsets() for c in ax.collections])
    np.testing.assert_allclose(dots[dots[:, 1].argsort()], [[0.35, 0], [0.15, 1]])
    assert ax.get_yticklabels()[0].get_text() == "first"


def test_classes_beyond_the_fifth_are_drawn_together():
    ax = plots.class_shares(np.full((1, 10), 0.1), np.arange(10))
    assert ax.containers[-1][0].get_width() == pytest.approx(0.5)
    assert len(ax.containers) == 6


def test_widths_are_shares_of_the_right_and_of_the_wrong_rows():
    ax = plots.widths_by_outcome([0.1, 0.2, 0.9, 1.0], [True, True, False, False])
    for bars in ax.containers:
        assert sum(bar.get_height() for bar in bars) == pytest.approx(100)


def test_risk_is_drawn_beside_that_of_another():
    ax = plots.risk_coverage([True, False], [0.9, 0.8], other=([False, True], [0.9, 0.8]))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [100, 50])


def test_parts_of_entropy_are_drawn_as_they_are():
    ax = plots.uncertainty_parts([0.4, 0.9], [0.1, 0.0], entropy=True)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[0.4, 0.1], [0.9, 0]])


@pytest.mark.parametrize("width", [3.0, 4.1, 6.4, 12.0])
def test_a_legend_above_leaves_the_picture_its_width(width):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3), layout="constrained")
    y = np.arange(9.0)
    ax = plots.intervals_vs_observed(y, y, y - 1, y + 1, ax=figure.add_subplot())
    figure.canvas.draw()
    assert ax.get_position().width > 0.6


def whole_numbers():
    """Predictions of two rows of counts."""
    from card.distribution import Gaussian
    from card.responses import OnGrid

    return OnGrid(Gaussian(np.array([2.0, 5.0]), np.array([1.0, 0.8])))


def test_counts_are_drawn_as_bars_not_as_needles():
    counts = whole_numbers()
    t, p = plots.density_curves(counts)
    np.testing.assert_allclose((p * (t[1] - t[0])).sum(axis=1), 1, atol=0.02)
    for k in (1.0, 2.0, 5.0):
        here = np.abs(t - k) < 0.45
        np.testing.assert_allclose(p[:, here] - counts.pdf(np.full(2, k))[:, None], 0, atol=0.004)


def test_the_interval_of_a_count_is_shaded_by_whole_bars():
    ax = plots.density(whole_numbers(), row=0, coverage=0.6)
    shaded = ax.collections[0].get_paths()[0].vertices[:, 0]
    np.testing.assert_allclose([shaded.min(), shaded.max()], [0.5, 3.5], atol=0.05)


def test_a_count_with_one_hill_has_one_peak():
    from card.report.regression import choose_rows

    assert choose_rows(whole_numbers())[0].tolist() == [1, 1]
