"""A fitted regressor taken apart and put together again, for `card.persist`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from card.bundle import Bundle, tensors
from card.codec import Codec
from card.crossfit import CrossFit
from card.denoise import Denoiser, TableDenoiser, UnitDenoiser
from card.manners import torch_device
from card.mean import NetworkMean, RegressorMean, ZeroMean
from card.model import Model, Predictor
from card.nn import generators
from card.noise import Schedule
from card.warp import Warp


def regressor_state(estimator: Any, bundle: Bundle) -> dict[str, Any]:
    for k, scores in enumerate(estimator.conformal_ or []):
        bundle.put("conformal", {str(k): scores})
    return {
        "squeeze": estimator.squeeze_,
        "model": _model_state(estimator.model_, bundle),
        "held_out_scores": getattr(estimator, "held_out_scores_", None),
    }


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
        "holds_mean": model.holds_mean,
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


def restore_regressor(estimator: Any, manifest: dict[str, Any], bundle: Bundle, modules: Any) -> None:
    estimator.squeeze_ = manifest["squeeze"]
    estimator.held_out_scores_ = manifest.get("held_out_scores")
    scores = bundle.get("conformal")
    estimator.conformal_ = [scores[str(k)] for k in range(len(scores))] or None
    estimator.model_ = _model(manifest["model"], bundle, torch_device(estimator.device))


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
        apart=state.get("apart", 1.0),  # the first files knew none of the three
        warp=Warp(**warp) if (warp := bundle.get("warp")) else None,
        holds_mean=state.get("holds_mean", False),
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
