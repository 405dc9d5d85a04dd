"""The estimators: validation, scikit-learn manners, and the way from a table to a distribution.

fit:     check -> features, codec -> mean (cross-fitted) -> r = z - f, once -> denoiser -> publish.
predict: check -> features -> f, once -> flow or sampler in cache-sized chunks -> distribution.

Every `predict*` starts from `predict_distribution`; none draws on its own.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_array, check_consistent_length

from card import recipes
from card.conformal import CrossCalibrated, SplitCalibrated, scores, thinned
from card.distribution import Curves, Distribution, Draws, Gaussian, OneColumn, check_n_draws
from card.flow import FLOW_RANGE
from card.held_out import held_out_scores
from card.manners import CONSTRAINTS, Estimator, torch_device
from card.mean import is_fitted
from card.model import Model
from card.noise import Schedule, even_log_snr
from card.responses import Positive, honour, limits
from card.sample import SAMPLERS, Sampler, make_sampler
from card.together import MIN_ROWS, Job, fit_together
from card.vector import FlowDraws, draws_of_rows

__all__ = ["CARDRegressor", "fit_together", "torch_device"]

Draw = Callable[[Model, np.ndarray, int, Sampler, int], np.ndarray]  # rows, how many, how, seed -> draws


class CARDRegressor(RegressorMixin, Estimator):
    """The whole conditional distribution p(y|x), by diffusion around a mean model.

    With nothing said this is the default recipe: a cross-fitted blend of networks and trees as mean,
    an ensemble of small denoisers, one per fold, and exact quantiles, CDF and density by the
    probability-flow ODE. `CARDRegressor.from_recipe("paper")` gives the model of the CARD paper.

    Parameters
    ----------
    mean : "auto", "mlp", "zero" or a regressor, default="auto"
        The mean model f. "auto" is the cross-fitted blend; "mlp" the paper's network; a scikit-learn
        regressor is cross-fitted (with `cv`), or taken as it is where it is fitted already (with
        standardise_x=False, since it reads X as it is).
    cv : int, splitter, iterable of splits or None, default=5
        Folds for cross-fitting; each fold has a member in the ensemble. None fits f on all rows once.
    repeats : int or None, default=None
        How often the folds are fitted anew; None follows the data.
    denoiser : {"unit", "table"}, default="unit"
        "unit" works on residuals of unit variance at any noise level; "table" is the paper's network.
    prior : {"mean", "zero"}, default="mean"
        Diffuse towards N(f(x), I) or N(0, I) ("table" only).
    mean_input : bool, default=True
        Whether the denoiser reads f(x) ("table" only).
    noisy_mean : bool, default=False
        Keep the dropout of f on while the denoiser trains, as the authors' code does ("table" only).
    schedule : {"linear", "cosine"}, default="linear"
    n_steps, beta_1, beta_T
        The diffusion of the "table" denoiser.
    width : int or None, default=None
        Units per hidden layer; None follows the data.
    epochs, batch_size : int or None, default=None
        Budget of the denoiser; None follows the data.
    lr : float or None, default=None
        The highest learning rate of the denoiser; None follows the batch size.
    ema : float, default=0.995
        Decay of the averaged weights that are used at predict.
    amsgrad : bool, default=False
    dropout : float, default=0.1
        Of the denoiser's view of x ("unit" only).
    weight_decay : float, default=1e-3
    mean_hidden, mean_dropout, mean_epochs, mean_patience
        The network of `mean="mlp"`.
    standardise_x, standardise_y : bool, default=True
    sampler : str, default="flow"
        "flow" is exact and needs the "unit" denoiser. The others draw: "ancestral",
        "short-chain", "ddim", "multistep", "multistep-sde", and two that leave the chain at y_1, one step
        early, as the paper's figures have it: "ancestral-to-1", "short-chain-to-1".
    n_evaluations : int, default=12
        Evaluations of the denoiser per latent or draw (not for "ancestral", which takes n_steps).
    n_nodes : int, default=12
        Latents per row from which the flow is solved; more resolve finer detail.
    n_draws : int, default=1000
        Draws behind a predicted distribution where the sampler draws, or y has several targets.
    response : {"auto", "real", "positive", "count", "ordinal"}, default="auto"
        "positive" learns log y, with logarithms of positive columns beside them, and predicts numbers above
        0; "count" and "ordinal" give distributions on whole numbers and on the levels seen at fit. "auto" is
        "positive" for a response that goes over orders of magnitude, where this helps on held-out rows, with
        mean="auto" and no bounds; "real" otherwise.
    bounds : (low, high) or None, default=None
        The response lies within; either may be None. The distribution is that given these bounds.
    conformal : {None, "split", "cv+"}, default=None
        Intervals with promised coverage: "split" holds out rows that no fitting step sees, "cv+" uses
        out-of-fold scores.
    categorical_features : "auto" or list of names or positions, default="auto"
        Columns of numbers that are codes of categories; text columns are categories in any case.
    random_state, device, n_jobs, verbose
        As in scikit-learn; `device` is "auto", "cpu", "cuda", ...
    checkpoint_path : path or None, default=None
        A folder in which training can be continued after an interruption.

    Attributes
    ----------
    model_ : Model
        The fitted model.
    n_rows_ : int
        Rows that it was fitted to.
    held_out_scores_ : dict or None
        rmse, crps and picp of some of them, each predicted by models that have not seen it.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from card import CARDRegressor
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> reg = CARDRegressor(random_state=0).fit(X, 3 * X[:, 0])
    >>> reg.predict_interval(X[:2], coverage=0.9).shape
    (2, 2)
    """

    _recipes = recipes.REGRESSION
    _min_rows = MIN_ROWS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS | {
        "mean": [StrOptions({"auto", "mlp", "zero"}), HasMethods(["fit", "predict"])],
        "cv": ["cv_object"],
        "batch_size": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "lr": [Interval(numbers.Real, 0, None, closed="neither"), None],
        "mean_dropout": [Interval(numbers.Real, 0, 1, closed="left")],
        "mean_epochs": [Interval(numbers.Integral, 1, None, closed="left")],
        "mean_patience": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "sampler": [StrOptions({"flow", *SAMPLERS})],
        "n_nodes": [Interval(numbers.Integral, 4, None, closed="left")],
        "n_draws": [Interval(numbers.Integral, 1, None, closed="left")],
        "response": [StrOptions({"auto", "real", "positive", "count", "ordinal"})],
        "conformal": [StrOptions({"split", "cv+"}), None],
    }

    def __init__(
        self,
        *,
        mean: Any = "auto",
        cv: Any = 5,
        repeats: int | None = None,
        denoiser: str = "unit",
        prior: str = "mean",
        mean_input: bool = True,
        noisy_mean: bool = False,
        schedule: str = "linear",
        n_steps: int = 1000,
        beta_1: float = 1e-4,
        beta_T: float = 0.02,
        width: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        ema: float = 0.995,
        amsgrad: bool = False,
        dropout: float = 0.1,
        weight_decay: float = 1e-3,
        mean_hidden: Sequence[int] = (100, 50),
        mean_dropout: float = 0.0,
        mean_epochs: int = 1000,
        mean_patience: int | None = 50,
        standardise_x: bool = True,
        standardise_y: bool = True,
        sampler: str = "flow",
        n_evaluations: int = 12,
        n_nodes: int = 12,
        n_draws: int = 1000,
        response: str = "auto",
        bounds: tuple[float | None, float | None] | None = None,
        conformal: str | None = None,
        categorical_features: Any = "auto",
        random_state: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: bool | int = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.mean = mean
        self.cv = cv
        self.repeats = repeats
        self.denoiser = denoiser
        self.prior = prior
        self.mean_input = mean_input
        self.noisy_mean = noisy_mean
        self.schedule = schedule
        self.n_steps = n_steps
        self.beta_1 = beta_1
        self.beta_T = beta_T
        self.width = width
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.ema = ema
        self.amsgrad = amsgrad
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.mean_hidden = mean_hidden
        self.mean_dropout = mean_dropout
        self.mean_epochs = mean_epochs
        self.mean_patience = mean_patience
        self.standardise_x = standardise_x
        self.standardise_y = standardise_y
        self.sampler = sampler
        self.n_evaluations = n_evaluations
        self.n_nodes = n_nodes
        self.n_draws = n_draws
        self.response = response
        self.bounds = bounds
        self.conformal = conformal
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.checkpoint_path = checkpoint_path

    @classmethod
    def from_recipe(cls, recipe: str, **overrides: Any) -> Self:
        """An estimator with the settings of a recipe, "modern" (the default) or "paper".

        "paper" follows the paper, and its published code where the code produced the figures: T = 1000,
        linear betas 1e-4..0.02, Adam (AMSGrad) 1e-3, batch 32, 5000 epochs, EMA 0.9999, MLP 100-50 as
        mean, 1000 ancestral draws. What differs between data sets is given as overrides.
        """
        return super().from_recipe(recipe, **overrides)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # --------------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn p(y|x) from a table X and responses y of shape (n,) or (n, k).

        `groups` (n,) keeps rows of a group in one fold.
        """
        fit_together([self], [X], [y], [groups])
        return self

    def _check_parameters(self) -> None:
        self._validate_params()
        if self.sampler == "flow" and self.denoiser == "table":
            raise ValueError(
                "sampler='flow' needs denoiser='unit'; for 'table' choose 'multistep' or 'ancestral'."
            )
        if self.sampler not in {"flow", "multistep", "multistep-sde"} and self.denoiser == "unit":
            raise ValueError(
                f"sampler={self.sampler!r} walks the paper's time steps and needs denoiser='table'; "
                "for 'unit' choose 'flow', 'multistep' or 'multistep-sde'."
            )
        if self.denoiser == "unit" and self.prior == "zero" and self.mean != "zero":
            raise ValueError("prior='zero' needs denoiser='table'; with 'unit' say mean='zero' instead.")
        if not isinstance(self.mean, str) and is_fitted(self.mean):
            self._check_read_as_it_is()
            if self.response == "positive":
                raise ValueError(
                    "response='positive' learns log y, but mean is fitted already and predicts y: say "
                    "response='real', or give the mean unfitted."
                )
        low, high = limits(self.bounds)
        if not low < high:
            raise ValueError(f"bounds must be (low, high) with low < high, got {self.bounds!r}.")
        if self.conformal == "cv+" and (self.cv is None or self.sampler != "flow"):
            raise ValueError("conformal='cv+' needs folds (cv) and sampler='flow'; otherwise use 'split'.")
        self._check_device(self.device)

    def _check_fit(self, X: Any, y: Any) -> tuple[Any, np.ndarray, bool]:
        """The table, the responses (N, K) in float64, and whether they came as one column."""
        if y is None:
            raise ValueError("This CARDRegressor requires y to be passed, but the target y is None.")
        X = self._check_table(X, reset=True)
        y = check_array(
            y, ensure_2d=False, allow_nd=False, dtype=np.float64, input_name="y", ensure_min_samples=1
        )
        check_consistent_length(X, y)
        if y.ndim > 2:
            raise ValueError(f"y must have shape (n,) or (n, k), got {y.shape}.")
        if self.conformal is not None and y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(f"conformal intervals are for one target, but y has {y.shape[1]} columns.")
        if self.response in ("positive", "ordinal") and y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(f"response={self.response!r} is for one target, but y has {y.shape[1]} columns.")
        low, high = limits(self.bounds)
        if y.min() < low or y.max() > high:
            raise ValueError(f"y goes from {y.min()} to {y.max()}, beyond bounds {self.bounds}: widen them.")
        return X, y.reshape(len(y), -1), y.ndim == 1

    def _schedule(self) -> Schedule:
        if self.denoiser == "unit":
            return even_log_snr(self.n_evaluations, *FLOW_RANGE)
        return self._table_schedule()

    # ----------------------------------------------------------------- predict

    @property
    def schedule_(self) -> Schedule:
        """Noise levels that a prediction walks through: the network's own, or as `n_evaluations` says."""
        return self._schedule_of(self.model_)

    def _schedule_of(self, model: Model) -> Schedule:
        return getattr(model.denoiser, "schedule", None) or self._schedule()

    def predict_distribution(self, X: Any) -> Distribution:
        """The predicted distribution of each row: see `card.distribution.Distribution`."""
        return self._distribution(self._encode(X), self.n_draws, self.seed_)

    def _distribution(
        self, x: np.ndarray, n_draws: int, seed: int, draw: Draw = draws_of_rows
    ) -> Distribution:
        found = self._calibrated(self._plain_distribution(self.model_, x, n_draws, seed, draw), x)
        return OneColumn(found) if self._one_column else found

    @property
    def _one_column(self) -> bool:
        """Whether the responses came as a table of one column."""
        return self.model_.n_targets == 1 and not self.squeeze_

    def _calibrated(self, inner: Distribution, x: np.ndarray) -> Distribution:
        if self.conformal_ is None:
            return inner
        if self.conformal == "split":
            return SplitCalibrated(inner, self.conformal_[0])
        members = [
            self._plain_distribution(self.model_.member(k), x, 1, 0) for k in range(len(self.conformal_))
        ]
        return CrossCalibrated(inner, members, self.conformal_)

    def _calibrate(self, model: Model, job: Job) -> list[np.ndarray]:
        """Scores of rows that the model, or the fold member that judges them, has not seen."""
        if job.held_out is not None:
            X, y = job.held_out
            predicted = self._plain_distribution(model, self._transform(X), self.n_draws, job.seed)
            return [np.sort(scores(predicted, y[:, 0]))]
        assert model.fold is not None
        by_fold = [np.flatnonzero(model.fold == k) for k in range(model.n_members)]
        return [
            thinned(scores(self._plain_distribution(model.member(k), job.x[rows], 1, 0), job.y[rows, 0]))
            for k, rows in enumerate(by_fold)
        ]

    def _held_out_scores(self, model: Model, job: Job) -> dict[str, float] | None:
        """What a model card tells of rows that were not seen, where that can be told."""
        if model.fold is None or model.n_targets > 1 or self.sampler != "flow":
            return None
        return held_out_scores(
            model, job.x, job.y[:, 0], job.seed, lambda m, x: self._plain_distribution(m, x, 1, 0)
        )

    def _plain_distribution(
        self, model: Model, x: np.ndarray, n_draws: int, seed: int, draw: Draw = draws_of_rows
    ) -> Distribution:
        if self.sampler == "flow" and model.n_targets == 1:
            curve = model.curves(x, self._schedule_of(model), self.n_nodes)
            inner: Distribution = Curves(curve)
        else:
            inner = self._draws(model, x, n_draws, seed, draw)
        return honour(inner, model.codec, *limits(self.bounds))

    def _draws(self, model: Model, x: np.ndarray, n_draws: int, seed: int, draw: Draw) -> Draws:
        name = "multistep" if self.sampler == "flow" else self.sampler
        sampler = make_sampler(name, self._schedule_of(model), self.n_evaluations)
        draws = draw(model, x, n_draws, sampler, seed)
        if self.sampler == "flow":
            return FlowDraws(draws, model, x)
        return Draws(draws, model.n_targets == 1, model.n_members)

    def predict(self, X: Any) -> np.ndarray:
        """Mean of the predicted distribution, in the shape of y."""
        return self.predict_distribution(X).mean()

    def predict_quantiles(self, X: Any, q: Sequence[float] | float = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles, (n_rows, n_quantiles[, n_targets])."""
        return self.predict_distribution(X).quantile(q)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> np.ndarray:
        """Central intervals, (n_rows, 2[, n_targets])."""
        return self.predict_distribution(X).interval(coverage)

    def sample(self, X: Any, n_draws: int = 1000, random_state: Any = None) -> np.ndarray:
        """Independent draws, (n_draws, n_rows[, n_targets]); repeatable for a given random_state."""
        n_draws = check_n_draws(n_draws)
        x = self._encode(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        found = self._plain_distribution(self.model_, x, n_draws, seed, Model.draw)
        draws = found._out(found.draws) if isinstance(found, Draws) else found.sample(n_draws, seed)
        return draws[..., None] if self._one_column else draws

    def predict_mean_model(self, X: Any) -> Distribution:
        """What f alone would say: a Gaussian around it with its (out-of-fold) error as scale.

        For responses that are learned as logarithms, a log-normal.
        """
        x = self._encode(X)
        codec = self.model_.codec
        location = codec.decode(self.model_.mean.predict(x).mean(0))
        scale = self.model_.mean_scale * codec.scale
        if codec.response == "positive":
            found = Positive(Gaussian(location[:, 0], scale[0]))
            return OneColumn(found) if self._one_column else found
        return Gaussian(location[:, 0], scale[0]) if self.squeeze_ else Gaussian(location, scale)
