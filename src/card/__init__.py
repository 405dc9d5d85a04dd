"""card: the whole conditional distribution p(y|x), by classification and regression diffusion."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from card.classifier import CARDClassifier
    from card.estimators import CARDRegressor
    from card.persist import ModelFileError, load

__version__ = "0.1.0"

__all__ = ["CARDClassifier", "CARDRegressor", "ModelFileError", "__version__", "load"]

# Imported when asked for, so that `card --help` need not wait for torch.
_HOME = {
    "CARDClassifier": "card.classifier",
    "CARDRegressor": "card.estimators",
    "ModelFileError": "card.persist",
    "load": "card.persist",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'card' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
