"""The classifier: validation, scikit-learn manners, and the way from rows to probabilities and confidence.

fit:     check -> features -> f (cross-fitted) -> r = y_0 - f, once -> denoiser -> judge -> publish.
predict: check -> features -> f and context, once a row -> p(c|x), or draws in chunks of rows -> evidence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from card import confidence, recipes
from card.class_fit import candidate_probabilities
from card.class_model import ClassModel, Glimpse, class_sampler, in_turn, prototype_schedule
from card.class_parameters import OF_CLASSES
from card.class_together import fit_around_one
from card.class_triage import Triage
from card.distribution import check_n_draws
from card.images import check_images, given_pair
from card.manners import CONSTRAINTS, Estimator
from card.noise import Schedule


class CARDClassifier(ClassifierMixin, Triage, Estimator):
    """Class probabilities, and how sure one may be of each single prediction, by diffusion of prototypes.

    With nothing said this is the default recipe: a cross-fitted base classifier f (for tables a blend of
    logistic regression, networks and trees; for images a network), denoisers that correct it where
    held-out rows say so, and probabilities that do not lose to f on those rows.
    `CARDClassifier.from_recipe("paper")` gives the model of the CARD paper.

    Parameters
    ----------
    mean : "auto", name of a network, "given", classifier or torch module, default="auto"
        The base classifier f. Networks are "mlp", "mlp-bn", "lenet5", "resnet9" and "resnet18". A
        scikit-learn classifier with predict_proba is cross-fitted on the encoded table, or on flattened
        images in unit variance. One that is fitted already is taken as it is and reads rows as they are: for
        tables this wants standardise_x=False. A torch module gives logits. It is trained on pixels in unit
        variance, from weights drawn anew but for frozen ones; where none of its parameters requires a
        gradient it is only read, on pixels as they are (bytes from 0 to 1). With "given" every X is a pair
        (rows, probabilities of f).
    cv : "auto", int, splitter, iterable of splits or None, default="auto"
        Folds for cross-fitting. "auto" is 5, but one network and a tenth of the rows held out where f is a
        network and there are more than 5000 rows. None fits f on all rows once.
    repeats : int or None, default=None
        How often the folds of a table are fitted anew; None follows the data.
    encoder : "auto", "linear", "lenet", "conv" or torch module, default="auto"
        How the denoiser reads x. "auto" is the encoded table, or the features that the network f has learned.
        A module, rows -> (rows, width), is trained with the denoiser, or only read, on pixels as they are,
        where none of its parameters requires a gradient.
    noise : float, default=0
        Gaussian noise drawn anew at every look at a training image; rows at predict are taken as they are.
    copies : int, default=4
        Noisy copies of an image that the denoiser learns from; the paper's network meets fresh noise instead.
    augment : None, "shift", "flip-shift", "flip-nudge" or callable, default=None
        How images are varied while a network learns, mirrored and moved by up to 2, 4 or 1 pixels: (images,
        generator) -> images.
    denoiser : {"unit", "table"}, default="unit"
        "unit" knows the geometry of prototypes and any noise level; "table" is the paper's network.
    prior : {"mean", "zero"}, default="mean"
        Diffuse towards N(f(x), I) or N(0, I).
    mean_input : bool, default=True
        Whether the denoiser reads f(x).
    schedule, n_steps, beta_1, beta_T
        The diffusion of the "table" denoiser.
    width, epochs, batch_size : int or None, default=None
        Of the denoiser; None follows the data.
    lr, warmup, ema, dropout, weight_decay
        Of the denoiser; `warmup` is the share of steps over which the rate rises.
    mean_hidden, mean_epochs, mean_batch_size, mean_lr, mean_weight_decay
        Of the network f.
    standardise_x : bool, default=True
    sampler : {"ancestral", "short-chain", "ddim", "multistep", "multistep-sde"}, default="ancestral"
    n_evaluations : int, default=4
        Noise levels of a draw (not for "ancestral" with the "table" denoiser, which takes n_steps).
    read_level, floor : float, default=5.0 and 0.05
        Noise level at which draws of the "unit" denoiser are read, and the noise they keep.
    tau : float or None, default=None
        Temperature of the draws' probabilities, on which the t-test is made; None tunes it at fit.
    n_draws : int, default=100
        Draws behind the probabilities, where those need any, and behind `triage`.
    proba : {"auto", "f", "direct", "votes", "temperature"}, default="auto"
        What `predict_proba` is: "auto" the mixture that is likeliest on held-out rows; "f" alone; "direct"
        the denoiser's p(c|x) at the largest noise level; "votes" the draws' shares; "temperature" the
        paper's form.
    piw : {"brier", "raw"}, default="brier"
        Of what the interval widths are: -(y_0 - 1)^2, or y_0.
    categorical_features : "auto" or list of names or positions, default="auto"
    random_state, device, n_jobs, verbose
        As in scikit-learn; `device` is "auto", "cpu", "cuda", ...
    checkpoint_path : path or None, default=None
        A folder in which training can be continued after an interruption.

    Attributes
    ----------
    classes_ : (n_classes,) labels, in the order of the columns of `predict_proba`
    model_ : ClassModel
    tau_ : temperature of the draws' probabilities
    mixture_ : what `predict_proba` is made of
    n_rows_ : rows that it was fitted to
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from card import CARDClassifier
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> clf = CARDClassifier(random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> clf.predict(X[[0, -1]])
    array(['no', 'yes'], dtype='<U3')
    """

    _recipes = recipes.CLASSIFICATION
    _min_rows = 4
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS | OF_CLASSES

    def __init__(
        self,
        *,
        mean: Any = "auto",
        cv: Any = "auto",
        repeats: int | None = None,
        encoder: Any = "auto",
        noise: float = 0.0,
        copies: int = 4,
        augment: Any = None,
        denoiser: str = "unit",
        prior: str = "mean",
        mean_input: bool = True,
        schedule: str = "linear",
        n_steps: int = 1000,
        beta_1: float = 1e-4,
        beta_T: float = 0.02,
        width: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float = 1e-3,
        warmup: float = 0.05,
        ema: float = 0.995,
        dropout: float = 0.2,
        weight_decay: float = 1e-2,
        mean_hidden: Sequence[int] = (300, 100),
        mean_epochs: int | None = None,
        mean_batch_size: int | None = None,
        mean_lr: float = 3e-3,
        mean_weight_decay: float = 1e-2,
        standardise_x: bool = True,
        sampler: str = "ancestral",
        n_evaluations: int = 4,
        read_level: float = 5.0,
        floor: float = 0.05,
        tau: float | None = None,
        n_draws: int = 100,
        proba: str = "auto",
        piw: confidence.Width = "brier",
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
        self.encoder = encoder
        self.noise = noise
        self.copies = copies
        self.augment = augment
        self.denoiser = denoiser
        self.prior = prior
        self.mean_input = mean_input
        self.schedule = schedule
        self.n_steps = n_steps
        self.beta_1 = beta_1
        self.beta_T = beta_T
        self.width = width
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.warmup = warmup
        self.ema = ema
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.mean_hidden = mean_hidden
        self.mean_epochs = mean_epochs
        self.mean_batch_size = mean_batch_size
        self.mean_lr = mean_lr
        self.mean_weight_decay = mean_weight_decay
        self.standardise_x = standardise_x
        self.sampler = sampler
        self.n_evaluations = n_evaluations
        self.read_level = read_level
        self.floor = floor
        self.tau = tau
        self.n_draws = n_draws
        self.proba = proba
        self.piw = piw
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.checkpoint_path = checkpoint_path

    @classmethod
    def from_recipe(cls, recipe: str, **overrides: Any) -> Self:
        """An estimator with the settings of a recipe, "modern" (the default) or "paper".

        "paper" follows the paper, and its published code where the code produced the figures: f fitted once,
        an encoder of x beside concat(y_t, f), eps-prediction at T = 1000 steps, Adam 1e-3 with warm-up and
        half-cosine, clip 1, EMA 0.9999, 100 ancestral draws. What differs between data sets is given as
        overrides; `prior` and `mean_input` give the paper's variants V1 to V4.
        """
        return super().from_recipe(recipe, **overrides)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    # --------------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn p(c|x) from a table or images X and labels y of shape (n,).

        `groups` (n,) keeps rows of a group in one fold.
        """
        fit_around_one([self], X, y, groups)
        return self

    def _check_parameters(self) -> None:
        self._validate_params()
        self._check_device(self.device)
        unit = self.denoiser == "unit"
        if not unit and self.proba == "direct":
            raise ValueError("proba='direct' needs denoiser='unit'; with 'table' choose 'temperature'.")
        if unit and not self.floor < self.read_level:
            raise ValueError(f"floor must be below read_level, got {self.floor} and {self.read_level}.")
        if self.noise and isinstance(self.mean, str) and self.mean == "given":
            raise ValueError("noise changes x but not given probabilities: say noise=0 with mean='given'.")

    def _pair(self, X: Any) -> tuple[Any, np.ndarray | None]:
        """The rows, and the probabilities that came with them where f is given."""
        if not (isinstance(self.mean, str) and self.mean == "given"):
            return X, None
        return given_pair(X)

    def _schedule(self) -> Schedule:
        if self.denoiser == "unit":
            return prototype_schedule(self.n_evaluations, self.read_level, self.floor)
        return self._table_schedule()

    # ----------------------------------------------------------------- predict

    def _rows(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Encoded rows, and f where it is given."""
        check_is_fitted(self)
        X, given = self._pair(X)
        x = self._encode(X) if self.image_shape_ is None else check_images(X, self.image_shape_)
        if given is not None:
            check_consistent_length(x, given)
            if given.shape[1] != len(self.classes_):
                raise ValueError(
                    f"the probabilities need {len(self.classes_)} columns, one a class, not {given.shape[1]}."
                )
        return x, given

    def _chunks(self, X: Any, n_draws: int) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
        """(number of the first row, rows, given f), so many at once as their draws allow."""
        x, given = self._rows(X)
        size = self.model_.rows_at_once(n_draws)
        for first in range(0, len(x), size):
            part = slice(first, first + size)
            yield first, x[part], None if given is None else given[part]

    def _draw(self, glimpse: Glimpse, n_draws: int, seed: int, first_row: int | None = None) -> np.ndarray:
        model: ClassModel = self.model_
        sampler = class_sampler(self.sampler, self.schedule_, self.n_evaluations, self.denoiser == "unit")
        drawn = model.draw(glimpse, -(-n_draws // model.n_members), sampler, seed, first_row)
        return in_turn(drawn)[:n_draws]

    def _evidence(self, X: Any, n_draws: int) -> tuple[confidence.Evidence, np.ndarray]:
        """What the draws say, and the probabilities (N, C)."""
        parts = [self._judge(x, given, n_draws) for _, x, given in self._chunks(X, n_draws)]
        evidence = confidence.joined([e for e, _ in parts])
        return evidence, np.concatenate([p for _, p in parts])

    def _judge(
        self, x: np.ndarray, given: np.ndarray | None, n_draws: int
    ) -> tuple[confidence.Evidence, np.ndarray]:
        glimpse = self.model_.look(x, given)
        evidence = self._weigh(glimpse, n_draws)
        behind = evidence if n_draws == self.n_draws or not self.mixture_.draws else None
        return evidence, self._probabilities(glimpse, behind)

    def _weigh(self, glimpse: Glimpse, n_draws: int) -> confidence.Evidence:
        return confidence.weigh(self._draw(glimpse, n_draws, self.seed_), self.tau_, self.piw)

    def _probabilities(self, glimpse: Glimpse, evidence: confidence.Evidence | None) -> np.ndarray:
        if evidence is None and self.mixture_.draws:
            evidence = self._weigh(glimpse, self.n_draws)
        direct = self.model_.direct(glimpse)
        direct = None if direct is None else direct.astype(float).mean(axis=0)
        f = glimpse.f.astype(float).mean(axis=0)
        return self.mixture_(candidate_probabilities(f, direct, evidence))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n_rows, n_classes) probabilities, columns in the order of `classes_`."""
        n_draws = self.n_draws if hasattr(self, "mixture_") and self.mixture_.draws else 2
        parts = [
            self._probabilities(self.model_.look(x, given), None) for _, x, given in self._chunks(X, n_draws)
        ]
        return np.concatenate(parts)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def predict_mean_model(self, X: Any) -> np.ndarray:
        """What f alone would say: (n_rows, n_classes) probabilities."""
        x, given = self._rows(X)
        f = [
            self.model_.f(x[i : i + 1024], None if given is None else given[i : i + 1024]).astype(float)
            for i in range(0, len(x), 1024)
        ]
        p = np.concatenate(f)
        return p / p.sum(axis=1, keepdims=True)

    def decompose(self, X: Any) -> confidence.Entropy:
        """Noise and doubt: the aleatoric and the epistemic part of each row's entropy, in nats.

        By what the members, one per fold, say each for itself; of a single member all is noise.
        """
        n_draws = self.n_draws if hasattr(self, "mixture_") and self.mixture_.draws else 2
        parts = [self._members(x, given) for _, x, given in self._chunks(X, n_draws)]
        return confidence.entropy_parts(np.concatenate(parts, axis=1))

    def _members(self, x: np.ndarray, given: np.ndarray | None) -> np.ndarray:
        """(M, N, C) probabilities as `predict_proba` makes them, of each member alone."""
        glimpse = self.model_.look(x, given)
        evidence = self._weigh(glimpse, self.n_draws) if self.mixture_.draws else None
        direct = self.model_.direct(glimpse)
        return np.stack(
            [
                self.mixture_(candidate_probabilities(f, None if direct is None else direct[m], evidence))
                for m, f in enumerate(glimpse.f)
            ]
        )

    def assess(self, X: Any, n_draws: int = 100, alpha: float = 0.05) -> pd.DataFrame:
        """How sure one may be of each row.

        Columns are label, vote, vote_share, probability, piw_<class> for each class, p_value, certain. A row
        is certain where the paired t-test between its two leading classes rejects at level `alpha`.
        """
        n_draws = check_n_draws(n_draws, at_least=2)
        evidence, proba = self._evidence(X, n_draws)
        return confidence.assess(evidence, self.classes_, alpha, proba)

    def sample(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Draws of the prototype y_0, (n_draws, n_rows, n_classes), independent from row to row."""
        n_draws = check_n_draws(n_draws)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        parts = [
            self._draw(self.model_.look(x, given), n_draws, seed, first)
            for first, x, given in self._chunks(X, n_draws)
        ]
        return np.concatenate(parts, axis=1)
