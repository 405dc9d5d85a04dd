"""Methods for the tests of `card.bench`, named on its command line as `bench_methods:Name`."""

import os
import time
from pathlib import Path

import numpy as np

from card.distribution import Gaussian


class Bell:
    """The same Gaussian for every row: quick, and a function of data and seed alone."""

    def __init__(self, width: float = 1.0, random_state: int = 0) -> None:
        self.width, self.random_state = width, random_state

    def fit(self, X, y):
        self.location_ = float(np.mean(y)) + 0.01 * self.random_state
        self.scale_ = self.width * float(np.std(y))
        return self

    def predict_distribution(self, X):
        return Gaussian(np.full(len(X), self.location_), np.array(self.scale_))


class SlowBell(Bell):
    """Tells in a file that a fit has begun, and takes its time over it."""

    def fit(self, X, y):
        with Path(os.environ["BENCH_LOG"]).open("a") as log:
            log.write(f"{os.getpid()}\n")
        time.sleep(float(os.environ.get("BENCH_SLEEP", "0.3")))
        return super().fit(X, y)


class Broken(Bell):
    """Fails on every second split."""

    def fit(self, X, y):
        if self.random_state % 2:
            raise RuntimeError("this split is cursed")
        return super().fit(X, y)
