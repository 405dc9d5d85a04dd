"""A classifier with a known answer and the face of the library's own."""

import numpy as np
import pandas as pd

from card.confidence import Entropy


class Labels:
    """A classifier that knows the answers, now and then doubtful."""

    classes_ = np.array(["no", "yes"])
    features_ = None
    target_names_ = ("ripe",)
    feature_names_in_ = ("a", "b")

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-pd.to_numeric(X["a"]).to_numpy()))
        return np.column_stack([1 - p, p])

    def predict_mean_model(self, X):
        return np.full((len(X), 2), 0.5)

    def doubt(self, X):
        return 1 - self.predict_proba(X).max(1)

    def decompose(self, X):
        p = self.predict_proba(X)
        entropy = -(p * np.log(p)).sum(1)
        return Entropy(0.9 * entropy, 0.1 * entropy)

    def assess(self, X):
        p = self.predict_proba(X)
        return pd.DataFrame(
            {
                "label": self.classes_[p.argmax(1)],
                "probability": p.max(1),
                "piw_no": p[:, 1],
                "piw_yes": p[:, 0],
                "p_value": 1 - p.max(1),
                "certain": p.max(1) > 0.8,
            }
        )
