"""The report is one file, honest about the numbers, and opens in a real browser without complaint."""

import html
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from gaussians import Gaussians
from houses import QUICK, houses
from labels import Labels

from card import CARDRegressor
from card.evaluation import score_classes
from card.report import build_report, classification
from card.report.data import data_section
from card.report.effects import column_effects
from card.report.regression import choose_rows, verdict
from card.report.shared import parts_section

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def page():
    train, test = houses(), houses(50, seed=1)
    model = CARDRegressor(**QUICK).fit(train.drop(columns="price"), train["price"])
    return build_report(
        model, test.drop(columns="price"), test["price"].to_numpy(), source="<b>rows</b> & such"
    )


@pytest.fixture(scope="module")
def class_page():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(0, 2, 200), "b": rng.normal(size=200)})
    y = np.where(rng.random(200) < 1 / (1 + np.exp(-X["a"])), "yes", "no")
    return build_report(Labels(), X, y)


def test_the_report_has_every_section(page):
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Headline",
        "Reliability",
        "Predictions",
        "Certain and uncertain rows",
        "Noise and doubt",
        "Columns",
        "Data",
    ]
    assert re.findall(r"<figure><h3>(.*?)</h3>", page) == [
        "Where observed values fell",
        "Promised and observed coverage",
        "Ten equally probable bins",
        "95 % intervals and observed values",
        "Predicted densities",
        "Noise and doubt, row by row",
        "Effect on the mean",
        "Effect on the spread",
    ]


def test_the_report_begins_with_what_the_table_holds(page):
    lead = page_text(page.split("<nav>")[0].split("</h1>")[1])
    assert "50 rows with a known response; 5 columns to predict from" in lead
    assert "(2 of numbers, 1 of true or false, 1 of categories, 1 of dates)" in lead
    assert "% of their cells are missing" in lead


def test_every_metric_has_a_tile_with_its_meaning(page, class_page):
    for text, names in (
        (page, ["rmse", "crps", "nll", "picp", "piw", "qice"]),
        (class_page, ["accuracy", "nll", "brier", "ece", "aurc", "pavpu"]),
    ):
        assert re.findall(r'<div class="tile"><h3>(.*?)</h3>', text) == names
        assert text.count('<p class="meaning">') == len(names)
        assert "mean model alone" in text


def test_the_report_on_classes_says_who_should_look_at_what(class_page):
    assert re.findall(r"<h2>(.*?)</h2>", class_page) == [
        "Headline",
        "Reliability",
        "Who should look at what",
        "Predictions",
        "Certain and uncertain rows",
        "Noise and doubt",
        "Columns",
        "Data",
    ]
    assert page_text(class_page).count("errors among the rest") == 1
    assert re.findall(r"<figure><h3>(.*?)</h3>", class_page) == [
        "Confidence and accuracy",
        "Errors among the rows answered",
        "Rows with more than one answer",
        "How far the draws spread",
        "Noise and doubt, row by row",
        "Effect on the mean",
        "Effect on the spread",
    ]


def test_the_report_on_classes_counts_which_is_taken_for_which(class_page):
    cells = re.findall(r"<td[^>]*>(.*?)</td>", class_page.split("Which class is taken for which")[1])
    assert cells[0] == "no"
    assert cells[3] == "yes"
    assert sum(map(int, (*cells[1:3], *cells[4:6]))) == 200


def test_of_many_classes_the_mistakes_are_listed():
    classes = np.array([f"c{i}" for i in range(20)])
    y, label = classes[[0, 0, 1, 2]], classes[[3, 3, 1, 4]]
    text = page_text(classification._confusion(y, label, classes))
    assert " ".join(text.split()) == "Mistaken most often true predicted rows c0 c3 2 c2 c4 1"


@pytest.mark.parametrize(
    ("scale", "said"), [(1.0, "as sure as it should be"), (9.0, "too sure"), (0.1, "less sure than it might")]
)
def test_the_verdict_on_classes_tells_sure_from_too_sure(scale, said):
    rng = np.random.default_rng(0)
    a = rng.normal(0, 1.5, 2000)
    y = np.where(rng.random(2000) < 1 / (1 + np.exp(-a)), "yes", "no")
    p = 1 / (1 + np.exp(-scale * a))
    proba = np.column_stack([1 - p, p])
    scores = score_classes(y, proba, None, ["no", "yes"], n_resamples=20)
    assert said in classification.verdict(proba, scores)


def page_text(page):
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def test_effects_on_several_targets_are_told_apart():
    X = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0)})

    def summary(table):
        both = table[["a", "b"]].to_numpy()
        return both * [1, 100], both * 0

    effects = column_effects(summary, X)
    assert effects.of(0).mean[1] == effects.of(1).mean[0] == 0
    assert effects.of(1).mean[1] == pytest.approx(100 * effects.of(0).mean[0], rel=0.5)


def test_the_report_loads_nothing_from_anywhere(page, class_page):
    for text in (page, class_page):
        assert re.findall(r'(?:src|href)="(?!data:|#)', text) == []
        assert "<script" not in text
        assert "url(" not in text.split("</style>")[0]


def test_text_from_outside_is_escaped(page):
    assert "&lt;b&gt;rows&lt;/b&gt; &amp; such" in page


