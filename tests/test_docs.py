"""Every Python block of the README and docs runs, a page's blocks in order; every shell command exists."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from card.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
@pytest.mark.filterwarnings("default")
def test_python_blocks_run(path, tmp_path, monkeypatch):
    if "card.integrations.skpro" in path.read_text(encoding="utf-8"):
        pytest.importorskip("skpro")
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": path.stem}
    for number, block in enumerate(blocks(path, "python"), start=1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)


COMMANDS = [
    (path.name, line.strip())
    for path in PAGES
    for language in ("sh", "shell", "bash", "console")
    for block in blocks(path, language)
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip().removeprefix("$ ").startswith("card ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_shell_lines_use_commands_and_options_that_exist(page, line):
    _, name, *arguments = shlex.split(line.removeprefix("$ "), comments=True)
    command = get_command(app).commands[name]
    if name == "bench":
        return
    options = {option for parameter in command.params for option in parameter.opts}
    used = {a.partition("=")[0] for a in arguments if a.startswith("--")}
    assert used <= options | {"--help"}
