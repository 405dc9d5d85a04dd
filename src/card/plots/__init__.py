"""Pictures of one prediction and of many, drawn on a matplotlib Axes.

Every function takes arrays, or an object with `quantile` and `pdf` such as the library's predicted
distributions; none takes a model. Each draws on `ax`, or on a new figure, and returns the Axes.
"""

from card.plots.classes import (
    class_probabilities,
    class_shares,
    reliability_diagram,
    risk_coverage,
    widths_by_outcome,
)
from card.plots.numbers import (
    coverage_curve,
    density,
    density_curves,
    density_ridge,
    fan_chart,
    intervals_vs_observed,
    pit,
    qice_bars,
)
from card.plots.parts import column_effects, uncertainty_parts
from card.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, new_figure

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PALE",
    "PURPLE",
    "SKY",
    "VERMILION",
    "class_probabilities",
    "class_shares",
    "column_effects",
    "coverage_curve",
    "density",
    "density_curves",
    "density_ridge",
    "fan_chart",
    "intervals_vs_observed",
    "new_figure",
    "pit",
    "qice_bars",
    "reliability_diagram",
    "risk_coverage",
    "uncertainty_parts",
    "widths_by_outcome",
]
