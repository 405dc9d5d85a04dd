"""Experiments as values: what to run, on what, with which method, unrolled into units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from card.bench.kinds import KINDS
from card.bench.methods import find_method

NOTHING = "none"
"""How a setting says None, which TOML cannot."""

Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Unit:
    """One fit and one prediction: the smallest thing that is run, and one line in a report."""

    kind: str
    dataset: str
    index: int
    method: str
    recipe: str
    variant: str = ""
    overrides: Settings = ()
    arrays: tuple[str, ...] = ()
    """Kinds of arrays to keep for the figures."""
    rescore: tuple[tuple[str, Settings], ...] = ()
    """Other settings of the prediction by name: the same fit is scored with each of them too."""

    @property
    def seed(self) -> int:
        """Of everything random in the unit."""
        return self.index

    def identity(self) -> dict[str, Any]:
        """The fields of the report that name the unit."""
        named = {"dataset": self.dataset, KINDS[self.kind].index: self.index, "method": self.method}
        if self.variant:
            named["variant"] = self.variant
        return {**named, "recipe": self.recipe, "seed": self.seed}

    def __str__(self) -> str:
        words = [self.dataset, KINDS[self.kind].index, str(self.index), self.method, self.recipe]
        return " ".join([*words, self.variant] if self.variant else words)


@dataclass(frozen=True)
class Override:
    """Parameters set wherever data set, method and recipe match; what is not named matches anything."""

    set: Settings
    dataset: str | None = None
    method: str | None = None
    recipe: str | None = None

    def applies(self, dataset: str, method: str, recipe: str) -> bool:
        wanted = ((self.dataset, dataset), (self.method, method), (self.recipe, recipe))
        return all(mine in (None, theirs) for mine, theirs in wanted)


@dataclass(frozen=True)
class Keep:
    """Arrays kept for figures, of a data set and recipe (any if not named), of all splits or the first."""

    keep: str
    dataset: str | None = None
    recipe: str | None = None
    all: bool = False

    def applies(self, dataset: str, recipe: str, first: bool) -> bool:
        named = self.dataset in (None, dataset) and self.recipe in (None, recipe)
        return named and (self.all or first)


@dataclass(frozen=True)
class Rescore:
    """Other settings of the prediction, for the fits of a data set and recipe (any if not named)."""

    name: str
    set: Settings
    dataset: str | None = None
    recipe: str | None = None

    def applies(self, dataset: str, recipe: str) -> bool:
        return self.dataset in (None, dataset) and self.recipe in (None, recipe)


@dataclass(frozen=True)
class Experiment:
    """Every combination of data sets, splits, methods and variants, in that order."""

    name: str
    kind: str
    datasets: tuple[str, ...]
    indices: tuple[int, ...] | None  # None: all splits of each data set
    methods: tuple[str, ...] = ("card",)
    recipe: str = "modern"
    title: str = ""
    report: str = ""
    arrays: tuple[Keep, ...] = ()
    rescore: tuple[Rescore, ...] = ()
    overrides: tuple[Override, ...] = ()
    variants: tuple[tuple[str, Settings], ...] = (("", ()),)
    variants_of: tuple[str, ...] = ()
    """Methods that the variants are of; the others run once, as they are. With none named, all have them."""
    source: str = field(default="", compare=False)

    @property
    def report_name(self) -> str:
        return self.report or f"{self.name}.jsonl"

    def units(self) -> list[Unit]:
        """The work, data set by data set."""
        kind = KINDS[self.kind]
        units = []
        for dataset in self.datasets:
            indices = self.indices if self.indices is not None else kind.indices(dataset)
            for variant, method in self._variations():
                units += [self._unit(dataset, i, method, *variant) for i in indices]
        return units

    def _variations(self) -> list[tuple[tuple[str, Settings], str]]:
        """Every variant of every method that has variants, and the other methods once."""
        varied = self.variants_of or self.methods
        return [
            (variant if method in varied else ("", ()), method)
            for i, variant in enumerate(self.variants)
            for method in self.methods
            if method in varied or i == 0
        ]

    def _unit(self, dataset: str, index: int, method: str, variant: str, changes: Settings) -> Unit:
        recipe = find_method(method, self.source).choose_recipe(self.recipe, self.source)
        settings: dict[str, Any] = {}
        for override in self.overrides:
            if override.applies(dataset, method, recipe):
                settings.update(override.set)
        settings.update(changes)
        first = index == (self.indices or (0,))[0]
        arrays = tuple(rule.keep for rule in self.arrays if rule.applies(dataset, recipe, first))
        arrays += KINDS[self.kind].arrays if first else ()
        rescore = tuple((one.name, one.set) for one in self.rescore if one.applies(dataset, recipe))
        overrides = tuple(sorted(settings.items()))
        return Unit(self.kind, dataset, index, method, recipe, variant, overrides, arrays, rescore)


def check(experiment: Experiment) -> Experiment:
    """The experiment itself, once each of its parts is known to exist."""
    kind = KINDS[experiment.kind]
    for dataset in experiment.datasets:
        for index in experiment.indices or ():
            kind.check_index(dataset, index, experiment.source)
    wanted = [(unit.method, unit.recipe, unit.overrides, unit.rescore) for unit in experiment.units()]
    for method, recipe, overrides, rescore in dict.fromkeys(wanted):
        for changes in ((), *(settings for _, settings in rescore)):
            settings = {**dict(overrides), **dict(changes)}
            find_method(method, experiment.source).check(recipe, kind.task, settings, experiment.source)
    return experiment


def narrow(experiment: Experiment, **changes: Any) -> Experiment:
    """The same experiment with some of its fields replaced, checked anew."""
    return check(replace(experiment, **changes))


def freeze(settings: Mapping[str, Any]) -> Settings:
    """Settings as a value that can be compared and hashed."""
    return tuple(sorted((key, _frozen(value)) for key, value in settings.items()))


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return freeze(value)
    if value == NOTHING:
        return None
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
