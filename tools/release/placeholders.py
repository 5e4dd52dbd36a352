"""The list of what is not known yet: addresses and owners that a person has to fill in."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tools.release.commands import ROOT, Row

PLACEHOLDER: Final = re.compile(
    r"[\w@./:-]+\.invalid\b[\w@./-]*|@?PLACEHOLDER[\w-]*|^SITE: Final\[str\] = \"\""
)
"""Addresses under the reserved ending of RFC 2606, marked names, and an empty address."""
CHECK: Final = "placeholder"
FILES: Final = ("pyproject.toml", "mkdocs.yml", "*.md", ".github", "kohort/errors/addresses.py")
"""Files to search. The code and its tests use the ending for hosts that do not exist."""


def placeholders() -> list[tuple[str, int, str]]:
    """Return file, line and text of each placeholder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *FILES],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    found = []
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if not name.startswith(("docs/", "CHANGELOG")):
                found += [(name, number, text) for text in PLACEHOLDER.findall(line)]
    return found


def list_placeholders() -> Iterator[Row]:
    """Report each placeholder. A release from here on would publish them."""
    for name, number, text in placeholders():
        yield Row(f"{name}:{number}", CHECK, None, text)


if __name__ == "__main__":
    left = [f"{name}:{number}: {text}" for name, number, text in placeholders()]
    print(*left, sep="\n")
    sys.exit(1 if left else 0)
