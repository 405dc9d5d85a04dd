"""card report: a model and a file of known rows in, one HTML page out."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from card.app.common import Terminal, counted, known_rows, load_model, require_other
from card.plots import new_figure
from card.report import build_report
from card.writing import atomic, require_free

MOST_ROWS = 20_000


@dataclass(frozen=True)
class ReportOptions:
    """What the person asked for."""

    model: Path
    data: Path
    out: Path
    target: list[str] = field(default_factory=list)
    encoding: str = "utf-8"
    force: bool = False


def report(options: ReportOptions, terminal: Terminal) -> None:
    """Read the rows, build the page, write it."""
    new_figure()  # without matplotlib there is no report: better said now than after the predictions
    require_other(options.out, options.data, options.model)
    require_free(options.out, options.force)
    model = load_model(options.model)
    chunks, n_rows = [], 0
    for chunk in known_rows(model, options.data, options.target, options.encoding, terminal):
        chunks.append(chunk)
        n_rows += len(chunk[0])
        if n_rows >= MOST_ROWS:
            terminal.warn(f"the report is on the first {n_rows} rows")
            break
    numbers, X, y = (list(part) for part in zip(*chunks, strict=True))
    table = pd.concat(X, ignore_index=True)
    with counted(terminal, "report", table.shape[1]) as advance:
        page = build_report(
            model,
            table,
            np.concatenate(y),
            title=f"{options.data.name}: how far can the predictions be trusted?",
            source=f"Model {options.model.name}, rows of {options.data.name}.",
            numbers=np.concatenate(numbers),
            advance=advance,
        )
    with atomic(options.out, options.force) as part:
        part.write_text(page, encoding="utf-8")
    terminal.result(f"report on {n_rows} rows in {options.out}", {"rows": n_rows, "out": str(options.out)})
