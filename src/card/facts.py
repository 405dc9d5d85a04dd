"""What can be asked of any fitted estimator, whether it predicts numbers or classes."""

from typing import Any


def is_classifier(model: Any) -> bool:
    """Whether it predicts classes."""
    return hasattr(model, "predict_proba")


def target_names(model: Any) -> list[str] | None:
    """Names of the columns that it predicts, if it was fitted to named ones."""
    names = getattr(model, "target_names_", None)
    return None if names is None else [str(name) for name in names]


def n_targets(model: Any) -> int | None:
    """Number of targets of a response of several columns; None for one column."""
    return None if is_classifier(model) or model.squeeze_ else model.model_.n_targets
