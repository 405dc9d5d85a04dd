"""One HTML page, complete in itself, on how far a model's predictions can be trusted."""

from card.report.build import build_report

__all__ = ["build_report"]
