"""Every code block of the README and docs runs, a page's blocks in order; experiments are parsed only."""

import re
import shlex
from pathlib import Path

import pytest
from houses import QUICK, QUICK_OPTIONS, houses
from shell import run
from typer.main import get_command

import card.app.fit
from card.bench.cli import app as bench
from card.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
NOT_OURS = ("pip", "python3", "export", "make", "unzip", "treeffuser-env/bin/pip")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_every_block_is_in_a_language_that_is_run():
    for path in PAGES:
        fences = re.findall(r"^```(.*)$", path.read_text(encoding="utf-8"), flags=re.M)
        assert set(fences[::2]) <= {"python", "sh"}, path.name
        assert set(fences[1::2]) <= {""}, path.name


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
@pytest.mark.filterwarnings("default")
def test_python_blocks_run(path, tmp_path, monkeypatch):
    if "card.integrations.skpro" in path.read_text(encoding="utf-8"):
        pytest.importorskip("skpro")
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": path.stem}
    for number, block in enumerate(blocks(path, "python"), start=1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)


def shell_lines(path: Path) -> list[str]:
    text = "\n".join(blocks(path, "sh")).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("path", [p for p in PAGES if shell_lines(p)], ids=lambda p: p.name)
def test_shell_lines_run(path, tmp_path, monkeypatch):
    """On small tables of houses, with settings that make a fit quick; nothing else is changed."""
    quick = card.app.fit._estimator
    monkeypatch.setattr(card.app.fit, "_estimator", lambda *of: quick(*of).set_params(**QUICK))
    monkeypatch.chdir(tmp_path)
    for name, seed in (("houses", 0), ("new", 1), ("test", 2)):
        houses(40, seed).to_csv(f"{name}.csv", index=False)
    for line in shell_lines(path):
        program, *arguments = shlex.split(line, comments=True)
        if program in NOT_OURS:
            continue
        assert program == "card", line
        if arguments[0] == "bench":
            require_options(bench, arguments[1:])
        else:
            require_options(app, arguments)
            run(*arguments, *(QUICK_OPTIONS if arguments[0] == "demo" else []))


def require_options(commands, arguments: list[str]) -> None:
    """Every command and option must exist."""
    command = get_command(commands).commands[arguments[0]]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {a.partition("=")[0] for a in arguments if a.startswith("--")} <= options | {"--help"}


def test_the_readme_is_short_enough_for_five_minutes():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) < 1000
    (python,) = blocks(ROOT / "README.md", "python")
    assert len(python.strip().splitlines()) <= 13
    two, four = (block.strip().splitlines() for block in blocks(ROOT / "README.md", "sh"))
    assert (len(two), len(four)) == (2, 4)
