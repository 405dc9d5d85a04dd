"""Pictures of what predictions are made of: noise and doubt, and the columns behind them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from card.plots.style import BLUE, GREY, axes, legend_above, shorten, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def uncertainty_parts(
    aleatoric: ArrayLike, epistemic: ArrayLike, *, entropy: bool = False, ax: "Axes | None" = None
) -> "Axes":
    """Noise that no more data would remove, against doubt that more data would; one point a row.

    Variances are drawn as standard deviations; with `entropy`, nats are drawn as they are.
    """
    ax = axes(ax)
    a, e = (np.asarray(part, dtype=float) for part in (aleatoric, epistemic))
    a, e = (a, e) if entropy else (np.sqrt(a), np.sqrt(e))
    ax.scatter(a, e, s=16, color=BLUE, alpha=0.5, lw=0)
    top = 1.05 * float(max(a.max(), e.max())) or 1.0
    ax.plot([0, top], [0, top], color=GREY, lw=1, ls=":", label="equal parts")
    ax.set_xlim(0, 1.05 * float(a.max()) or 1.0)
    ax.set_ylim(0, 1.15 * float(e.max()) or 1.0)
    legend_above(ax)
    unit = "nats" if entropy else "std"
    return tidy(ax, f"noise in the data (aleatoric {unit})", f"doubt of the model (epistemic {unit})")


def column_effects(
    names: Sequence[str], effects: ArrayLike, *, label: str = "effect", ax: "Axes | None" = None
) -> "Axes":
    """Horizontal bars, the largest effect on top."""
    ax = axes(ax)
    effects = np.asarray(effects, dtype=float)
    order = np.argsort(effects, kind="stable")
    ax.barh(range(len(order)), effects[order], color=BLUE, height=0.7 if len(order) > 2 else 0.4)
    ax.set_yticks(range(len(order)), [shorten(names[i]) for i in order])
    ax.set_ylim(-0.6, len(order) - 0.4)
    ax.locator_params(axis="x", nbins=5)
    return tidy(ax, label, "")
