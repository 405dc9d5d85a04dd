"""Named arrays and scikit-learn objects collected while a model is taken apart, for `card.persist`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Arrays = dict[str, np.ndarray]


class Bundle:
    """Arrays by dotted names, and the scikit-learn objects beside them."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.estimators: list[Any] = []

    def put(self, prefix: str, arrays: Arrays) -> None:
        self.arrays |= {f"{prefix}.{name}": np.ascontiguousarray(value) for name, value in arrays.items()}

    def get(self, prefix: str) -> Arrays:
        start = prefix + "."
        return {name[len(start) :]: value for name, value in self.arrays.items() if name.startswith(start)}

    def put_module(self, prefix: str, module: torch.nn.Module) -> None:
        """The weights and buffers of a module."""
        self.put(prefix, {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()})


def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Arrays as tensors of their own."""
    return {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
