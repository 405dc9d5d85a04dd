"""Experiment files: TOML in, checked experiments out.

An experiment file holds

    title = "..."                     # said by `card bench list`
    kind = "uci"                      # uci | toy | image: where data come from, how they are scored
    datasets = ["boston", "yacht"]    # or "all"
    splits = "0-19"                   # or "all", or a list; `seeds` for toys and images
    methods = ["card"]
    recipe = "modern"
    report = "uci.jsonl"              # optional; the experiment's own name otherwise

    [[overrides]]                     # optional, any number; later ones win
    recipe = "paper"                  # where it applies: any of dataset, method, recipe
    dataset = "boston"
    set = { batch_size = 32 }         # the method's own parameters; "none" stands for None

    [[arrays]]                        # optional: small arrays kept for the figures
    keep = "scatter"                  # scatter | chain | reverse; curve, for images
    dataset = "boston"                # where it applies: any of dataset, recipe
    all = true                        # of every split; of the first only if not said

    [[rescore]]                       # optional: the same fits scored with other settings of the prediction
    name = "multistep 40"
    dataset = "boston"                # where it applies: any of dataset, recipe
    set = { sampler = "multistep", n_evaluations = 40 }

    [[variants]]                      # optional: the whole experiment once per variant
    name = "T=500, prior zero"
    set = { n_steps = 500 }
                                      # with variants_of = ["card"] above, only for these methods

    [quick]                           # optional: what `--quick` changes; any of the keys above
    seeds = "0"

Every mistake is told in one line with the file, the key, and what would be right.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from card.bench.errors import BenchError, unknown
from card.bench.kinds import KINDS, Kind
from card.bench.methods import find_method, methods
from card.bench.spec import Experiment, Keep, Override, Rescore, Settings, check, freeze

KEYS: dict[str, tuple[type, ...]] = {
    "title": (str,),
    "kind": (str,),
    "datasets": (str, list),
    "splits": (str, list, int),
    "seeds": (str, list, int),
    "methods": (str, list),
    "recipe": (str,),
    "report": (str,),
    "arrays": (list,),
    "rescore": (list,),
    "overrides": (list,),
    "variants": (list,),
    "variants_of": (str, list),
    "quick": (dict,),
}
WORDS = {str: "text", list: "a list", int: "a number", bool: "true or false", dict: "a table"}
OVERRIDE_KEYS = ("dataset", "method", "recipe", "set")
KEEPS = {"regression": ("scatter", "chain", "reverse"), "classification": ("curve",)}
KEEP_KEYS = ("keep", "dataset", "recipe", "all")
VARIANT_KEYS = ("name", "set")
RESCORE_KEYS = ("name", "dataset", "recipe", "set")
OF_PREDICTION = ("sampler", "n_evaluations", "n_nodes", "n_draws")
"""Parameters that a fit does not depend on."""


def load(path: Path, quick: bool = False) -> Experiment:
    """Read and check one experiment file."""
    try:
        raw = tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise BenchError(f"{path}: no such experiment file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BenchError(f"{path}: not a TOML file: {error}") from None
    return build(path.stem, raw, quick=quick, source=str(path))


def build(name: str, raw: Mapping[str, Any], quick: bool = False, source: str = "") -> Experiment:
    """The experiment that the keys and values of a file describe."""
    _check_keys(raw, source)
    quick_part = raw.get("quick", {})
    _check_keys(quick_part, source, "quick.")
    raw = {**raw, **quick_part} if quick else raw
    kind = _kind(raw, source)
    experiment = Experiment(
        name=name,
        kind=kind.name,
        datasets=parse_datasets(_need(raw, "datasets", source), kind, source),
        indices=parse_indices(_index_value(raw, kind, source), kind, source),
        methods=parse_methods(raw.get("methods", ["card"]), source),
        recipe=raw.get("recipe", "modern"),
        title=raw.get("title", ""),
        report=raw.get("report", ""),
        arrays=tuple(_keep(entry, kind, source) for entry in raw.get("arrays", [])),
        rescore=tuple(_rescore(entry, kind, source) for entry in raw.get("rescore", [])),
        overrides=tuple(_override(entry, kind, source) for entry in raw.get("overrides", [])),
        variants=_variants(raw.get("variants", []), source) or (("", ()),),
        variants_of=parse_methods(raw["variants_of"], source) if "variants_of" in raw else (),
        source=source,
    )
    return check(experiment)


def parse_datasets(value: str | list[str], kind: Kind, where: str = "") -> tuple[str, ...]:
    """Names from a list or from text such as "boston,yacht" or "all"."""
    if value == "all":
        return tuple(kind.datasets)
    names = [name.lower().replace("-", "_") for name in _words(value, "data set", where)]
    for name in names:
        if name not in kind.datasets:
            raise unknown("data set", name, kind.datasets, where)
    return tuple(dict.fromkeys(names))


def parse_methods(value: str | list[str], where: str = "") -> tuple[str, ...]:
    names = _words(value, "method", where)
    for name in names:
        find_method(name, where)
    return tuple(dict.fromkeys(names))


def parse_indices(value: str | int | list[int], kind: Kind, where: str = "") -> tuple[int, ...] | None:
    """Splits or seeds from 3, [0, 2], "0-4,7" or "all" (None: as many as the data set has)."""
    if value == "all":
        return None
    parts = value if isinstance(value, list) else str(value).split(",")
    try:
        indices = [i for part in parts for i in _span(str(part))]
    except ValueError:
        remedy = "write numbers and spans such as 0-4,7, or all"
        prefix = f"{where}: " if where else ""
        raise BenchError(f"{prefix}cannot read {kind.index}s {value!r}; {remedy}") from None
    if not indices:
        raise BenchError(f"{where}: name a {kind.index}" if where else f"name a {kind.index}")
    return tuple(dict.fromkeys(indices))


def _span(text: str) -> range:
    first, _, last = text.strip().partition("-")
    span = range(int(first), int(last or first) + 1)
    if not span:
        raise ValueError(text)
    return span


def _words(value: str | list[str], what: str, where: str) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    words = [str(part).strip() for part in parts if str(part).strip()]
    if not words:
        raise BenchError(f"{where}: name a {what}" if where else f"name a {what}")
    return words


def _check_keys(raw: Mapping[str, Any], source: str, prefix: str = "") -> None:
    for key, value in raw.items():
        if key not in KEYS:
            raise unknown("key", prefix + key, [prefix + name for name in KEYS], source)
        if not isinstance(value, KEYS[key]):
            wanted = " or ".join(WORDS[kind] for kind in KEYS[key])
            raise BenchError(f"{source}: key {prefix + key!r} wants {wanted}, not {value!r}")


def _need(raw: Mapping[str, Any], key: str, source: str) -> Any:
    if key not in raw:
        raise BenchError(f"{source}: key {key!r} is missing; add {key} = ...")
    return raw[key]


def _kind(raw: Mapping[str, Any], source: str) -> Kind:
    name = _need(raw, "kind", source)
    if name not in KINDS:
        raise unknown("kind", name, KINDS, source)
    return KINDS[name]


def _index_value(raw: Mapping[str, Any], kind: Kind, source: str) -> Any:
    wrong = "seeds" if kind.index == "split" else "splits"
    if wrong in raw:
        raise BenchError(f"{source}: key {wrong!r} is not for kind {kind.name!r}; write {kind.index + 's'!r}")
    return _need(raw, kind.index + "s", source)


def _override(entry: Any, kind: Kind, source: str) -> Override:
    _check_entry(entry, OVERRIDE_KEYS, "overrides", source)
    found = Override(**{**_placed(entry, kind, source), "set": freeze(entry["set"])})
    known = _parameters_of(found, kind, source)
    for key in entry["set"]:
        if known is not None and key not in known:
            raise unknown(f"parameter of {found.method}" if found.method else "parameter", key, known, source)
    return found


def _parameters_of(override: Override, kind: Kind, source: str) -> list[str] | None:
    """What the methods that an override is for have to set; None if one of them does not tell."""
    found = [find_method(override.method, source)] if override.method else methods().values()
    able = [m for m in found if kind.task in m.build and override.recipe in (None, *m.recipes)]
    told = [m.parameters(kind.task) if m.parameters is not None else None for m in able]
    return None if None in told or not able else sorted({name for names in told for name in names or ()})


def _keep(entry: Any, kind: Kind, source: str) -> Keep:
    if not isinstance(entry, Mapping) or entry.get("keep") not in KEEPS[kind.task]:
        found = entry.get("keep") if isinstance(entry, Mapping) else entry
        raise unknown("arrays.keep", found, KEEPS[kind.task], source)
    _check_names(entry, KEEP_KEYS, "arrays", source)
    return Keep(**_placed(entry, kind, source))


def _rescore(entry: Any, kind: Kind, source: str) -> Rescore:
    _check_entry(entry, RESCORE_KEYS, "rescore", source)
    entry = _placed(entry, kind, source)
    for key in entry["set"]:
        if key not in OF_PREDICTION:
            valid = ", ".join(OF_PREDICTION)
            raise BenchError(
                f"{source}: 'rescore' can set what the fit does not depend on, {valid}; not {key!r}"
            )
    return Rescore(**{**entry, "name": _need(entry, "name", source), "set": freeze(entry["set"])})


def _placed(entry: Mapping[str, Any], kind: Kind, source: str) -> dict[str, Any]:
    """The entry, its data set by its own name. One that there is not, or a method or recipe, is refused."""
    for key in ("dataset", "method", "recipe", "name"):
        if not isinstance(entry.get(key, ""), str):
            raise BenchError(f"{source}: key {key!r} wants text, not {entry[key]!r}")
    found = dict(entry)
    if "dataset" in entry:
        (found["dataset"],) = parse_datasets([entry["dataset"]], kind, source)
    if "method" in entry:
        find_method(entry["method"], source)
    recipes = {"default", *(recipe for method in methods().values() for recipe in method.recipes)}
    if "recipe" in entry and entry["recipe"] not in recipes:
        raise unknown("recipe", entry["recipe"], sorted(recipes), source)
    return found


def _variants(entries: list[Any], source: str) -> tuple[tuple[str, Settings], ...]:
    for entry in entries:
        _check_entry(entry, VARIANT_KEYS, "variants", source)
    names = [_need(entry, "name", source) for entry in entries]
    for name in names:
        if not isinstance(name, str) or names.count(name) > 1:
            raise BenchError(f"{source}: variants want names of their own, as text; one is {name!r}")
    return tuple((name, freeze(entry["set"])) for name, entry in zip(names, entries, strict=True))


def _check_entry(entry: Any, keys: tuple[str, ...], name: str, source: str) -> None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("set"), Mapping):
        raise BenchError(f"{source}: each of {name!r} wants a table with set = {{ parameter = value }}")
    _check_names(entry, keys, name, source)


def _check_names(entry: Mapping[str, Any], keys: tuple[str, ...], name: str, source: str) -> None:
    for key in entry:
        if key not in keys:
            raise unknown("key", f"{name}.{key}", [f"{name}.{valid}" for valid in keys], source)


def find_all(folder: Path) -> dict[str, Path]:
    """The experiment files in a folder by name."""
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
