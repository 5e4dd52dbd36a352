"""Parts of generated pages in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

COLUMNS = 100


def wrapped(text: str, indent: str = "") -> str:
    """Return paragraphs in lines of 100 columns at most. ``indent`` is for all but the first."""
    return "\n\n".join(
        textwrap.fill(
            each,
            COLUMNS,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for each in text.split("\n\n")
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    for cells in (head, ["---"] * len(head), *rows):
        yield " | ".join(cell.replace("|", r"\|") for cell in cells).join(("| ", " |"))
