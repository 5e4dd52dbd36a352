"""Rules for the prose of the project: words, length of sentences, first words of docstrings.

``python -m tests.house._language FILE...`` prints what the files break in addition to their
committed versions. ``--all`` prints the rest, too.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house._prose import Text, markdown_texts, python_texts, sentences, words
from tests.house._source import ROOT

MAX_WORDS = 25
MAX_WORDS_OF_PARAGRAPH = 80
MAX_COLUMNS = 100
HEADLESS = re.compile(r"^(?:What|Who|Whose|Whom|Where|How|Whether|Of|As|So|That|Such)\b")
WORDS = re.compile(
    r"""\b(?:
        anew | at\ will | in\ the\ midst | but\ for | any\ more | sees?\ to | affair
      | of\ (?:its|one's|their|his|our|your)\ own | by\ (?:itself|himself|themselves)
      | so\ (?:many|long|much) | nobody | somebody | mend(?:s|ed|ing)? | told | tells?
      | deal[ts]? | dealt | handout | performer | parting | mailbox | bell
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words that a reader who knows Kafka and Python has to read twice, and metaphors."""
MARKS = re.compile(r";|:(?=\s|$)|\((?!\))")
ROLE = re.compile(r":(?:class|meth|func|attr|data|mod|exc):")


@dataclass(frozen=True)
class Finding:
    """One place where the prose breaks a rule."""

    rule: str
    where: str
    text: str

    @property
    def package(self) -> str:
        """Folder of two levels, such as ``kohort/fetcher``."""
        path = Path(self.where.rpartition(":")[0])
        return "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]


def findings(path: Path, source: str | None = None) -> Iterator[Finding]:
    """Yield every place that breaks a rule in a Python file or a Markdown page.

    ``source`` replaces the content of the file.
    """
    source = path.read_text() if source is None else source
    texts = markdown_texts if path.suffix == ".md" else python_texts
    for text in texts(source, path):
        for rule, found in _findings(text):
            yield Finding(rule, text.where, found)
    yield from _wide_lines(source, path)


def _findings(text: Text) -> Iterator[tuple[str, str]]:
    for match in WORDS.finditer(re.sub(r"``[^`]*``|`[^`]*`", "x", text.text)):
        yield "word", match[0]
    for sentence in sentences(text.text):
        if (count := len(words(sentence))) > MAX_WORDS:
            yield "long", f"{count} words: {sentence[:120]}"
        bare = ROLE.sub("", re.sub(r"``[^`]*``|`[^`]*`", "x", sentence))
        bare = re.sub(r"https?:|::|\]\([^)]*\)", " ", bare)
        if (count := len(MARKS.findall(bare))) > 1:
            yield "marks", f"{count} marks: {sentence[:120]}"
    if text.kind == "docstring" and HEADLESS.match(text.text):
        yield "headless", text.text[:80]
    if text.kind == "markdown" and len(words(text.text)) > MAX_WORDS_OF_PARAGRAPH:
        yield "paragraph", text.text[:60]


def _wide_lines(source: str, path: Path) -> Iterator[Finding]:
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_table = path.suffix == ".md" and line.lstrip().startswith("|")
        if len(line) > MAX_COLUMNS and not is_code and not is_table:
            yield Finding("wide", f"{path.relative_to(ROOT)}:{number}", line[:60])


def _committed(path: Path) -> str | None:
    """Return the content of the file in the last commit, or None if it is new."""
    name = path.relative_to(ROOT).as_posix()
    show = ["git", "show", f"HEAD:{name}"]
    done = subprocess.run(show, cwd=ROOT, capture_output=True, check=False)
    return done.stdout.decode() if done.returncode == 0 else None


def new_findings(path: Path, before: str | None) -> Iterator[Finding]:
    """Yield what the file breaks in addition to what its older content broke."""
    known = findings(path, before) if before is not None else ()
    old = collections.Counter((found.rule, found.text) for found in known)
    for found in findings(path):
        old[found.rule, found.text] -= 1
        if old[found.rule, found.text] < 0:
            yield found


def main(arguments: Iterable[str]) -> int:
    """Print the findings in the named files. Return 1 if there are any."""
    names = [*arguments]
    is_all = "--all" in names
    count = 0
    for path in [Path(name).resolve() for name in names if name != "--all"]:
        for found in findings(path) if is_all else new_findings(path, _committed(path)):
            print(f"{found.where}: {found.rule}: {found.text}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
