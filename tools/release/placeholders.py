"""The list of what is not known yet: addresses and owners that a person has to fill in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PLACEHOLDER: Final = re.compile(
    r"[\w@./:-]+\.invalid\b[\w@./-]*|@?PLACEHOLDER[\w-]*|^SITE: Final\[str\] = \"\""
)
"""Addresses under the reserved ending of RFC 2606, marked names, and an empty address."""
FILES: Final = ("pyproject.toml", "mkdocs.yml", "*.md", ".github", "kohort/errors/addresses.py")
"""Files to search. The code and its tests use the ending for hosts that do not exist."""


def placeholders() -> list[str]:
    """Return each placeholder after its file and line."""
    command = ["git", "ls-files", "-z", "--", *FILES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    found = []
    for name in sorted(filter(None, listed.split("\0"))):
        if not name.startswith(("docs/", "CHANGELOG")):
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, start=1):
                found += [f"{name}:{number}: {text}" for text in PLACEHOLDER.findall(line)]
    return found


if __name__ == "__main__":
    left = placeholders()
    print(*left, sep="\n")
    sys.exit(1 if left else 0)
