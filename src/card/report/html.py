"""Small pieces of HTML; every text from outside is escaped here and nowhere else."""

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

WIDTH, HEIGHT = 4.8, 3.5  # inches of a figure: legible on a phone, two beside each other on a screen


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
        "<footer>Written by card-diffusion. This file is complete: it loads nothing from anywhere.</footer>"
        "</body></html>\n"
    )


def text(*sentences: str) -> str:
    """A paragraph."""
    return f"<p>{escape(' '.join(sentences))}</p>"


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], numeric: Sequence[int] = ()) -> str:
    """A table; columns whose positions are in `numeric` are set flush right."""
    css = ['class="n"' if i in numeric else "" for i in range(len(headings))]
    head = "".join(f"<th {c}>{escape(h)}</th>" for h, c in zip(headings, css, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {c}>{escape(str(v))}</td>" for v, c in zip(row, css, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def tiles(items: Iterable[tuple[str, str, str, str]]) -> str:
    """Headline numbers: (name, value, beside it, meaning)."""
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><h3>{escape(name)}</h3><p class="value">{escape(value)}</p>'
            f'<p class="beside">{escape(beside)}</p><p class="meaning">{escape(meaning)}</p></div>'
            for name, value, beside, meaning in items
        )
        + "</div>"
    )


def figures(items: Iterable[tuple[Any, str, str]]) -> str:
    """Pictures side by side: (Axes, title, caption)."""
    return '<div class="figures">' + "".join(_figure(*item) for item in items) + "</div>"


def columns(*parts: str) -> str:
    """Pieces of HTML side by side, where there is room."""
    return '<div class="figures">' + "".join(f"<div>{part}</div>" for part in parts) + "</div>"


def _figure(ax: Any, title: str, caption: str) -> str:
    return (
        f'<figure><h3>{escape(title)}</h3><img src="{_data(ax)}" alt="{escape(title)}: {escape(caption)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def canvas(height: float = HEIGHT) -> Any:
    """Axes of the report's size."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the report needs matplotlib: pip install 'card-diffusion[plots]'") from None
    return Figure(figsize=(WIDTH, height), layout="constrained").add_subplot()


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
