"""What a fitted model reads of a row: the base classifier's f, and what the denoiser sees of x.

`Seen` is what the training rows look like to somebody who did not learn from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from card.model import padded
from card.stacked import Stacked
from card.views import Pixels, unit_pixels

CHUNK = 512  # rows that a network reads at once


class Probabilities(Protocol):
    """A fitted base classifier: rows -> (J, N, C)."""

    def predict(self, x: np.ndarray) -> np.ndarray: ...


@dataclass
class FixedClassifier:
    """A fitted scikit-learn classifier; `columns` are the places of its classes among ours."""

    classifier: Any
    columns: np.ndarray
    n_classes: int

    def predict(self, x: np.ndarray) -> np.ndarray:
        out = np.zeros((1, len(x), self.n_classes), np.float32)
        out[0][:, self.columns] = self.classifier.predict_proba(x)
        return out


@dataclass
class NetworkClassifier:
    """J networks that give logits, of one make."""

    stacked: Stacked
    pixels: Pixels
    name: str  # of a built-in network, or "module"

    @property
    def embeds(self) -> bool:
        return hasattr(self.stacked.make, "embed")

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self._run(x, "forward", softmax=True)

    def embed(self, x: np.ndarray) -> np.ndarray:
        """(J, N, H) features that the last layer reads."""
        return self._run(x, "embed", softmax=False)

    @torch.no_grad()
    def _run(self, x: np.ndarray, method: str, softmax: bool) -> np.ndarray:
        self.stacked.eval()
        weight = next(iter(self.stacked.parameters()), torch.zeros(1))
        parts = []
        for i in range(0, max(len(x), 1), CHUNK):
            rows = self.pixels(torch.from_numpy(unit_pixels(x[i : i + CHUNK]))).to(weight.device)
            out = self.stacked.each(rows.expand(len(weight), *rows.shape), method)
            parts.append((torch.softmax(out, dim=-1) if softmax else out).cpu().numpy())
        return np.concatenate(parts, axis=1)


@dataclass
class Reader:
    """What is read of a row: f, and what the denoiser sees of x.

    `view` is "row" (a table's row, or flattened pixels), "pixels" (for an encoder of the denoiser), "embed"
    (the features of f) or "frozen" (those of `encoder`). Features are standardised as (value - shift) / size.
    """

    mean: Probabilities | None  # None where f is given
    pixels: Pixels
    view: str
    n_classes: int
    floor: float  # added to every probability
    shift: np.ndarray = field(default_factory=lambda: np.zeros((1, 1, 1), np.float32))
    size: np.ndarray = field(default_factory=lambda: np.ones((1, 1, 1), np.float32))
    encoder: NetworkClassifier | None = None

    def f(self, x: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
        """(J, N, C) probabilities, none of them 0."""
        if self.mean is None:
            assert given is not None
            f = given[None]
        elif isinstance(self.mean, NetworkClassifier):
            f = self.mean.predict(padded(x))[:, : len(x)]
        else:
            fixed = isinstance(self.mean, FixedClassifier)  # it has learned from rows as they are
            rows = x.reshape(len(x), -1) if fixed else self.pixels.flat(x)
            f = self.mean.predict(padded(rows))[:, : len(x)].mean(axis=0, keepdims=True)
        return ((f + self.floor) / (f.sum(axis=2, keepdims=True) + self.n_classes * self.floor)).astype(
            np.float32
        )

    def features(self, x: np.ndarray) -> np.ndarray:
        """(J or 1, N, ...) what the denoiser reads, standardised."""
        if self.view == "pixels":
            return self.pixels(torch.from_numpy(unit_pixels(x))).numpy()[None]
        return ((self.raw(x) - self.shift) / self.size).astype(np.float32)

    def raw(self, x: np.ndarray) -> np.ndarray:
        """Features before they are standardised."""
        if self.view == "row":
            return self.pixels.flat(x)[None]
        source = self.encoder if self.view == "frozen" else self.mean
        assert isinstance(source, NetworkClassifier)
        method = "embed" if self.view == "embed" else "forward"
        return source._run(padded(x), method, softmax=False)[:, : len(x)]


@dataclass(frozen=True)
class Seen:
    """Training rows as the denoiser meets them; n of them, noisy copies counted."""

    x: np.ndarray  # (n, ...) features, or pixels
    f: np.ndarray  # (n, C)
    y: np.ndarray  # (n,)
    unit: np.ndarray  # (n,) number of the training row behind it
    learn: list[np.ndarray]  # for each member the rows it learns from
    judge: list[np.ndarray]  # and those it is judged on
