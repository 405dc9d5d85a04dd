"""Several targets at once: draws by the flow, densities by its Jacobian."""

from __future__ import annotations

import numpy as np

from card.distribution import Draws
from card.model import Model


class FlowDraws(Draws):
    """Draws of a vector response, with the exact log-density of the flow that drew them."""

    def __init__(self, draws: np.ndarray, model: Model, x: np.ndarray) -> None:
        super().__init__(draws, squeeze=False, n_members=model.n_members)
        self.model, self.x = model, x

    def __getitem__(self, rows) -> FlowDraws:
        return FlowDraws(self.draws[:, rows], self.model, self.x[rows])

    def logpdf(self, y):
        """Log-density of whole vectors: y (N, K) -> (N,), or (N, m, K) -> (N, m)."""
        values, shape = self._target_values(y)
        return self.model.log_density(self.x, values).reshape(shape[:-1])
