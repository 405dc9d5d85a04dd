"""Save and load a model as one file, without pickle.

A model file is a zip of

    manifest.json        format version, kind, library versions, parameters, SHA-256 of the other parts
    tensors.safetensors  every array: weights, scales, trees
    mean-<i>.skops       scikit-learn mean models, where there are any (only types that skops trusts)
    README.md            a model card for people

It is written atomically. Loading checks format, version and checksums before anything is used, and
executes nothing in the file; whatever is wrong raises `ModelFileError` and says what.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any
from zlib import error as zlib_error

import numpy as np
import safetensors.numpy
import sklearn
import torch

from card.bundle import Bundle, tensors
from card.checkpoint import write_atomically
from card.class_persist import MissingModule, class_state, restore_classes
from card.codec import Codec
from card.crossfit import CrossFit
from card.denoise import Denoiser, TableDenoiser, UnitDenoiser
from card.features import Features
from card.manners import torch_device
from card.mean import NetworkMean, RegressorMean, ZeroMean
from card.model import Model, Predictor
from card.model_card import model_card
from card.nn import generators
from card.noise import Schedule
from card.warp import Warp

FORMAT = "card-diffusion model"
FORMAT_VERSION = 1
TENSORS = "tensors.safetensors"
MANIFEST = "manifest.json"
# Scikit-learn's own containers of numbers inside its regressors, which skops leaves to its users to trust.
TRUSTED = frozenset(
    f"sklearn.{name}"
    for name in (
        "tree._tree.Tree",
        "ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "gaussian_process.kernels.ConstantKernel",
        "gaussian_process.kernels.Product",
        "gaussian_process.kernels.RBF",
        "gaussian_process.kernels.Sum",
        "gaussian_process.kernels.WhiteKernel",
        "metrics._dist_metrics.EuclideanDistance64",
        "neighbors._kd_tree.KDTree",
        "neural_network._stochastic_optimizers.AdamOptimizer",
        "_loss.loss.HalfTweedieLossIdentity",
    )
)
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every part: equal models give equal files


class ModelFileError(ValueError):
    """A file is not a model that this version can load; the message says why."""


# ------------------------------------------------------------------------ save


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to `path`."""
    from sklearn.utils.validation import check_is_fitted

    import card

    check_is_fitted(estimator)
    bundle = Bundle()
    content = estimator_state(estimator, bundle)
    parts = {TENSORS: safetensors.numpy.save(bundle.arrays)}
    parts |= {f"mean-{i}.skops": _skops_bytes(each) for i, each in enumerate(bundle.estimators)}
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "card_version": card.__version__,
        "versions": {
            "numpy": np.__version__,
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()},
        **content,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True).encode()
    readme = model_card(estimator).encode()
    write_atomically(Path(path), _zip({MANIFEST: text, "README.md": readme, **parts}))


