"""Every table by name: which report files it reads, and the function that makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from card.bench import bars, class_tables, comparison, luck, reports, reproduction, tables
from card.bench.render import Table

Build = Callable[[Sequence[reports.Report], Collection[str]], list[Table]]


@dataclass(frozen=True)
class TableEntry:
    """A named table; `files` are read from the results folder and put together."""

    title: str
    build: Build
    files: tuple[str, ...]
    methods: tuple[str, ...] = ("card",)
    """Shown if none are asked for."""


TABLES = {
    "toy": TableEntry("RMSE, QICE, PICP of the eight toys", tables.toy, ("toy.jsonl",)),
    "toy-law": TableEntry("the toys beside the law itself, on the same rows", luck.toy_law, ("toy.jsonl",)),
    "uci": TableEntry("RMSE, NLL, QICE, PICP beside the paper's five methods", tables.uci, ("uci.jsonl",)),
    "glance": TableEntry("beside the paper's CARD, in short", tables.glance, ("uci.jsonl",)),
    "comparison": TableEntry(
        "wins, losses and ranks of all methods run", comparison.comparison, ("uci.jsonl",), ("all",)
    ),
    "wins": TableEntry("wins and losses alone", comparison.wins, ("uci.jsonl",), ("all",)),
    "bars": TableEntry("each UCI cell against the paper's CARD and best method", bars.bars, ("uci.jsonl",)),
    "reproduction": TableEntry(
        "the paper's methods against the paper, cell by cell",
        reproduction.reproduction,
        ("uci.jsonl", "toy.jsonl", "boston-ablation.jsonl"),
        tuple(reproduction.METHODS),
    ),
    "samplers": TableEntry(
        "the paper's chain and what stands in for it", reproduction.samplers, ("uci.jsonl",)
    ),
    "boston-ablation": TableEntry(
        "chain length and prior on Boston", tables.boston_ablation, ("boston-ablation.jsonl", "uci.jsonl")
    ),
    "images": TableEntry(
        "classes, beside f and the paper's CARD, in short", class_tables.images, ("classification.jsonl",)
    ),
    "classification": TableEntry(
        "accuracy, NLL, PAvPU, PIW, t-test",
        class_tables.classification,
        ("classification.jsonl",),
        ("all",),
    ),
    "by-class": TableEntry("PIW and t-test by class", class_tables.by_class, ("classification.jsonl",)),
    "cifar10-ablation": TableEntry(
        "prior and network input on CIFAR-10", class_tables.cifar10_ablation, ("classification.jsonl",)
    ),
    "sizes": TableEntry(
        "model size and throughput", class_tables.sizes, ("toy.jsonl", "uci.jsonl", "classification.jsonl")
    ),
}


def read_files(results: Path, files: Sequence[str]) -> list[reports.Report]:
    """All reports of some files of a results folder."""
    return [report for name in files for report in reports.read(results / name)]


def select(found: Sequence[reports.Report], methods: Sequence[str], recipe: str) -> list[reports.Report]:
    """The reports of some methods (["all"]: any) and of one recipe ("": any)."""
    return [
        report
        for report in found
        if (list(methods) == ["all"] or report["method"] in methods)
        and (not recipe or report["recipe"] in (recipe, "default"))
    ]
