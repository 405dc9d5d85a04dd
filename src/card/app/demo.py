"""card demo: what the other commands do, on packaged data, in about two minutes.

Two fits, their scores, predictions of single rows, one of them as a density, a picture, and a report.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from card.app.common import Terminal, counted, table
from card.app.evaluate import predicted
from card.app.explain import sketch
from card.evaluation import Estimate, Rows, assess_rows, score
from card.plots import BLUE, ORANGE, intervals_vs_observed, new_figure
from card.report import build_report
from card.report.regression import choose_rows
from card.writing import atomic, require_free

SHOWN = ("rmse", "crps", "nll", "picp", "qice")
TOY = "inverse_sinusoidal"
N_ROWS = 4  # predicted for all to see


@dataclass(frozen=True)
class Fitted:
    """One of the two examples, fitted and scored."""

    title: str
    model: Any
    X: pd.DataFrame  # rows to test on
    rows: Rows
    scores: dict[str, dict[str, Estimate]]


def demo(
    out: Path, force: bool, seed: int, terminal: Terminal, settings: dict[str, Any] | None = None
) -> None:
    """Fit, score, predict, explain, draw and report on Concrete and a toy with up to three modes."""
    from card.datasets import load_uci, make_toy

    report = out.with_suffix(".html")
    for path in (out, report):
        require_free(path, force)
    new_figure()  # without matplotlib there is no picture: better said now than after two fits
    data, points = load_uci("concrete"), make_toy(TOY, 2500, random_state=seed)
    toy = _run("toy", points.split(), ["x"], "y", seed, terminal, settings or {})
    concrete = _run(
        "Concrete", data.split(0), data.feature_names, data.target_name, seed, terminal, settings or {}
    )
    with atomic(out, force) as part:
        _picture(toy, concrete).savefig(part, format="png", dpi=140)
    with atomic(report, force) as part:
        part.write_text(_report(concrete, terminal), encoding="utf-8")
    _show(toy, concrete, out, report, terminal)


def _run(
    title: str, split: Any, columns: Any, target: str, seed: int, terminal: Terminal, settings: dict[str, Any]
) -> Fitted:
    from card import CARDRegressor

    terminal.note(f"{title}: {len(split.y_train)} rows to fit, {len(split.y_test)} to test")
    X, X_test = (pd.DataFrame(x, columns=list(columns)) for x in (split.X_train, split.X_test))
    model = CARDRegressor(random_state=seed, verbose=terminal.watched, **settings)
    model.fit(X, pd.Series(split.y_train, name=target))
    rows = {name: assess_rows(split.y_test, d) for name, d in predicted(model, X_test).items()}
    return Fitted(title, model, X_test, rows["card"], {name: score(r) for name, r in rows.items()})


def _report(concrete: Fitted, terminal: Terminal) -> str:
    with counted(terminal, "report", concrete.X.shape[1]) as advance:
        return build_report(
            concrete.model,
            concrete.X,
            concrete.rows.y,
            title="Concrete: how far can the predictions be trusted?",
            source="The model of card demo, on test rows of the UCI set Concrete.",
            advance=advance,
        )


def _show(toy: Fitted, concrete: Fitted, out: Path, report: Path, terminal: Terminal) -> None:
    scores = {e.title: e.scores for e in (toy, concrete)}
    lines = [
        (title, "CARD" if method == "card" else method, *(f"{found[m].value:.3g}" for m in SHOWN))
        for title, methods in scores.items()
        for method, found in methods.items()
    ]
    rows = concrete.rows[:N_ROWS]
    first = pd.DataFrame({"mean": rows.mean, "lower": rows.lower, "upper": rows.upper, "observed": rows.y})
    row = int(choose_rows(toy.model.predict_distribution(toy.X), most=1)[1][0])
    said = {
        title: {c: {m: asdict(found[m]) for m in SHOWN} for c, found in methods.items()}
        for title, methods in scores.items()
    }
    terminal.result(
        table(("data", "method", *SHOWN), lines, 2, "Scores on test rows (card evaluate)"),
        said | {"predictions": first.to_dict("records"), "picture": str(out), "report": str(report)},
    )
    if terminal.json:
        return
    cells = first.map("{:.3g}".format).to_numpy().tolist()
    terminal.out.print()
    terminal.out.print(table(list(first), cells, 0, "Concrete, 95 % intervals of some rows (card predict)"))
    x = float(toy.X["x"].iloc[row])
    density = sketch(toy.model.predict_distribution(toy.X[row : row + 1]))
    endings = [f"picture in {out}", f"report in {report} (card report)"]
    text = ["", f"The toy at x = {x:.2f}: one x, several answers (card explain)", *density, "", *endings]
    terminal.out.print("\n".join(text), markup=False, soft_wrap=True)


def _picture(toy: Fitted, concrete: Fitted) -> Any:
    figure = new_figure(13, 5.4)
    left, right = figure.subplots(1, 2)
    _draws(toy, left)
    rows = concrete.rows
    intervals_vs_observed(rows.y, rows.mean, rows.lower, rows.upper, ax=right)
    inside = 100 * np.mean((rows.lower <= rows.y) & (rows.y <= rows.upper))
    right.set_title(f"Concrete: 95 % intervals held {inside:.0f} % of the test rows", loc="left", pad=24)
    right.set_ylabel("compressive strength, MPa")
    return figure


def _draws(toy: Fitted, ax: Any) -> None:
    """One draw for each of many x, over the truth."""
    x = toy.X["x"].to_numpy()
    grid = pd.DataFrame({"x": np.linspace(x.min(), x.max(), 1200)})
    draws = toy.model.sample(grid, n_draws=2, random_state=0)
    ax.scatter(x, toy.rows.y, s=26, color=ORANGE, alpha=0.75, lw=0, label="truth (test rows)")
    for i, draw in enumerate(draws):
        ax.scatter(grid["x"], draw, s=4, color=BLUE, alpha=0.5, lw=0, label=None if i else "draws of CARD")
    mean = toy.model.predict_mean_model(grid).mean()
    ax.plot(grid["x"], mean, color="black", lw=1.4, label="f alone: the mean")
    ax.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.1, ncols=3, markerscale=1.5
    )
    ax.set_title("One x, up to three answers: draws follow all of them", loc="left", pad=24)
    ax.set_xlabel("x")
    ax.set_ylabel("y")
    ax.spines[["top", "right"]].set_visible(False)
