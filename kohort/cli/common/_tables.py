"""Tables, durations, numbers and commands as the commands print them.

A pipe gets the same text as a terminal, without colours and control characters. If a table is too
wide for a terminal, the longer one of its first and last columns is on separate lines, or both.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence

from kohort.types import escaped

_GAP = "  "
_INDENT = "    "
_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(s|[dhm]\d\d[hms])?|-")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns. Those of numbers are aligned to the right."""
    return render(headings, rows, _width())


def render(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Return the table for a terminal of this width, or for a pipe if None."""
    lines = [list(headings), *(list(row) for row in rows)]
    sizes = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    right = [all(is_number(row[column]) for row in rows) for column in range(len(headings))]
    first, last = 0, len(sizes)  # the columns that are side by side

    def is_too_wide() -> bool:
        total = sum(sizes[first:last]) + len(_GAP) * (last - 1)
        return width is not None and total > width and last - first > 1

    if is_too_wide():
        if sizes[0] > sizes[-1]:
            first = 1
        else:
            last -= 1
    if is_too_wide():
        first, last = 1, len(sizes) - 1
    text = []
    for number, line in enumerate(lines):
        cells = [
            each.rjust(size) if is_right else each.ljust(size)
            for each, size, is_right in zip(line, sizes, right, strict=True)
        ]
        text += line[:first]
        text.append((_GAP * first + _GAP.join(cells[first:last])).rstrip())
        if last < len(sizes) and number:
            assert width is not None
            text += textwrap.wrap(
                line[-1],
                max(20, width),
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_long_words=False,
            )
    return "\n".join(text)


def wrapped(text: str) -> str:
    """Return a line as several ones in a narrow terminal, which would break it within words."""
    width = _width()
    if width is None:
        return text
    return textwrap.fill(text, max(20, width), break_long_words=False, break_on_hyphens=False)


def undo_text(*words: str) -> str:
    """Return a line with the words of `kohort groups` that undo a change, quoted for a shell."""
    return f"Undo: {shlex.join(['kohort', 'groups', *map(escaped, words)])}"


def _width() -> int | None:
    """Return the width of the terminal, or None for a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def is_number(text: str) -> bool:
    """True for a number, a duration, or the sign for an unknown one."""
    return _NUMBER.fullmatch(text) is not None


def duration(seconds: float | None) -> str:
    """Return a duration such as ``3.2s``, ``4m10s`` or ``2d03h``, or ``-`` if it is unknown."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s".replace("0.0s", "0s")
    whole = round(seconds)
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{smaller}"
    return f"{whole}s"


def number(value: int | None) -> str:
    """Return a whole number with separators, or ``-`` if it is unknown."""
    return "-" if value is None else f"{value:,}"
