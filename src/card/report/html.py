"""Small pieces of HTML; every text from outside is escaped here and nowhere else."""

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from card import __version__
from card.plots import new_figure

WIDTH, HEIGHT = 4.1, 3.2  # inches of a figure: letters of 11 pixels on a phone, of 16 on a screen


def page(title: str, lead: str, sections: Iterable[tuple[str, str]]) -> str:
    """The whole document; sections are (heading, HTML)."""
    parts = [(f"s{i}", heading, body) for i, (heading, body) in enumerate(sections)]
    links = "".join(f'<a href="#{key}">{escape(heading)}</a>' for key, heading, _ in parts)
    body = "".join(
        f'<section id="{key}"><h2>{escape(heading)}</h2>{html}</section>' for key, heading, html in parts
    )
    style = resources.files("card.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{escape(title)}</h1>{lead}<nav>{links}</nav></header><main>{body}</main>"
        f"<footer>Written by card-diffusion {__version__}. This file is complete: it loads nothing from "
        "anywhere.</footer>"
        "</body></html>\n"
    )


def text(*sentences: str) -> str:
    """A paragraph."""
    return f"<p>{prose(' '.join(sentences))}</p>"


def prose(words: str) -> str:
    """Escaped, and no line breaks before a percent sign or around plus-minus.

    >>> prose("95 % < all")
    '95\\xa0% &lt; all'
    """
    space = "\N{NO-BREAK SPACE}"
    return escape(words).replace(" %", f"{space}%").replace(" ± ", f"{space}±{space}")


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], numeric: Sequence[int] = (), stack: bool = False
) -> str:
    """A table; columns whose positions are in `numeric` are set flush right.

    With `stack` the cells of a row stand below each other on a phone, each with its heading.
    """
    css = [' class="n"' if i in numeric else "" for i in range(len(headings))]
    says = [f' data-label="{escape(h)}"' if stack else "" for h in headings]
    head = "".join(f"<th{c}>{escape(h)}</th>" for h, c in zip(headings, css, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{c}{s}>{escape(str(v))}</td>" for v, c, s in zip(row, css, says, strict=True))
        + "</tr>"
        for row in rows
    )
    kind = ' class="stack"' if stack else ""
    return (
        f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def tiles(items: Iterable[tuple[str, str, str, str]]) -> str:
    """Headline numbers: (name, value, beside it, meaning)."""
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><h3>{escape(name)}</h3><p class="value">{escape(value)}</p>'
            + (f'<p class="beside">{prose(beside)}</p>' if beside else "")
            + f'<p class="meaning">{prose(meaning)}</p></div>'
            for name, value, beside, meaning in items
        )
        + "</div>"
    )


def figures(items: Iterable[tuple[Any, str, str]]) -> str:
    """Pictures side by side: (Axes, title, caption)."""
    return '<div class="figures">' + "".join(figure(*item) for item in items) + "</div>"


def columns(*parts: str) -> str:
    """Pieces of HTML side by side, where there is room."""
    return '<div class="figures">' + "".join(f"<div>{part}</div>" for part in parts) + "</div>"


def figure(ax: Any, title: str, caption: str) -> str:
    """One picture with its heading and what it says."""
    return (
        f'<figure><h3>{escape(title)}</h3><img src="{_data(ax)}" alt="{escape(title)}: {escape(caption)}">'
        f"<figcaption>{prose(caption)}</figcaption></figure>"
    )


def canvas(height: float = HEIGHT) -> Any:
    """Axes of the report's size."""
    return new_figure(WIDTH, height).add_subplot()


def _data(ax: Any) -> str:
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "card", "svg.fonttype": "path"}):
        ax.get_figure(root=True).savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def number(value: float) -> str:
    """Four significant digits, without an exponent where it can be helped.

    >>> number(12345.678), number(0.01234567)
    ('12,346', '0.01235')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def chance(p: float) -> str:
    """A probability, with the digits that matter.

    >>> chance(0.51234), chance(0.99996), chance(3.6e-208)
    ('0.512', '> 0.999', '< 0.001')
    """
    return "> 0.999" if p > 0.9995 else "< 0.001" if p < 0.0005 else f"{p:.3f}"
