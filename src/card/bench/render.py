"""A table as a value, and four ways to print it: text, Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FORMATS = ("text", "markdown", "latex", "csv")


@dataclass(frozen=True)
class Table:
    """Cells of text under a title; `best` marks (row, column) of the winners."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    notes: tuple[str, ...] = ()


def render(table: Table, form: str = "text") -> str:
    """The table in one of `FORMATS`.

    Examples
    --------
    >>> t = Table("Scores", ("set", "rmse"), (("yacht", "0.5"),), best=frozenset({(0, 1)}))
    >>> print(render(t))
    Scores
    set    rmse
    -----  ----
    yacht  0.5*
    >>> print(render(t, "csv"))
    table,set,rmse
    Scores,yacht,0.5
    """
    writers: dict[str, Callable[[Table], str]] = {
        "text": _text,
        "markdown": _markdown,
        "latex": _latex,
        "csv": _csv,
    }
    return writers[form](table)


def _marked(table: Table, mark: Callable[[str], str]) -> list[list[str]]:
    return [
        [mark(cell) if (i, j) in table.best else cell for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]


def _text(table: Table) -> str:
    cells = _marked(table, lambda cell: cell + "*")
    widths = _widths([table.columns, *cells])
    lines = [table.title, _padded(table.columns, widths), _padded(["-" * w for w in widths], widths)]
    lines += [_padded(row, widths) for row in cells]
    return "\n".join([*lines, *table.notes])


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rows = _marked(table, lambda cell: f"**{cell}**")
    head = [f"**{table.title}**", "", line(table.columns), line(["---"] * len(table.columns))]
    notes = ["", *table.notes] if table.notes else []
    return "\n".join([*head, *map(line, rows), *notes])


def _latex(table: Table) -> str:
    plain = Table(table.title, table.columns, tuple(tuple(map(_tex, row)) for row in table.rows), table.best)
    body = [" & ".join(row) + r" \\" for row in _marked(plain, lambda cell: rf"\textbf{{{cell}}}")]
    return "\n".join(
        [
            r"\begin{table}  % with \usepackage{booktabs}",
            r"\centering",
            rf"\caption{{{_tex(' '.join([table.title + '.', *table.notes]))}}}",
            rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
            r"\toprule",
            " & ".join(map(_tex, table.columns)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _tex(text: str) -> str:
    for char in "&%$#_{}":
        text = text.replace(char, "\\" + char)
    return text.replace("±", r"$\pm$").replace("—", "---")


def _csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("table", *table.columns))
    writer.writerows((table.title, *row) for row in table.rows)
    return stream.getvalue().rstrip("\n")
