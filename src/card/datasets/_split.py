"""One cut of a data set into training and test rows."""

from typing import NamedTuple

from numpy.typing import NDArray


class Split(NamedTuple):
    """In scikit-learn's order: `X_train, X_test, y_train, y_test = data.split(0)`."""

    X_train: NDArray
    X_test: NDArray
    y_train: NDArray
    y_test: NDArray
