"""A fitted classifier taken apart into arrays and JSON, and put together again.

Networks of the user's own are kept as weights alone: a file holds no code. Who loads them brings the modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn

from card.bundle import Bundle, tensors
from card.class_denoise import EncoderDenoiser, ProductDenoiser, PrototypeDenoiser, RowDenoiser, with_head
from card.class_fit import DOUBTS, Experience, build_encoder, encoder_width
from card.class_learners import FittedClassifier
from card.class_model import ClassModel
from card.class_networks import build_network
from card.crossfit import CrossFit
from card.manners import torch_device
from card.mixture import Mixture
from card.nn import generators
from card.noise import Schedule
from card.reader import FixedClassifier, NetworkClassifier, Probabilities, Reader
from card.stacked import Stacked
from card.views import Pixels

Modules = Mapping[str, nn.Module]


class MissingModule(ValueError):
    """A file needs a module that was not given."""


# ------------------------------------------------------------------------ save


def class_state(estimator: Any, bundle: Bundle) -> dict[str, Any]:
    """What is a classifier's own, as JSON; arrays go into the bundle."""
    model: ClassModel = estimator.model_
    experience = estimator.experience_
    if experience is not None:
        known = {"correct": experience.correct, "f_correct": experience.f_correct}
        known |= {"f_confidence": experience.f_confidence, **experience.doubts}
        bundle.put("experience", known)
    return {
        "classes": [_label(label) for label in np.asarray(estimator.classes_).tolist()],
        "classes_dtype": np.asarray(estimator.classes_).dtype.str,
        "image_shape": None if estimator.image_shape_ is None else list(estimator.image_shape_),
        "tau": estimator.tau_,
        "mixture": estimator.mixture_.weights,
        "experience": experience is not None,
        "model": {
            "n_members": model.n_members,
            "n_classes": model.n_classes,
            "centred": model.centred,
            "reader": _reader_state(model.reader, bundle),
            "encoder": estimator.encoder if isinstance(estimator.encoder, str) else "module",
            "denoiser": _denoiser_state(model.denoiser, bundle),
        },
    }


def _label(label: Any) -> Any:
    if isinstance(label, tuple):
        return {"tuple": [_label(part) for part in label]}
    if isinstance(label, str | bool | int | float):
        return label
    raise TypeError(
        f"A label of type {type(label).__name__} cannot be stored; text, numbers, booleans and tuples can."
    )


def _reader_state(reader: Reader, bundle: Bundle) -> dict[str, Any]:
    arrays = {"shift": reader.shift, "size": reader.size}
    bundle.put("reader", arrays | {"pixel_mean": reader.pixels.mean, "pixel_std": reader.pixels.std})
    if reader.encoder is not None:
        bundle.put_module("frozen", reader.encoder.stacked)
    state = {"view": reader.view, "floor": reader.floor, "mean": _mean_state(reader.mean, bundle)}
    return state | {"as_they_are": True} if reader.encoder is not None else state


def _mean_state(mean: Probabilities | None, bundle: Bundle) -> dict[str, Any]:
    if mean is None:
        return {"kind": "given"}
    if isinstance(mean, NetworkClassifier):
        bundle.put_module("mean", mean.stacked)
        n_networks = len(next(iter(mean.stacked.state_dict().values())))
        as_they_are = not mean.pixels.mean.any() and bool((mean.pixels.std == 1).all())
        return {"kind": "network", "name": mean.name, "n_networks": n_networks, "as_they_are": as_they_are}
    if isinstance(mean, FixedClassifier):
        bundle.estimators.append(mean.classifier)
        bundle.put("mean", {"columns": mean.columns})
        return {"kind": "fixed"}
    if isinstance(mean, FittedClassifier):
        bundle.estimators.extend(mean.models)
        return {"kind": "classifier"}
    assert isinstance(mean, CrossFit)
    arrays, estimators, settings = mean.state()
    bundle.put("mean", arrays)
    bundle.estimators.extend(estimators)
    return {"kind": "crossfit", "settings": settings}


def _denoiser_state(denoiser: PrototypeDenoiser | ProductDenoiser, bundle: Bundle) -> dict[str, Any]:
    bundle.put_module("denoiser", denoiser)
    state = {"mean_input": denoiser.mean_input, "centred": denoiser.centred}
    if isinstance(denoiser, RowDenoiser):
        return state | {"kind": "rows", "n_features": denoiser.n_features, "width": denoiser.width}
    if isinstance(denoiser, EncoderDenoiser):
        return state | {"kind": "encoders"}
    assert isinstance(denoiser, ProductDenoiser)
    schedule = denoiser.schedule
    bundle.put("schedule", {"alpha": schedule.alpha.numpy(), "sigma": schedule.sigma.numpy()})
    return state | {"kind": "product", "width": denoiser.width}


# ------------------------------------------------------------------------ load


def restore_classes(estimator: Any, manifest: dict[str, Any], bundle: Bundle, modules: Modules) -> None:
    """Give an estimator back what `class_state` took apart."""
    estimator.classes_ = _classes(manifest["classes"], manifest["classes_dtype"])
    shape = manifest["image_shape"]
    estimator.image_shape_ = None if shape is None else tuple(shape)
    estimator.tau_ = manifest["tau"]
    estimator.mixture_ = Mixture(manifest["mixture"])
    estimator.experience_ = _experience(bundle) if manifest["experience"] else None
    for name, module in modules.items():
        estimator.set_params(**{name: module})
    device = torch_device(estimator.device)
    model = _ClassParts(estimator, manifest["model"], bundle, modules, device).model()
    estimator.schedule_ = getattr(model.denoiser, "schedule", None) or estimator._schedule()
    estimator.model_ = model


