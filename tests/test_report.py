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
from card.report import build_report
from card.report.effects import column_effects
from card.report.regression import choose_rows, verdict

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
        "Data",
        "Headline",
        "Reliability",
        "Predictions",
        "Certain and uncertain rows",
        "Noise and doubt",
        "Columns",
    ]
    assert page.count("<figure>") == 8


def test_the_report_on_classes_says_who_should_look_at_what(class_page):
    assert "Who should look at what" in class_page
    assert page_text(class_page).count("errors among the rest") == 1
    assert class_page.count("<figure>") == 4


def page_text(page):
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


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


def test_several_targets_have_sections_of_their_own():
    frame = houses(80)
    model = CARDRegressor(**{**QUICK, "n_draws": 40}).fit(
        frame.drop(columns="price"), np.column_stack([frame["price"], -frame["price"]])
    )
    y = np.column_stack([frame["price"], -frame["price"]])
    page = build_report(model, frame.drop(columns="price"), y)
    assert [h for h in re.findall(r"<h2>(.*?)</h2>", page) if h.startswith("Reliability")] == [
        "Reliability: y0",
        "Reliability: y1",
    ]
