"""Figures of the prose in README and docs: ``python -m tools.prose [FILE...]``.

Prose is paragraphs and list items. Headings, tables, blocks of code and HTML comments are left out.
A passive is a form of *be* and a participle, with at most one adverb between them. A participle is
a word on "-ed" or one of ``IRREGULAR``. A first screen has 40 lines. A fenced block of Python or a
shell begins there, and not with ``NOT_RUN``.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.house._prose import markdown_texts, sentences, words

ROOT: Final = Path(__file__).parents[1]
FIRST_SCREEN: Final = 40
MAX_COLUMNS: Final = 100
MAX_CELL: Final = 15
WITHOUT_CODE: Final = ("docs/reference/", "docs/internals/", "docs/architecture.md")
"""Reference and internals, which need no code in the first screen."""

RUNNABLE: Final = re.compile(r"^```(python|sh|bash|console)\b")
NOT_RUN: Final = "# not run: "
"""Begin of a block that no test runs, because it needs a cluster or another client."""

IRREGULAR: Final = (
    "been begun bound bought broken brought built caught chosen cut done drawn driven drawn fed "
    "felt forgotten found given gone got grown heard held hidden kept known laid led left lent "
    "lost made meant met overridden paid put read rewritten rung run said seen sent set shown "
    "shut sold spent split spoken stood struck sworn taken taught thought thrown told torn "
    "understood undone woken won written"
)
_BE = r"(?:am|is|are|was|were|be|been|being)"
_ADVERB = r"(?:\w+ly|not|never|always|also|then|often|still|now|already|just|only|both|all|again)"
_NOT_PARTICIPLES = r"(?!indeed\b|need\b|red\b|speed\b|embed\b|seed\b|feed\b|hundred\b|kindred\b)"
PASSIVE: Final = re.compile(
    rf"\b{_BE}\s+(?:{_ADVERB}\s+)?{_NOT_PARTICIPLES}(?:\w+ed|{'|'.join(IRREGULAR.split())})\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class Figures:
    """Figures of one page, or of several added together."""

    name: str
    sentences: list[int] = field(default_factory=list)
    """Number of words of each sentence."""
    paragraphs: list[int] = field(default_factory=list)
    """Number of words of each paragraph and list item."""
    passives: list[str] = field(default_factory=list)
    """Each passive, with its line."""
    wide_lines: int = 0
    """Number of lines over 100 columns. Rows of tables are left out, because they cannot wrap."""
    long_cells: int = 0
    """Number of table cells of more than 15 words."""
    without_code: int = 0
    """Number of pages that need runnable code in the first screen and have none."""

    @property
    def passives_per_1000(self) -> float:
        """Passives per 1,000 words."""
        return 1000 * len(self.passives) / max(1, sum(self.paragraphs))


def pages() -> list[Path]:
    """Return README and all pages of ``docs``."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def percentile(values: Sequence[int], percent: int) -> int:
    """Return the smallest value that ``percent`` of all values do not exceed. 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0


def measure(path: Path, source: str | None = None) -> Figures:
    """Return the figures of one page. ``source`` replaces the content of the file."""
    source = path.read_text(encoding="utf-8") if source is None else source
    source = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
    name = path.relative_to(ROOT).as_posix()
    texts = [text for text in markdown_texts(source, path) if words(text.text)]
    found = [count for text in texts for each in sentences(text.text) if (count := _count(each))]
    lines = source.splitlines()
    return Figures(
        name,
        found,
        [_count(text.text) for text in texts],
        [
            f"{text.where}: {' '.join(match[0].split())}"
            for text in texts
            for match in PASSIVE.finditer(_CODE.sub("x", text.text))
        ],
        sum(len(line) > MAX_COLUMNS and not line.lstrip().startswith("|") for line in lines),
        sum(_count(cell) > MAX_CELL for cell in _cells(lines)),
        int(not name.startswith(WITHOUT_CODE) and not _has_code(lines)),
    )


def total(parts: Iterable[Figures]) -> Figures:
    """Return the figures of all pages together."""
    found = [*parts]
    return Figures(
        "all",
        [each for part in found for each in part.sentences],
        [each for part in found for each in part.paragraphs],
        [each for part in found for each in part.passives],
        sum(part.wide_lines for part in found),
        sum(part.long_cells for part in found),
        sum(part.without_code for part in found),
    )


def table(parts: Sequence[Figures]) -> str:
    """Return a Markdown table with a row for each page and one for all."""
    head = (
        "| page | words | sentence p50 | sentence p90 | paragraph p90 | passives per 1,000 "
        "| lines over 100 columns | cells over 15 words | no code in first screen |"
    )
    return "\n".join([head, "|---|" + "---:|" * 8, *map(_row, [*parts, total(parts)])])


def _row(each: Figures) -> str:
    cells = (
        each.name,
        f"{sum(each.paragraphs):,}",
        percentile(each.sentences, 50),
        percentile(each.sentences, 90),
        percentile(each.paragraphs, 90),
        f"{each.passives_per_1000:.1f}",
        each.wide_lines,
        each.long_cells,
        each.without_code,
    )
    return f"| {' | '.join(map(str, cells))} |"


def _count(text: str) -> int:
    return len(words(text))


def _cells(lines: Iterable[str]) -> Iterator[str]:
    is_code = False
    for line in lines:
        is_code ^= line.lstrip().startswith("```")
        if not is_code and line.startswith("|"):
            yield from re.split(r"(?<!\\)\|", line)


def _has_code(lines: Sequence[str]) -> bool:
    return any(
        RUNNABLE.match(line.lstrip()) and not after.startswith(NOT_RUN)
        for line, after in itertools.pairwise([*lines[: FIRST_SCREEN + 1], ""])
    )


def main(arguments: Sequence[str]) -> None:
    """Print the table. ``--passives`` also prints each passive."""
    named = [Path(name).resolve() for name in arguments if name != "--passives"]
    parts = [measure(path) for path in named or pages()]
    print(table(parts))
    if "--passives" in arguments:
        print(*total(parts).passives, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
