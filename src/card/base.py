"""The base classifier f(x), class probabilities in R^C: trained first, then frozen.

A `Reader` is what is kept of it: it reads rows once, for f and for what the denoiser sees of x. `Seen` is
what the training rows look like to somebody who did not learn from them: f and features out of fold, and
for each member of the denoiser the rows it learns from and those it is judged on.

    tables     blends or a scikit-learn classifier, cross-fitted: member m learns from the other folds' rows
    networks   one for each split: member m reads the features of network m, learns from rows that this
               network has not seen, and is judged on a fifth of them; with a single split (one network, some
               rows held out) there are several members, each judged on a part of the rows held out
    fixed      a fitted classifier, a frozen module, or given probabilities: folds tell members apart
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import nn

from card.class_folds import ClassFolds, Split, folds_by_class
from card.class_learners import Classifier, FittedClassifier, class_defaults, pool, seeded_clone
from card.class_networks import NAMES, base_network, mean_lesson, teach
from card.crossfit import check_folds, crossfit
from card.fit import Fitting
from card.mean import is_fitted
from card.reader import FixedClassifier, NetworkClassifier, Probabilities, Reader, Seen
from card.stacked import Stacked
from card.train import seed_of
from card.views import Pixels, noisy

MANY_IMAGES = 5000  # beyond, one network and some rows held out take the place of one for each fold
HELD_OUT, MOST_HELD_OUT = 0.1, 10_000


def fit_base(
    x: np.ndarray, y: np.ndarray, n_classes: int, groups: Any, given: np.ndarray | None, fitting: Fitting
) -> tuple[Reader, Seen]:
    """Fit f, or take it as it is, and look at the training rows with it."""
    mean = _choice(fitting["mean"], x)
    pixels = Pixels.of(x, fitting["noise"])
    rng = np.random.default_rng(seed_of(fitting.seed, 21))
    if _trainable(mean):
        return _with_networks(x, y, n_classes, groups, mean, pixels, rng, fitting)
    reader = Reader(None, pixels, "row", n_classes, 0.1 / len(x))
    fixed = given is not None or is_module(mean) or is_fitted(mean) or fitting["cv"] is None
    if fixed:
        if given is None:
            reader.mean = _fixed_mean(mean, x, y, n_classes, pixels, fitting)
        _set_view(reader, x, fitting)
        copies = fitting["copies"] if fitting["noise"] else 1
        rows = noisy(x, fitting["noise"], copies, rng)
        f = reader.f(rows, given)[0]
        y = np.tile(y, copies)
        units = np.tile(np.arange(len(x)), copies)
        return reader, _look(reader, rows, f, y, units, *_members(units, y, groups, fitting))
    flat = pixels.flat(x)
    fitted = crossfit(
        flat,
        np.eye(n_classes, dtype=np.float32)[y],
        learners=class_defaults(len(x), flat.shape[1], n_classes) if mean == "auto" else [Classifier(mean)],
        cv=ClassFolds(fitting["cv"], fitting.seed),
        repeats=fitting["repeats"] or "auto",
        groups=None if groups is None else np.asarray(groups),
        seed=fitting.seed,
        n_jobs=fitting["n_jobs"],
        progress=fitting.bars.shares(),
        pool=pool,
    )
    check_folds(fitted.fold, fitted.n_folds)
    reader.mean = fitted
    _set_view(reader, x, fitting)
    f = (fitted.oof + reader.floor) / (1.0 + n_classes * reader.floor)
    folds = [np.flatnonzero(fitted.fold == k) for k in range(fitted.n_folds)]
    others = [np.flatnonzero((fitted.fold != k) & (fitted.fold >= 0)) for k in range(fitted.n_folds)]
    if fitting["denoiser"] == "table":
        others, folds = _one_member(np.flatnonzero(fitted.fold >= 0), fitting)
    return reader, _look(reader, x, f.astype(np.float32), y, np.arange(len(x)), others, folds)


def is_module(mean: Any) -> bool:
    return isinstance(mean, nn.Module)


def _trainable(mean: Any) -> bool:
    """A built-in network, or a module with weights that may still move."""
    if is_module(mean):
        return any(p.requires_grad for p in mean.parameters())
    return isinstance(mean, str) and mean in NAMES


def _choice(mean: Any, x: np.ndarray) -> Any:
    """ "auto" for images is a network that suits their size."""
    if not (isinstance(mean, str) and mean == "auto") or x.ndim == 2:
        return mean
    _, channels, height, width = x.shape
    if min(height, width) < 12:
        return "mlp-bn"
    return "lenet5" if channels == 1 else "resnet9"


def _view(fitting: Fitting, mean: Any) -> str:
    encoder = fitting["encoder"]
    if is_module(encoder) and not any(p.requires_grad for p in encoder.parameters()):
        return "frozen"
    if fitting["denoiser"] == "table" or not (isinstance(encoder, str) and encoder == "auto"):
        return "pixels"
    return "embed" if isinstance(mean, NetworkClassifier) and mean.embeds else "row"


def _set_view(reader: Reader, x: np.ndarray, fitting: Fitting) -> None:
    reader.view = _view(fitting, reader.mean)
    if reader.view == "frozen":
        reader.encoder = _frozen(fitting["encoder"], x, fitting)


def _frozen(
    module: nn.Module, x: np.ndarray, fitting: Fitting, n_out: int | None = None
) -> NetworkClassifier:
    """A network that has learned elsewhere, on pixels as they are, which gives `n_out` numbers where told."""
    copy = deepcopy(module).to(fitting.device).eval()
    network = NetworkClassifier(Stacked([copy]), Pixels.as_they_are(x), "module")
    try:
        shape = network._run(x[:2], "forward", softmax=False).shape[2:]
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"a frozen module does not read rows of shape {x.shape[1:]}: {error}") from error
    if len(shape) != 1 or n_out not in (None, *shape):
        wanted = "(rows, width)" if n_out is None else f"logits of shape (rows, {n_out}), one for each class"
        raise ValueError(f"a frozen module must give {wanted}; this one gives {('rows', *shape)}.")
    return network


def _fixed_mean(
    mean: Any, x: np.ndarray, y: np.ndarray, n_classes: int, pixels: Pixels, fitting: Fitting
) -> Probabilities:
    if is_module(mean):
        return _frozen(mean, x, fitting, n_classes)
    if is_fitted(mean):
        return FixedClassifier(mean, fitting["mean_columns"], n_classes)
    if isinstance(mean, str):
        raise ValueError(f"mean={mean!r} is cross-fitted and needs cv; with cv=None name a classifier.")
    return FittedClassifier([seeded_clone(mean, fitting.seed).fit(pixels.flat(x), y)], n_classes)


def mean_columns(classifier: Any, classes: np.ndarray) -> np.ndarray:
    """Where the classes of a fitted classifier stand among ours; an error if it knows others."""
    place = {label: i for i, label in enumerate(classes.tolist())}
    known = np.asarray(classifier.classes_).tolist()
    unknown = [str(label) for label in known if label not in place]
    if unknown or len(known) != len(place):
        raise ValueError(
            f"The fitted classifier knows the classes {known}, y has {classes.tolist()}: they must agree."
        )
    return np.array([place[label] for label in known])


def _members(
    units: np.ndarray, y: np.ndarray, groups: Any, fitting: Fitting
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows to learn from and rows to be judged on, where f is fixed; copies of a row stay together."""
    n = units.max() + 1
    if fitting["denoiser"] == "table":
        return _one_member(np.arange(len(units)), fitting)
    cv = fitting["cv"]
    folds = ClassFolds(5 if cv is None else cv, seed_of(fitting.seed, 22))
    splits = list(folds.split(np.zeros((n, 1)), y[:n], groups))
    return [np.flatnonzero(np.isin(units, a)) for a, _ in splits], [
        np.flatnonzero(np.isin(units, b)) for _, b in splits
    ]


