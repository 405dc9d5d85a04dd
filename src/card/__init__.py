"""card: the whole conditional distribution p(y|x), by classification and regression diffusion."""

__version__ = "0.1.0"
