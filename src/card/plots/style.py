"""What the pictures share: colours, a clean Axes, a legend that hides nothing.

Colours are Okabe and Ito's, told apart by colour-blind readers, and lightness differs too, for print.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
INK, GREY, PALE = "#222222", "#8a8f98", "#e6e8eb"


def new_figure(width: float = 6.4, height: float = 4.0) -> Any:
    """An empty figure of so many inches, or the advice to install matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'card-diffusion[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def axes(ax: "Axes | None") -> "Axes":
    return new_figure().add_subplot() if ax is None else ax


def tidy(ax: "Axes", x: str, y: str) -> "Axes":
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def legend_above(ax: "Axes", **options: Any) -> None:
    """Outside, where it hides no data; as many entries beside each other as fit."""
    handles, labels = ax.get_legend_handles_labels()
    figure: Any = ax.get_figure()
    room = ax.get_position().width * figure.get_size_inches()[0]
    ncols = next((n for n in range(len(labels), 1, -1) if _legend_width(labels, n) < room), 1)
    ax.legend(
        handles,
        labels,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.1,
        ncols=ncols,
        columnspacing=1.2,
        handlelength=1.4,
        **options,
    )


def _legend_width(labels: Sequence[str], ncols: int) -> float:
    """About how many inches a legend of so many columns takes."""
    return sum(0.5 + 0.08 * max(map(len, column)) for column in np.array_split(labels, ncols))


def percent(ax: "Axes") -> None:
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda v, _: f"{v:.0%}")


def shorten(name: str, most: int = 24) -> str:
    """A name cut in the middle: long names often differ at their ends.

    >>> shorten("average temperature of June", 12)
    'averag… June'
    """
    end = (most - 1) // 2
    return name if len(name) <= most else name[: most - 1 - end] + "…" + name[-end:]
