"""Files of Java properties, such as ``server.properties``."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Return the entries of a file of Java properties: ``name=value`` lines, ``#`` comments."""
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        assert match is not None, line
        entries[_plain(match[1])] = _plain(match[2])
    return entries


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments and blanks, and join those that end with a backslash."""
    found: list[str] = []
    begun = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            begun += line[:-1]
            continue
        found.append(begun + line)
        begun = ""
    return [*found, begun] if begun else found


def _plain(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)

    return _ESCAPE.sub(replaced, text)
