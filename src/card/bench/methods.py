"""Methods by name: how to build an estimator that has `fit` and `predict_distribution`.

A method is anything that can be built from (recipe, overrides, seed) into an object with
`fit(X, y)` and `predict_distribution(X)`, or `predict_proba(X)` for classes. The library's own
are registered here, the competitors in `card.baselines` and `card.peers`. A method of one's own needs
no registration: `--methods mymodule:MyRegressor` names a class in any importable module.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from card.bench.errors import BenchError, unknown

Build = Callable[[str, Mapping[str, Any], int], Any]
FitTogether = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]


@dataclass(frozen=True)
class Method:
    """How a method is built, and what may be asked of it."""

    name: str
    build: Mapping[str, Build]
    """Task ("regression", "classification") -> builder."""
    recipes: tuple[str, ...] = ("default",)
    parameters: Callable[[str], Sequence[str]] | None = None
    """Task -> names that overrides may set; None if that is not known beforehand."""
    fit_together: FitTogether | None = None
    """Fit several estimators with equal parameters, each on data of its own, in one batched run."""
    joint: tuple[str, ...] | None = None
    """Recipes for which it does so; None: for all."""
    variants: frozenset[str] = frozenset()
    """Settings in which units on the same data may differ and still be fitted together."""
    together: int = 1
    """How many it fits together with nothing said: many only where a killed fit can go on."""
    validate: Callable[[Any], None] | None = None
    """Raises ValueError, in one line, for an estimator whose parameters have values it cannot take."""
    packages: tuple[str, ...] = ()
    """Packages that do its arithmetic beside those that all methods need: reports have their versions."""

    def at_once(self, recipe: str, wanted: int | None, variants: bool = False) -> int:
        """How many units of a recipe, or variants on the same data, are fitted in one run."""
        if variants:
            return (wanted or self.together) if self.variants else 1
        if self.fit_together is None or (self.joint is not None and recipe not in self.joint):
            return 1
        return self.together if wanted is None else wanted

    def choose_recipe(self, wanted: str, where: str = "") -> str:
        """The recipe asked for; a method with one recipe only has that."""
        if len(self.recipes) == 1:
            return self.recipes[0]
        if wanted not in self.recipes:
            raise unknown(f"recipe of {self.name}", wanted, self.recipes, where)
        return wanted

    def check(self, recipe: str, task: str, overrides: Mapping[str, Any], where: str = "") -> None:
        """Refuse a task the method cannot do, and parameters or values it does not have."""
        prefix = f"{where}: " if where else ""
        if task not in self.build:
            raise BenchError(f"{prefix}method {self.name!r} does {', '.join(self.build)}, not {task}")
        if self.parameters is None:
            return
        valid = self.parameters(task)
        for key in overrides:
            if key not in valid:
                raise unknown(f"parameter of {self.name}", key, valid, where)
        if self.validate is not None:
            try:
                self.validate(self.build[task](recipe, overrides, 0))
            except ValueError as error:
                raise BenchError(f"{prefix}{error}") from None


def _build_card(estimator: str) -> Build:
    def build(recipe: str, overrides: Mapping[str, Any], seed: int) -> Any:
        return _card_class(estimator).from_recipe(recipe, **{"random_state": seed, **overrides})

    return build


def _card_class(estimator: str) -> Any:
    return getattr(importlib.import_module("card"), estimator)


def _card_parameters(task: str) -> list[str]:
    estimator = _card_class("CARDRegressor" if task == "regression" else "CARDClassifier")
    return list(inspect.signature(estimator).parameters)


def _card_together(estimators: Sequence[Any], Xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    if hasattr(estimators[0], "predict_proba"):
        return importlib.import_module("card.class_together").fit_around_one(estimators, Xs[0], ys[0])
    return importlib.import_module("card.estimators").fit_together(estimators, Xs, ys)


CARD = Method(
    name="card",
    build={"regression": _build_card("CARDRegressor"), "classification": _build_card("CARDClassifier")},
    recipes=("modern", "paper"),
    parameters=_card_parameters,
    fit_together=_card_together,
    validate=lambda estimator: estimator._check_parameters(),
    joint=("paper",),
    variants=frozenset(("prior", "mean_input")),
    together=20,
)


def of_class(name: str, cls: Callable[..., Any], task: str = "regression") -> Method:
    """The method that builds `cls(random_state=seed, **overrides)`, without random_state if it has none."""
    names = list(inspect.signature(cls).parameters)

    def build(recipe: str, overrides: Mapping[str, Any], seed: int) -> Any:
        seeded = {"random_state": seed} if "random_state" in names else {}
        return cls(**{**seeded, **overrides})

    return Method(name=name, build={task: build}, parameters=lambda task: names)


COMPETITORS = ("card.baselines", "card.peers")


def methods() -> dict[str, Method]:
    """Every registered method: the library's own, then the competitors."""
    found = {CARD.name: CARD}
    for module in COMPETITORS:
        found |= importlib.import_module(module).METHODS
    return found


def find_method(name: str, where: str = "") -> Method:
    """The method of this name, or of the class that "module:Class" names."""
    if ":" in name:
        return _imported(name, where)
    known = methods()
    if name not in known:
        raise unknown("method", name, known, where)
    return known[name]


def _imported(name: str, where: str) -> Method:
    module, _, attribute = name.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        prefix = f"{where}: " if where else ""
        raise BenchError(f"{prefix}method {name!r} cannot be imported: {error}") from None
    task = "regression" if hasattr(cls, "predict_distribution") else "classification"
    return of_class(name, cls, task)
