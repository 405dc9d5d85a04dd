"""Pages with tables in them, which are made anew from the reports.

A table stands between two comments, the first of which is the command that makes it:

    <!-- card bench table reproduction -->
    ...
    <!-- end -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from card.bench.errors import BenchError

TABLE = re.compile(r"<!-- card bench table (?P<words>[^\n]*?) -->\n.*?<!-- end -->", flags=re.S)


def filled(text: str, make: Callable[[list[str]], str], where: str = "") -> str:
    """The text with each of its tables made by `make` from the words of its command.

    >>> filled("<!-- card bench table uci --recipe paper -->\\nold\\n<!-- end -->", str).splitlines()[2]
    "['uci', '--recipe', 'paper']"
    """
    if not TABLE.search(text):
        raise BenchError(f"{where}: no table to make; write <!-- card bench table NAME --> and <!-- end -->")

    def table(match: re.Match[str]) -> str:
        made = make(shlex.split(match["words"]))
        return f"<!-- card bench table {match['words']} -->\n\n{made}\n\n<!-- end -->"

    return TABLE.sub(table, text)
