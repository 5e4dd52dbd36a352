"""Rules for the subject of a commit: ``python -m tools.commit_message FILE``.

The file holds the message, as in git's hook ``commit-msg``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_COLUMNS: Final = 72
SHAPE: Final = re.compile(r"[a-z0-9_./-]+(?:(?:, | and )[a-z0-9_./-]+)*: (?P<first>[a-z][\w-]*)\b")
"""``<part>: <imperative>``, where several parts may be named."""
IMPERATIVES: Final = frozenset(
    {"bring", "embed", "exceed", "feed", "need", "ping", "speed", "succeed"}
)
"""Verbs that end like a participle."""
TEMPORARY: Final = ("fixup! ", "squash! ", "amend! ")
"""Subjects that git joins with another commit before it is pushed."""


def faults(subject: str) -> Iterator[str]:
    """Yield what is wrong with the first line of a message."""
    if len(subject) > MAX_COLUMNS:
        yield f"{len(subject)} characters instead of at most {MAX_COLUMNS}"
    if ";" in subject:
        yield "a semicolon: make two commits of it"
    match = SHAPE.match(subject)
    if match is None:
        yield "no subject of the form '<part>: <imperative>'"
    elif match["first"].endswith(("ed", "ing")) and match["first"] not in IMPERATIVES:
        yield f"{match['first']!r} is no imperative"
    if subject.endswith("."):
        yield "a period at the end"


def main(arguments: list[str]) -> int:
    """Print the faults of one message. Return 1 if there are any."""
    subject = Path(arguments[0]).read_text(encoding="utf-8").split("\n", 1)[0]
    if subject.startswith(TEMPORARY):
        return 0
    found = list(faults(subject))
    for fault in found:
        print(f"commit message: {fault}: {subject}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