def _zip(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _skops_bytes(estimator: Any) -> bytes:
    import skops.io

    data = skops.io.dumps(estimator)
    unknown = _untrusted(data)
    if unknown:
        raise TypeError(
            f"The mean model holds types that cannot be stored safely ({', '.join(unknown)}). "
            "Use a scikit-learn regressor, or keep this model with joblib where you trust the file."
        )
    return data


def estimator_state(estimator: Any, bundle: Bundle) -> dict[str, Any]:
    """Everything but the arrays, as JSON; the arrays go into the bundle."""
    parameters = estimator.get_params(deep=False)
    plain = {name: _plain(name, value) for name, value in parameters.items() if name not in UNSAVED}
    features = None
    if estimator.features_ is not None:
        features, arrays = estimator.features_.to_state()
        bundle.put("features", arrays)
    names = getattr(estimator, "feature_names_in_", None)
    classifier = hasattr(estimator, "classes_")
    own = class_state(estimator, bundle) if classifier else _regressor_state(estimator, bundle)
    return {
        "kind": type(estimator).__name__,
        "parameters": plain,
        "features": features,
        "feature_names_in": None if names is None else [str(name) for name in names],
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "target_names": getattr(estimator, "target_names_", None),
        "seed": estimator.seed_,
        **own,
    }


def _regressor_state(estimator: Any, bundle: Bundle) -> dict[str, Any]:
    for k, scores in enumerate(estimator.conformal_ or []):
        bundle.put("conformal", {str(k): scores})
    return {"squeeze": estimator.squeeze_, "model": _model_state(estimator.model_, bundle)}


UNSAVED = {
    "checkpoint_path",
    "device",
    "n_jobs",
    "verbose",
    "random_state",
}  # of the machine, not of the model


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON; what JSON cannot hold was needed for fitting only, and is named."""
    try:
        return json.loads(json.dumps(value, default=_number))
    except TypeError:
        return {"fitted_with": type(value).__name__}


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


def _model_state(model: Model, bundle: Bundle) -> dict[str, Any]:
    codec = {"location": model.codec.location, "scale": model.codec.scale}
    if model.codec.levels is not None:
        codec["levels"] = model.codec.levels
    bundle.put("codec", codec)
    bundle.put("model", {"scale": model.scale, "mean_scale": model.mean_scale})
    if model.warp is not None:
        bundle.put("warp", {"z": model.warp.z, "g": model.warp.g})
    weights = {name: value.detach().cpu().numpy() for name, value in model.denoiser.state_dict().items()}
    bundle.put("denoiser", weights)
    return {
        "response": model.codec.response,
        "centred": model.centred,
        "n_members": model.n_members,
        "apart": model.apart,
        "mean": _mean_state(model.mean, bundle),
        "denoiser": _denoiser_state(model.denoiser, bundle),
    }


def _denoiser_state(denoiser: Denoiser, bundle: Bundle) -> dict[str, Any]:
    if isinstance(denoiser, UnitDenoiser):
        n_in = denoiser.state_dict()["row.0.weight"].shape[1]
        n_targets = denoiser.last.weight.shape[2]
        return {
            "kind": "unit",
            "n_features": n_in - n_targets,
            "n_targets": n_targets,
            "width": denoiser.width,
        }
    assert isinstance(denoiser, TableDenoiser)
    schedule = denoiser.schedule
    bundle.put("schedule", {"alpha": schedule.alpha.numpy(), "sigma": schedule.sigma.numpy()})
    n_features = denoiser.first.weight.shape[1] - denoiser.n_targets * (1 + denoiser.mean_input)
    return {
        "kind": "table",
        "n_features": n_features,
        "n_targets": denoiser.n_targets,
        "width": denoiser.width,
        "mean_input": denoiser.mean_input,
        "centred": denoiser.centred,
    }


def _mean_state(mean: Predictor, bundle: Bundle) -> dict[str, Any]:
    if isinstance(mean, ZeroMean):
        return {"kind": "zero", "n_targets": mean.n_targets}
    if isinstance(mean, NetworkMean):
        bundle.put("mean", {name: v.detach().cpu().numpy() for name, v in mean.network.state_dict().items()})
        return {"kind": "network", "sizes": list(mean.sizes), "dropout": mean.dropout}
    if isinstance(mean, RegressorMean):
        bundle.estimators.append(mean.regressor)
        if mean.location is not None:
            bundle.put("mean", {"location": mean.location, "scale": np.asarray(mean.scale)})
        return {"kind": "regressor", "n_targets": mean.n_targets}
    assert isinstance(mean, CrossFit)
    arrays, estimators, settings = mean.state()
    bundle.put("mean", arrays)
    bundle.estimators.extend(estimators)
    return {"kind": "crossfit", "settings": settings}


# ------------------------------------------------------------------------ load


def load(
    path: str | os.PathLike[str], device: str = "auto", modules: dict[str, torch.nn.Module] | None = None
) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    modules
        A file holds numbers and no code. A classifier that was fitted with torch modules of your own gets
        them here, as {"mean": module, "encoder": module}; their weights are read from the file.

    Raises
    ------
    ModelFileError
        If the file is truncated, foreign, of a newer format, or has been changed.
    """
    manifest, parts = _read(Path(path))
    bundle = Bundle()
    try:
        bundle.arrays = safetensors.numpy.load(parts[TENSORS])
        bundle.estimators = [_skops_load(path, parts[f"mean-{i}.skops"]) for i in range(len(parts) - 1)]
        return _estimator(manifest, bundle, device, modules or {})
    except ModelFileError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise ModelFileError(f"{path} is not a whole model: {type(error).__name__}: {error}.") from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the checked parts of a model file."""
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        zlib_error,
    ) as error:
        raise ModelFileError(f"{path} is not a card model file, or it is truncated: {error}.") from error
    try:
        manifest = json.loads(parts.pop(MANIFEST))
    except KeyError:
        raise ModelFileError(f"{path} is a zip file but no card model: it has no {MANIFEST}.") from None
    except ValueError as error:
        raise ModelFileError(f"The {MANIFEST} in {path} is damaged: {error}.") from error
    _check_manifest(path, manifest, parts)
    return manifest, {name: parts[name] for name in manifest["sha256"]}


def _check_manifest(path: Path, manifest: Any, parts: dict[str, bytes]) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{path} is no card model: its manifest does not say {FORMAT!r}.")
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version}, this library reads up to {FORMAT_VERSION}: "
            f"update card-diffusion (the file was written by {manifest.get('card_version')})."
        )
    sums = manifest.get("sha256")
    if not isinstance(sums, dict) or TENSORS not in sums:
        raise ModelFileError(f"The {MANIFEST} in {path} lists no checksums.")
    for name, digest in sums.items():
        if name not in parts:
            raise ModelFileError(f"{path} lacks its part {name}.")
        if hashlib.sha256(parts[name]).hexdigest() != digest:
            raise ModelFileError(
                f"The part {name} of {path} has been changed or damaged: its checksum differs."
            )


def _skops_load(path: Any, data: bytes) -> Any:
    import skops.io

    unknown = _untrusted(data)
    if unknown:
        raise ModelFileError(
            f"The mean model in {path} holds types that are not trusted: {', '.join(unknown)}."
        )
    return skops.io.loads(data, trusted=sorted(TRUSTED))


def _untrusted(data: bytes) -> list[str]:
    """Types in a skops file that neither skops nor this library trusts."""
    import skops.io

    return sorted(set(skops.io.get_untrusted_types(data=data)) - TRUSTED)


def _estimator(
    manifest: dict[str, Any], bundle: Bundle, device: str, modules: dict[str, torch.nn.Module]
) -> Any:
    import card

    kinds = {"CARDRegressor": _restore_regressor, "CARDClassifier": _restore_classifier}
    if manifest["kind"] not in kinds:
        raise ModelFileError(f"This library knows no {manifest['kind']}.")
    parameters = dict(manifest["parameters"])
    fitted_with = {name: v for name, v in parameters.items() if isinstance(v, dict) and "fitted_with" in v}
    kind = getattr(card, manifest["kind"])
    estimator = kind(**{k: v for k, v in parameters.items() if k not in fitted_with})
    estimator.device = device
    if manifest["features"] is None:
        estimator.features_ = None
    else:
        estimator.features_ = Features.from_state(manifest["features"], bundle.get("features"))
    if manifest["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(manifest["feature_names_in"], dtype=object)
    if manifest["n_features_in"] is not None:
        estimator.n_features_in_ = manifest["n_features_in"]
    estimator.target_names_ = manifest.get("target_names")
    estimator.seed_ = manifest["seed"]
    kinds[manifest["kind"]](estimator, manifest, bundle, modules)
    return estimator


def _restore_regressor(estimator: Any, manifest: dict[str, Any], bundle: Bundle, modules: Any) -> None:
    estimator.squeeze_ = manifest["squeeze"]
    scores = bundle.get("conformal")
    estimator.conformal_ = [scores[str(k)] for k in range(len(scores))] or None
    estimator.model_ = _model(manifest["model"], bundle, torch_device(estimator.device))
    estimator.schedule_ = getattr(estimator.model_.denoiser, "schedule", None) or estimator._schedule()


def _restore_classifier(estimator: Any, manifest: dict[str, Any], bundle: Bundle, modules: Any) -> None:
    try:
        restore_classes(estimator, manifest, bundle, modules)
    except MissingModule as error:
        raise ModelFileError(str(error)) from None


def _model(state: dict[str, Any], bundle: Bundle, device: torch.device) -> Model:
    codec = bundle.get("codec")
    scales = bundle.get("model")
    return Model(
        codec=Codec(codec["location"], codec["scale"], state["response"], codec.get("levels")),
        mean=_mean(state["mean"], bundle, device),
        denoiser=_denoiser(state["denoiser"], bundle, state["n_members"], device),
        scale=scales["scale"],
        mean_scale=scales["mean_scale"],
        centred=state["centred"],
        n_members=state["n_members"],
        device=device,
        apart=state.get("apart", 1.0),  # the first files knew neither
        warp=Warp(**warp) if (warp := bundle.get("warp")) else None,
    )


def _denoiser(state: dict[str, Any], bundle: Bundle, n_members: int, device: torch.device) -> Denoiser:
    rngs = generators([0] * n_members)
    sizes = (state["n_features"], state["n_targets"])
    denoiser: Denoiser
    if state["kind"] == "unit":
        denoiser = UnitDenoiser(*sizes, rngs, state["width"])
    else:
        scales = tensors(bundle.get("schedule"))
        schedule = Schedule(scales["alpha"], scales["sigma"])
        denoiser = TableDenoiser(
            *sizes, schedule, rngs, state["width"], state["mean_input"], state["centred"]
        )
    denoiser.load_state_dict(tensors(bundle.get("denoiser")))
    return denoiser.to(device)


def _mean(state: dict[str, Any], bundle: Bundle, device: torch.device) -> Predictor:
    if state["kind"] == "zero":
        return ZeroMean(state["n_targets"])
    if state["kind"] == "network":
        network = NetworkMean(state["sizes"], [0], state["dropout"], device)
        network.network.load_state_dict(tensors(bundle.get("mean")))
        return network
    if state["kind"] == "regressor":
        arrays = bundle.get("mean")
        return RegressorMean(
            bundle.estimators[0], state["n_targets"], arrays.get("location"), arrays.get("scale")
        )
    return CrossFit.from_state(bundle.get("mean"), bundle.estimators, state["settings"])
