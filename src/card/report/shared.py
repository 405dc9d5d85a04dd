"""Sections that predicted numbers and predicted classes have alike."""

import numpy as np

from card import plots
from card.evaluation import MEANING, Estimate
from card.report import html
from card.report.effects import Effects

ROUNDING = 1e-9  # of noise: a doubt this small is an error of arithmetic
NAMES = {"nll_proba": "nll"}  # as a person would say it
UNSHOWN = {"nll_paper", "mce"}  # of use beside the paper's tables, or with very many rows


def metric_tiles(scores: dict[str, dict[str, Estimate]]) -> str:
    """Each metric, the mean model's beside it, and what it means."""
    alone = scores.get("f alone", {})
    return html.tiles(
        (
            NAMES.get(name, name),
            str(estimate),
            f"mean model alone: {alone[name]}" if name in alone else "",
            MEANING[name][0].upper() + MEANING[name][1:] + ".",
        )
        for name, estimate in scores["card"].items()
        if name not in UNSHOWN
    )


def parts_section(
    aleatoric: np.ndarray, epistemic: np.ndarray, numbers: np.ndarray, what: str, entropy: bool = False
) -> str:
    """Noise and doubt: how much of each, and the rows with most doubt."""
    if epistemic.sum() <= ROUNDING * aleatoric.sum():
        return html.text(
            f"All of the predicted {what} is noise that these columns cannot explain: the members of the "
            "model agree on every row, or there is only one."
        )
    share = 100 * float(epistemic.sum() / max((aleatoric + epistemic).sum(), 1e-300))
    some = "Less than 1 %" if share < 1 else f"{share:.0f} %"
    root = (lambda v: v) if entropy else np.sqrt
    rows = np.argsort(-epistemic, kind="stable")[:8]
    cells = [(numbers[i], *(html.number(float(root(p[i]))) for p in (aleatoric, epistemic))) for i in rows]
    return html.text(
        f"{some} of the predicted {what} is doubt of the model, which more data of the same kind would "
        "reduce; the rest is noise that these columns cannot explain."
    ) + html.columns(
        html.figure(
            plots.uncertainty_parts(aleatoric, epistemic, entropy=entropy, ax=html.canvas()),
            "Noise and doubt, row by row",
            f"A point a row, {'in nats of entropy' if entropy else 'as standard deviations'}. Rows high up "
            "are those on which the members of the model disagree, as they do on rows unlike what they saw.",
        ),
        "<h3>Most doubt of the model</h3>" + html.table(["row", "noise", "doubt"], cells, numeric=range(3)),
    )


def effects_section(effects: Effects, kinds: tuple[tuple[str, str, str], ...], most: int = 12) -> str:
    """Bars for the two effects; a kind is (heading, what moves, unit)."""
    items = []
    for values, (heading, what, unit) in zip((effects.mean, effects.spread), kinds, strict=True):
        top = np.argsort(-values, kind="stable")[:most]
        ax = html.canvas(max(1.6, 0.7 + 0.27 * len(top)))
        plots.column_effects([effects.names[i] for i in top], values[top], label=unit, ax=ax)
        few = f" The {most} columns with the largest effect." if len(values) > most else ""
        caption = f"How far {what} moves, on average, when the column is shuffled among the rows.{few}"
        items.append((ax, heading, caption))
    return html.text("What the model uses; not necessarily what causes what.") + html.figures(items)
