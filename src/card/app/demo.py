"""card demo: two fits on packaged data, a table, and a picture, in less than two minutes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from card.app.common import Terminal
from card.app.evaluate import predicted
from card.evaluation import Estimate, Rows, assess_rows, score
from card.plots import BLUE, ORANGE, intervals_vs_observed
from card.writing import atomic, require_free

SHOWN = ("rmse", "crps", "nll", "picp", "qice")
TOY = "inverse_sinusoidal"


@dataclass(frozen=True)
class Fitted:
    """One of the two examples, fitted and scored."""

    title: str
    model: Any
    test: Any
    rows: Rows
    scores: dict[str, dict[str, Estimate]]


def demo(
    out: Path, force: bool, seed: int, terminal: Terminal, settings: dict[str, Any] | None = None
) -> None:
    """Fit, score and draw Concrete and a toy with up to three modes."""
    from card.datasets import load_uci, make_toy

    require_free(out, force)
    toy = make_toy(TOY, 2500, random_state=seed)
    examples = [
        _run(title, split, seed, terminal, settings or {})
        for title, split in (("toy", toy.split()), ("Concrete", load_uci("concrete").split(0)))
    ]
    with atomic(out, force) as part:
        _picture(examples, toy).savefig(part, format="png", dpi=140)
    table = Table(box=None, pad_edge=False)
    for heading in ("data", "method", *SHOWN):
        table.add_column(heading, justify="left" if heading in ("data", "method") else "right")
    for e in examples:
        for method, scores in e.scores.items():
            name = "CARD" if method == "card" else method
            table.add_row(e.title, name, *(f"{scores[m].value:.3g}" for m in SHOWN))
    data = {e.title: {c: {m: asdict(s[m]) for m in SHOWN} for c, s in e.scores.items()} for e in examples} | {
        "picture": str(out)
    }
    terminal.result(table, data)
    if not terminal.json:
        terminal.out.print(f"\npicture in {out}", markup=False, soft_wrap=True)


def _run(title: str, split: Any, seed: int, terminal: Terminal, settings: dict[str, Any]) -> Fitted:
    from card import CARDRegressor

    terminal.note(f"{title}: {len(split.y_train)} rows to fit, {len(split.y_test)} to test")
    model = CARDRegressor(random_state=seed, verbose=terminal.watched, **settings)
    model.fit(split.X_train, split.y_train)
    rows = {name: assess_rows(split.y_test, d) for name, d in predicted(model, split.X_test).items()}
    return Fitted(title, model, split, rows["card"], {name: score(r) for name, r in rows.items()})


def _picture(examples: list[Fitted], toy: Any) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draws(examples[0], left)
    concrete = examples[1].rows
    intervals_vs_observed(concrete.y, concrete.mean, concrete.lower, concrete.upper, ax=right)
    inside = 100 * np.mean((concrete.lower <= concrete.y) & (concrete.y <= concrete.upper))
    right.set_title(f"Concrete: 95 % intervals held {inside:.0f} % of the test rows", loc="left")
    right.set_ylabel("compressive strength, MPa")
    return figure


def _draws(example: Fitted, ax: Any) -> None:
    """One draw for each of many x, over the truth."""
    X_test, y_test = example.test.X_test, example.test.y_test
    grid = np.linspace(X_test.min(), X_test.max(), 1200)[:, None]
    draws = example.model.sample(grid, n_draws=2, random_state=0)
    ax.scatter(X_test[:, 0], y_test, s=26, color=ORANGE, alpha=0.75, lw=0, label="truth (test rows)")
    for i, draw in enumerate(draws):
        ax.scatter(grid[:, 0], draw, s=4, color=BLUE, alpha=0.5, lw=0, label=None if i else "draws of CARD")
    ax.plot(
        grid[:, 0],
        example.model.predict_mean_model(grid).mean(),
        color="black",
        lw=1.4,
        label="f alone: the mean",
    )
    ax.legend(frameon=False, loc="upper left", markerscale=2)
    ax.set_title("One x, up to three answers: draws follow all of them", loc="left")
    ax.set_xlabel("x")
    ax.set_ylabel("y")
    ax.spines[["top", "right"]].set_visible(False)
