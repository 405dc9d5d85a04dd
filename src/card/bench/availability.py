"""Which data sets this machine holds; nothing is read or downloaded to find out."""

from __future__ import annotations

from card.bench.kinds import IMAGES, KINDS
from card.datasets import fetch, images, uci


def missing_data() -> set[str]:
    """Names of data sets that are neither packaged, nor under CARD_DATA, nor in the cache."""
    named = {**{name: _uci_paths(name) for name in KINDS["uci"].datasets}, **_image_paths()}
    return {name for name, paths in named.items() if paths and fetch.locate(paths) is None}


def _uci_paths(name: str) -> list[str]:
    if uci.SOURCES[name].packaged:
        return []
    if name == "year":
        files = ("YearPredictionMSD.txt", "YearPredictionMSD.txt.zip")
        return [f"{folder}{file}" for folder in ("uci/", "") for file in files]
    return [f"uci/{name}.npz", f"uci/{name}.txt"]


def _image_paths() -> dict[str, list[str]]:
    paths = {name: [f"{name}/train"] for name in IMAGES}
    for name in paths.keys() & images.SOURCES.keys():
        source = images.SOURCES[name]
        folders = getattr(source, "folders", None) or (getattr(source, "folder", name),)
        paths[name] = [*folders, *(f"{name}/{folder}" for folder in folders)]
    return paths
