"""Who should look at which row, as methods of a classifier; the functions are in `card.deferral`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from card import deferral
from card.class_fit import DOUBTS, Experience
from card.confidence import Evidence
from card.labels import as_labels

By = Literal["auto", "piw", "p_value", "margin"]


class Triage:
    """What a classifier that has evidence can do for a team."""

    classes_: np.ndarray
    experience_: Experience | None
    n_draws: int

    def _evidence(self, X: Any, n_draws: int) -> tuple[Evidence, np.ndarray]:
        raise NotImplementedError

    def predict_mean_model(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    def triage(
        self,
        X: Any,
        *,
        budget: float | None = None,
        target_accuracy: float | None = None,
        by: By = "auto",
        held_out: tuple[Any, Any] | None = None,
    ) -> np.ndarray:
        """Which rows a person should look at: True for the most doubtful.

        Parameters
        ----------
        budget : the share of the rows that a person can look at
        target_accuracy : the accuracy wanted of the others, a fraction
        by : "piw", "p_value", "margin", or "auto" for what told errors best on held-out rows
        held_out : (X, y) with known labels, to learn from how doubt and error go together; without it, rows
            held out at fit serve (the paper's recipe holds none out)
        """
        check_is_fitted(self)
        experience = self._experience(held_out)
        kind = self._best_doubt(experience) if by == "auto" else by
        doubts = self._doubt(X, kind)[0]
        known = None if experience is None else (experience[0][kind], experience[1])
        if target_accuracy is not None and known is None:
            raise ValueError(
                "target_accuracy needs rows that the model has not learned from, and this one has learned "
                "from all: give held_out=(X, y), or fit with cv."
            )
        return deferral.triage(doubts, budget=budget, target_accuracy=target_accuracy, held_out=known)

    def doubt(self, X: Any, by: By = "auto") -> np.ndarray:
        """(n_rows,) how doubtful each row is, larger for more doubt: what `triage` goes by."""
        check_is_fitted(self)
        return self._doubt(X, self._best_doubt(self._experience(None)) if by == "auto" else by)[0]

    def _doubt(self, X: Any, kind: Any) -> tuple[np.ndarray, np.ndarray]:
        """The doubt, and the probabilities (N, C)."""
        evidence, proba = self._evidence(X, self.n_draws)
        return deferral.doubt(replace(evidence, proba=proba), kind), proba

    def _experience(
        self, held_out: tuple[Any, Any] | None
    ) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
        if held_out is None:
            known = self.experience_
            return None if known is None else (known.doubts, known.correct)
        X, y = held_out
        evidence, proba = self._evidence(X, self.n_draws)
        evidence = replace(evidence, proba=proba)
        doubts: dict[str, np.ndarray] = {by: deferral.doubt(evidence, by) for by in DOUBTS}
        return doubts, proba.argmax(axis=1) == self._numbers(y)

    def _best_doubt(self, experience: tuple[dict[str, np.ndarray], np.ndarray] | None) -> Any:
        if experience is None:
            return "margin"
        doubts, correct = experience
        f_proba = np.ones((len(correct), 1))
        areas = {by: deferral.deferral_gain(correct, d, correct, f_proba).aurc for by, d in doubts.items()}
        return min(areas, key=lambda by: (areas[by], by))

    def deferral_gain(self, X: Any, y: Any, by: By = "auto") -> deferral.Gain:
        """What is gained over deferring by f's softmax, on rows with known labels: see `card.deferral`."""
        check_is_fitted(self)
        number = self._numbers(y)
        check_consistent_length(X[0] if isinstance(X, tuple) else X, number)
        kind = self._best_doubt(self._experience(None)) if by == "auto" else by
        doubts, proba = self._doubt(X, kind)
        f = self.predict_mean_model(X)
        return deferral.deferral_gain(proba.argmax(axis=1) == number, doubts, f.argmax(axis=1) == number, f)

    def _numbers(self, y: Any) -> np.ndarray:
        """Numbers of the classes of labels; unknown ones are an error."""
        place = {label: i for i, label in enumerate(self.classes_.tolist())}
        labels = as_labels(y).tolist()
        unknown = sorted({str(label) for label in labels if label not in place})
        if unknown:
            raise ValueError(f"labels the model does not know: {', '.join(unknown[:5])}.")
        return np.array([place[label] for label in labels])
