"""Every one of scikit-learn's estimator checks, none excused."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from card import CARDClassifier, CARDRegressor

QUICK = {"epochs": 4, "repeats": 1, "cv": 2}
REGRESSOR = CARDRegressor(**QUICK, n_evaluations=6, n_nodes=8, random_state=0)
CLASSIFIER = CARDClassifier(**QUICK, n_evaluations=3, n_draws=20, random_state=0)


@parametrize_with_checks([REGRESSOR, CLASSIFIER])
def test_scikit_learn_check(estimator, check):
    check(estimator)