def test_column_names_cannot_run_code():
    frame = houses(60).rename(columns={"town": "<script>alert(1)</script>"})
    model = CARDRegressor(**QUICK).fit(frame.drop(columns="price"), frame["price"])
    page = build_report(model, frame.drop(columns="price"), frame["price"].to_numpy())
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("which", ["page", "class_page"])
def test_a_browser_shows_all_figures_without_errors_or_sideways_scrolling(request, tmp_path, which, width):
    """The page is shown in a frame of that width; a probe tells what the browser made of it."""
    probe = """<script>addEventListener('load', () => { const images = [...document.images];
      parent.postMessage([images.length, images.filter(i => i.naturalWidth > 0).length,
        document.documentElement.scrollWidth, innerWidth], '*'); });</script></body>"""
    text = request.getfixturevalue(which)
    (tmp_path / "report.html").write_text(text.replace("</body>", probe), encoding="utf-8")
    (tmp_path / "frame.html").write_text(
        "<script>onmessage = e => { document.title = 'probe ' + e.data }</script>"
        f"<iframe src='report.html' style='border:0' width='{width}' height='900'></iframe>"
    )
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path}/p", "--window-size=1600,1000"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "CONSOLE" not in done.stderr
    found, loaded, content, inner = map(
        int, re.search(r"<title>probe (.*?)</title>", done.stdout)[1].split(",")
    )
    assert found == loaded == text.count("<figure>")
    assert content <= inner == width


def test_the_verdict_tells_narrow_from_honest_from_wide():
    from card.evaluation import assess_rows, score

    centre = np.zeros(400)
    y = Gaussians(centre, 1.0).sample(1, 0)[0]
    for scale, word in ((0.5, "too narrow"), (1.0, "as promised"), (3.0, "wider than they need be")):
        rows = assess_rows(y, Gaussians(centre, scale))
        assert word in verdict(rows, score(rows, n_resamples=2))


def test_rows_with_several_peaks_come_first():
    law = Gaussians(np.zeros(6), np.ones(6), np.array([0, 0, 4.0, 0, 6.0, 0]))
    peaks, picks = choose_rows(law, most=4)
    np.testing.assert_array_equal(peaks, [1, 1, 2, 1, 2, 1])
    assert set(picks[:2]) == {2, 4}
    assert len(picks) == 4


def test_shown_shapes_differ_from_one_another():
    centres = np.array([0.0] * 30 + [9.0] * 2)
    _, picks = choose_rows(Gaussians(centres, 1.0, 4.0), most=2)
    assert sorted(centres[picks]) == [0, 9]


def test_effects_are_zero_for_a_column_that_is_not_used_and_exact_for_one_that_is():
    X = pd.DataFrame(
        {"used": np.tile([0.0, 1.0], 50), "idle": np.arange(100.0), "noisy": np.tile([1.0, 3.0], 50)}
    )

    def summary(table):
        return 10 * table["used"].to_numpy(), table["noisy"].to_numpy()

    effects = column_effects(summary, X)
    assert effects.names == ["used", "idle", "noisy"]
    assert effects.mean[1] == effects.spread[1] == effects.mean[2] == effects.spread[0] == 0
    assert effects.mean[0] == pytest.approx(5, abs=1.5)
    assert effects.spread[2] == pytest.approx(1, abs=0.3)


def test_dates_are_ordered_as_dates_however_they_are_written():
    frame = pd.DataFrame({"sold": ["31.1.2024", "5.12.2023", "17.6.2023"]})
    assert "2023-06-17 to 2024-01-31" in data_section(frame, {}, {})
    frame = pd.DataFrame({"sold": pd.to_datetime(["2024-01-31 12:30", "2023-12-05 08:00"])})
    assert "2023-12-05 08:00 to 2024-01-31 12:30" in data_section(frame, {}, {})


def test_numbers_that_are_codes_are_counted_not_averaged():
    frame = pd.DataFrame({"zip": [50667.0, 50667.0, 89073.0]})
    assert "2 levels: 50667 (2), 89073 (1)" in data_section(frame, {}, {"zip": "category"})
    assert "median 50,667" in data_section(frame, {}, {"zip": "number"})


def test_doubt_as_small_as_rounding_is_none():
    numbers = np.arange(1, 9)
    said = parts_section(np.full(8, 0.3), np.full(8, 1e-16), numbers, "entropy", entropy=True)
    assert "agree on every row" in said
    assert "1e-16" not in said
    assert "<figure>" in parts_section(np.full(8, 0.3), np.full(8, 1e-3), numbers, "entropy", entropy=True)


def test_who_defers_better_is_said_only_where_the_rows_can_tell():
    rng = np.random.default_rng(0)
    correct, noise = rng.random(500) < 0.8, rng.random(500)
    good = (correct, correct + noise)
    assert "lets fewer errors pass" in classification.gain(good, (correct, noise))
    assert "lets more errors pass" in classification.gain((correct, noise), good)
    assert "too few to tell the two apart" in classification.gain(good, (correct, correct + 0.99 * noise))


def test_several_targets_have_sections_of_their_own():
    frame = houses(80)
    model = CARDRegressor(**{**QUICK, "n_draws": 40}).fit(
        frame.drop(columns="price"), np.column_stack([frame["price"], -frame["price"]])
    )
    y = np.column_stack([frame["price"], -frame["price"]])
    page = build_report(model, frame.drop(columns="price"), y)
    assert page.count("<figure>") == 2 * 8
    assert re.findall(r'<div class="tile"><h3>(.*?)</h3>', page).count("nll") == 1
    assert [h for h in re.findall(r"<h2>(.*?)</h2>", page) if h.startswith("Reliability")] == [
        "Reliability: y0",
        "Reliability: y1",
    ]