def _classes(labels: list[Any], dtype: str) -> np.ndarray:
    if np.dtype(dtype) != object:
        return np.array(labels, dtype=dtype)
    out = np.empty(len(labels), dtype=object)
    out[:] = [_unlabel(label) for label in labels]
    return out


def _unlabel(label: Any) -> Any:
    return tuple(map(_unlabel, label["tuple"])) if isinstance(label, dict) else label


def _experience(bundle: Bundle) -> Experience:
    arrays = bundle.get("experience")
    doubts: dict[str, np.ndarray] = {by: arrays[by] for by in DOUBTS}
    return Experience(doubts, arrays["correct"], arrays["f_correct"], arrays["f_confidence"])


class _ClassParts:
    """The parts of a stored classifier, on their way back."""

    def __init__(
        self, estimator: Any, state: dict[str, Any], bundle: Bundle, modules: Modules, device: torch.device
    ) -> None:
        self.estimator, self.state, self.bundle = estimator, state, bundle
        self.modules, self.device = modules, device
        self.n_classes, self.n_members = state["n_classes"], state["n_members"]

    def model(self) -> ClassModel:
        reader, denoiser = self._reader(self.state["reader"]), self._denoiser(self.state["denoiser"])
        denoiser.load_state_dict(tensors(self.bundle.get("denoiser")))
        denoiser.to(self.device).eval()
        return ClassModel(reader, denoiser, self.n_members, self.state["centred"], self.device)

    def _given(self, name: str) -> nn.Module:
        if name not in self.modules:
            raise MissingModule(
                f"This model was fitted with a torch module of your own as {name}; a file holds no code. "
                f'Load it with modules={{"{name}": module}}, of the same make.'
            )
        return deepcopy(self.modules[name])

    @property
    def _shape(self) -> tuple[int, ...]:
        """Of one row."""
        if self.estimator.image_shape_ is not None:
            return self.estimator.image_shape_
        features = self.estimator.features_
        return (self.estimator.n_features_in_ if features is None else len(features.names_out),)

    def _reader(self, state: dict[str, Any]) -> Reader:
        arrays = self.bundle.get("reader")
        pixels = Pixels(arrays["pixel_mean"], arrays["pixel_std"])
        plain = Pixels(np.zeros_like(pixels.mean), np.ones_like(pixels.std))
        encoder = None
        if state["view"] == "frozen":
            own = plain if state.get("as_they_are") else pixels  # older files have none of it
            encoder = NetworkClassifier(self._stacked([self._given("encoder")], "frozen"), own, "module")
        mean = self._mean(state["mean"], plain if state["mean"].get("as_they_are") else pixels)
        scales = arrays["shift"], arrays["size"]
        return Reader(mean, pixels, state["view"], self.n_classes, state["floor"], *scales, encoder)

    def _mean(self, state: dict[str, Any], pixels: Pixels) -> Probabilities | None:
        arrays, estimators = self.bundle.get("mean"), self.bundle.estimators
        if state["kind"] == "given":
            return None
        if state["kind"] == "network":
            name = state["name"]
            hidden = self.estimator.mean_hidden
            if name == "module":
                make = self._given("mean")
            else:
                make = build_network(name, self._shape, self.n_classes, hidden)
            return NetworkClassifier(self._stacked([make] * state["n_networks"], "mean"), pixels, name)
        if state["kind"] == "fixed":
            return FixedClassifier(estimators[0], arrays["columns"], self.n_classes)
        if state["kind"] == "classifier":
            return FittedClassifier(list(estimators), self.n_classes)
        return CrossFit.from_state(arrays, estimators, state["settings"])

    def _stacked(self, makes: list[nn.Module], prefix: str) -> Stacked:
        stacked = Stacked(makes)
        stacked.load_state_dict(tensors(self.bundle.get(prefix)))
        return stacked.to(self.device).eval()

    def _encoder(self, width: int) -> nn.Module:
        name = self.state["encoder"]
        return build_encoder(self._given("encoder") if name == "module" else name, self._shape, width, 0)

    def _denoiser(self, state: dict[str, Any]) -> PrototypeDenoiser | ProductDenoiser:
        options = (state["mean_input"], state["centred"])
        rngs = generators([0] * self.n_members)
        if state["kind"] == "rows":
            return RowDenoiser(state["n_features"], self.n_classes, rngs, state["width"], 0.0, *options)
        if state["kind"] == "encoders":
            encoder = self._encoder(self.estimator.width or 128)
            made = with_head(encoder, encoder_width(encoder, self._shape), self.n_classes)
            return EncoderDenoiser(Stacked([made] * self.n_members), self.n_classes, *options)
        scales = tensors(self.bundle.get("schedule"))
        schedule = Schedule(scales["alpha"], scales["sigma"])
        if self.state["reader"]["view"] == "frozen":
            n_features = self.bundle.get("reader")["shift"].shape[-1]
            encoder = build_encoder("linear", (n_features,), state["width"], 0)
        else:
            encoder = self._encoder(state["width"])
        return ProductDenoiser(Stacked([encoder]), self.n_classes, schedule, rngs, state["width"], *options)