def _one_member(rows: np.ndarray, fitting: Fitting) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The paper's network learns from all rows and is tuned on some of them; with cv, on a tenth held out."""
    some = np.random.default_rng(seed_of(fitting.seed, 23)).permutation(rows)
    if fitting["cv"] is None:
        return [rows], [np.sort(some[: min(len(some), 2000)])]
    cut = max(2, len(some) // 10)
    return [np.sort(some[cut:])], [np.sort(some[:cut])]


def _look(reader: Reader, x, f, y, unit, learn, judge) -> Seen:
    if reader.view == "pixels":
        return Seen(x, f, y, unit, learn, judge)
    raw = reader.raw(x)[0]
    _standardise(reader, raw[None, np.unique(np.concatenate(learn))])
    return Seen(((raw - reader.shift[0]) / reader.size[0]).astype(np.float32), f, y, unit, learn, judge)


def _standardise(reader: Reader, raw: np.ndarray) -> None:
    """Features of networks in unit size; a table's row has it already."""
    if reader.view != "row":
        reader.shift = raw.mean(axis=1, keepdims=True)
        reader.size = np.maximum(raw.std(axis=1, keepdims=True), 1e-6)


def _with_networks(
    x: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    groups: Any,
    mean: Any,
    pixels: Pixels,
    rng,
    fitting: Fitting,
) -> tuple[Reader, Seen]:
    """A network for each split, or one for all rows; the denoiser learns from what they have not seen."""
    everything = np.arange(len(x))
    splits = [(everything, everything)] if fitting["cv"] is None else _network_splits(x, y, groups, fitting)
    nets = []
    for j, (rows, _) in enumerate(splits):
        lesson = mean_lesson(rows, j, fitting)
        module = base_network(mean, x.shape[1:], n_classes, lesson.seed, fitting)
        nets.append(teach(module, x, y, n_classes, pixels, lesson, fitting))
    stacked = Stacked(nets).to(fitting.device).eval()
    name = mean if isinstance(mean, str) else "module"
    reader = Reader(NetworkClassifier(stacked, pixels, name), pixels, "", n_classes, 0.1 / len(x))
    _set_view(reader, x, fitting)
    copies = fitting["copies"] if fitting["noise"] and not looks_anew(reader, fitting) else 1
    parts = [_unseen(reader, x, y, test, j, copies, rng, fitting) for j, (_, test) in enumerate(splits)]
    return reader, _joined(reader, parts, len(splits), groups, fitting)


def looks_anew(reader: Reader, fitting: Fitting) -> bool:
    """Whether the denoiser meets noise drawn anew at every look: the paper's, where one network is f."""
    papers = fitting["denoiser"] == "table" and fitting["cv"] is None and fitting["noise"] > 0
    return papers and reader.view == "pixels" and isinstance(reader.mean, NetworkClassifier)


def _network_splits(x: np.ndarray, y: np.ndarray, groups: Any, fitting: Fitting) -> list[Split]:
    cv = fitting["cv"]
    if isinstance(cv, str) and len(x) > MANY_IMAGES:
        n_parts = max(round(1 / HELD_OUT), -(-len(x) // MOST_HELD_OUT))
        return list(ClassFolds(n_parts, fitting.seed).split(x, y, groups))[:1]
    return [(np.asarray(a), np.asarray(b)) for a, b in ClassFolds(cv, fitting.seed).split(x, y, groups)]


@dataclass(frozen=True)
class _Part:
    """Rows that network j has not seen, as it sees them."""

    x: np.ndarray
    f: np.ndarray
    y: np.ndarray
    unit: np.ndarray  # numbers of the rows before they were copied


def _unseen(reader: Reader, x, y, rows: np.ndarray, j: int, copies: int, rng, fitting: Fitting) -> _Part:
    images = noisy(x[rows], fitting["noise"], copies, rng)
    single = _member_reader(reader, j)
    features = images if reader.view == "pixels" else single.raw(images)[0]
    return _Part(features, single.f(images)[0], np.tile(y[rows], copies), np.tile(rows, copies))


def _member_reader(reader: Reader, j: int) -> Reader:
    assert isinstance(reader.mean, NetworkClassifier)
    one = NetworkClassifier(Stacked([reader.mean.stacked.member(j)]), reader.pixels, reader.mean.name)
    return Reader(one, reader.pixels, reader.view, reader.n_classes, reader.floor, encoder=reader.encoder)


def _joined(reader: Reader, parts: list[_Part], n_splits: int, groups: Any, fitting: Fitting) -> Seen:
    x, f, y = (np.concatenate([getattr(p, name) for p in parts]) for name in ("x", "f", "y"))
    unit = np.concatenate([p.unit for p in parts])
    starts = np.cumsum([0, *(len(p.y) for p in parts)])
    rows = [np.arange(a, b) for a, b in pairwise(starts)]
    if fitting["denoiser"] == "table":
        learn, judge = _one_member(np.arange(len(y)), fitting)
    elif reader.view == "pixels" and fitting["cv"] is not None:
        learn, judge = [np.array([], int)] * n_splits, rows
    elif n_splits == 1:
        _, number = np.unique(unit, return_inverse=True)
        first = np.unique(number, return_index=True)[1]
        fold = folds_by_class(y[first], 5, seed_of(fitting.seed, 25))[number]
        learn, judge = ([np.flatnonzero((fold == k) == same) for k in range(5)] for same in (False, True))
    else:
        fifth = [_fifth(unit[r], y[r], fitting) for r in rows]
        learn = [r[~last] for r, last in zip(rows, fifth, strict=True)]
        judge = [r[last] for r, last in zip(rows, fifth, strict=True)]
    if reader.view == "pixels":
        return Seen(x, f, y, unit, learn, judge)
    if reader.view == "embed" and n_splits > 1:  # each network's features have a size of their own
        reader.shift = np.stack([x[r].mean(axis=0, keepdims=True) for r in rows])
        reader.size = np.maximum(np.stack([x[r].std(axis=0, keepdims=True) for r in rows]), 1e-6)
        x = np.concatenate([(x[r] - reader.shift[j]) / reader.size[j] for j, r in enumerate(rows)])
    else:
        _standardise(reader, x[None])
        x = (x - reader.shift[0]) / reader.size[0]
    return Seen(x.astype(np.float32), f, y, unit, learn, judge)


def _fifth(unit: np.ndarray, y: np.ndarray, fitting: Fitting) -> np.ndarray:
    """(n,) True for the rows of a fifth of the units, each class with its share."""
    _, first, number = np.unique(unit, return_index=True, return_inverse=True)
    fold = folds_by_class(y[first], min(5, len(first)), seed_of(fitting.seed, 26))
    return (fold == 0)[number]
