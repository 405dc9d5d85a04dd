"""Imports point one way: lower modules know nothing of higher ones."""

import ast
from pathlib import Path

import card

SOURCE = Path(card.__file__).parent
FLOORS = [
    {
        "noise",
        "rows",
        "codec",
        "warp",
        "columns",
        "checkpoint",
        "recipes",
        "metrics",
        "datasets",
        "images",
        "views",
        "bundle",
        "commands",
    },
    {"nn", "networks", "stacked", "encoding", "forest", "files", "confidence", "labels"},
    {"writing", "features", "sample", "train", "deferral"},
    {"progress", "mean", "denoise", "flow", "learners"},
    {"trees"},
    {"class_learners", "class_denoise", "class_folds"},
    {"crossfit", "mixture"},
    {"model", "distribution"},
    {"averaging"},
    {"fit", "conformal", "responses", "vector", "reader", "held_out"},
    {"magnitude"},
    {"together", "manners", "class_networks", "class_model"},
    {"base"},
    {"class_fit", "class_parameters"},
    {"class_triage", "class_together"},
    {"estimators", "classifier"},
    {"facts"},
    {"model_card", "plots", "evaluation", "class_persist", "regressor_persist"},
    {"persist"},
    {"integrations", "bench", "report"},
    {"baselines", "peers"},
    {"app"},
    {"cli"},
]


def floor(name: str) -> int:
    for height, modules in enumerate(FLOORS):
        if name in modules:
            return height
    raise AssertionError(f"{name} has no floor: say in FLOORS where it belongs")


def imported(path: Path) -> set[str]:
    """Modules of card that a file imports at its top level."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "card":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names if a.name != "__version__"}
    return names


def test_imports_point_down():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).with_suffix("").parts[0]
        if name in {"__init__", "__main__"}:
            continue
        wrong += [
            f"{name} imports {other}"
            for other in imported(path)
            if other != name and floor(other) >= floor(name)
        ]
    assert not wrong


def test_metrics_stand_alone():
    for path in (SOURCE / "metrics").glob("*.py"):
        assert imported(path) <= {"metrics"}
