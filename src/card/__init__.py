"""card: the whole conditional distribution p(y|x), by classification and regression diffusion."""

from card.estimators import CARDRegressor
from card.persist import ModelFileError, load

__version__ = "0.1.0"

__all__ = ["CARDRegressor", "ModelFileError", "__version__", "load"]
