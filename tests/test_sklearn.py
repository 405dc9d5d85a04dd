"""Every one of scikit-learn's estimator checks, none excused."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from card import CARDRegressor

QUICK = {"epochs": 4, "repeats": 1, "cv": 2, "n_evaluations": 6, "n_nodes": 8}


@parametrize_with_checks([CARDRegressor(**QUICK, random_state=0)])
def test_scikit_learn_check(estimator, check):
    check(estimator)
