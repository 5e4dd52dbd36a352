"""Table of contents of a long page.

It lists the headings of the second and third level as links, between two comments of the page.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

BEGIN: Final = "<!-- contents: python -m tools.generate"
END: Final = "<!-- end of contents -->\n"
MAX_COLUMNS: Final = 100
HEADING: Final = re.compile(r"^(#{2,3}) (.+)$")


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and Python-Markdown make it."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def headings(page: str) -> Iterator[tuple[int, str]]:
    """Yield level and text of the headings of level 2 and 3, without those in blocks of code."""
    is_code = False
    for line in page.splitlines():
        if line.startswith("```"):
            is_code = not is_code
        match = None if is_code else HEADING.match(line)
        if match:
            yield len(match[1]), match[2]


def contents(page: str) -> str:
    """Return the table of contents as a nested list."""
    return "".join(_entry("    " * (level - 2), text) for level, text in headings(page))


def _entry(indent: str, text: str) -> str:
    link = f"[{text.replace('`', '')}](#{anchor(text)})"
    return (
        textwrap.fill(
            link,
            MAX_COLUMNS,
            initial_indent=f"{indent}- ",
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def updated(page: str) -> str:
    """Return the page with its table of contents of now."""
    before, begin, rest = page.partition(BEGIN)
    comment, _, old = rest.partition("\n")
    _, end, after = old.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for contents: {BEGIN}...")
    return f"{before}{begin}{comment}\n\n{contents(page)}\n{end}{after}"
