"""CARD as a probabilistic regressor of skpro, for its metrics, pipelines, tuning and comparisons.

Mean, variance, quantiles and intervals are the model's own. The distribution object that skpro wants is an
`Empirical` one on evenly spaced quantiles of the prediction (for several targets, on draws).

Needs `pip install 'card-diffusion[skpro]'`.
"""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone

from card.estimators import CARDRegressor

try:
    from skpro.distributions import Empirical
    from skpro.regression.base import BaseProbaRegressor
except ImportError:
    raise ImportError("this module needs skpro: pip install 'card-diffusion[skpro]'") from None

N_SUPPORT = 200


class CARDProbaRegressor(BaseProbaRegressor):
    """A CARDRegressor behind skpro's interface.

    Parameters
    ----------
    estimator : CARDRegressor or None, default=None
        Settings of the model; it is cloned, never fitted itself. None is `CARDRegressor()`.

    Attributes
    ----------
    estimator_ : the fitted CARDRegressor

    Examples
    --------
    >>> import pandas as pd
    >>> from card import CARDRegressor
    >>> from card.integrations.skpro import CARDProbaRegressor
    >>> X = pd.DataFrame({"x": range(40)})
    >>> quick = CARDRegressor(mean="zero", cv=2, epochs=2, random_state=0)
    >>> model = CARDProbaRegressor(quick).fit(X, 2 * X)
    >>> model.predict_interval(X[:2], coverage=0.9).shape
    (2, 2)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:multioutput": True,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: CARDRegressor | None = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame, C: Any = None) -> "CARDProbaRegressor":
        self.estimator_ = CARDRegressor() if self.estimator is None else clone(self.estimator)
        self.estimator_.fit(_named(X), y.iloc[:, 0] if y.shape[1] == 1 else y)
        return self

    def _frame(self, values: np.ndarray, X: pd.DataFrame, columns: Any) -> pd.DataFrame:
        return pd.DataFrame(values.reshape(len(X), -1), index=X.index, columns=columns)

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._frame(self.estimator_.predict(_named(X)), X, self._get_columns())

    def _predict_var(self, X: pd.DataFrame) -> pd.DataFrame:
        variance = self.estimator_.predict_distribution(_named(X)).std() ** 2
        return self._frame(variance, X, self._get_columns())

    def _predict_quantiles(self, X: pd.DataFrame, alpha: list[float]) -> pd.DataFrame:
        quantiles = self.estimator_.predict_quantiles(_named(X), alpha)
        if quantiles.ndim == 3:
            quantiles = quantiles.transpose(0, 2, 1)
        return self._frame(quantiles, X, self._get_columns(method="predict_quantiles", alpha=alpha))

    def _predict_interval(self, X: pd.DataFrame, coverage: list[float]) -> pd.DataFrame:
        distribution = self.estimator_.predict_distribution(_named(X))
        bounds = np.stack([distribution.interval(c) for c in coverage], axis=1)
        if bounds.ndim == 4:
            bounds = bounds.transpose(0, 3, 1, 2)
        return self._frame(bounds, X, self._get_columns(method="predict_interval", coverage=coverage))

    def _predict_proba(self, X: pd.DataFrame) -> Empirical:
        distribution = self.estimator_.predict_distribution(_named(X))
        names = self._get_columns()
        if len(names) == 1:
            support = distribution.quantile((np.arange(N_SUPPORT) + 0.5) / N_SUPPORT).T
        else:
            support = distribution.sample(N_SUPPORT, random_state=0)
        rows = pd.MultiIndex.from_product([range(N_SUPPORT), X.index])
        support = pd.DataFrame(support.reshape(len(rows), -1), index=rows, columns=names)
        return Empirical(support, index=X.index, columns=pd.Index(names))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings for skpro's own checks: quick ones."""
        quick = CARDRegressor(mean="zero", cv=2, epochs=2, width=16, n_nodes=8, random_state=0)
        return [{"estimator": quick}, {"estimator": clone(quick).set_params(response="count")}]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """Column names as text: skpro allows numbers among them, scikit-learn does not."""
    return X.set_axis([str(c) for c in X.columns], axis=1)
