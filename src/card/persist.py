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

from card.bundle import Bundle
from card.checkpoint import write_atomically
from card.class_persist import MissingModule, class_state, restore_classes
from card.features import Features
from card.model_card import model_card
from card.regressor_persist import regressor_state, restore_regressor

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
    own = class_state(estimator, bundle) if classifier else regressor_state(estimator, bundle)
    return {
        "kind": type(estimator).__name__,
        "parameters": plain,
        "features": features,
        "feature_names_in": None if names is None else [str(name) for name in names],
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "target_names": getattr(estimator, "target_names_", None),
        "n_rows": getattr(estimator, "n_rows_", None),
        "seed": estimator.seed_,
        **own,
    }


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

    kinds = {"CARDRegressor": restore_regressor, "CARDClassifier": _restore_classifier}
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
    estimator.n_rows_ = manifest.get("n_rows")  # the first files did not count them
    estimator.seed_ = manifest["seed"]
    kinds[manifest["kind"]](estimator, manifest, bundle, modules)
    return estimator


def _restore_classifier(estimator: Any, manifest: dict[str, Any], bundle: Bundle, modules: Any) -> None:
    try:
        restore_classes(estimator, manifest, bundle, modules)
    except MissingModule as error:
        raise ModelFileError(str(error)) from None
