"""Rules for the prose of the project: words, length of sentences, first words of docstrings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
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


@functools.cache
def verbs() -> frozenset[str]:
    """Return the verbs that a function's docstring may begin with."""
    return frozenset((ROOT / "tests" / "house" / "verbs.txt").read_text().split())


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
    if text.kind == "docstring":
        yield from _first_word(text)
    if text.kind == "markdown" and len(words(text.text)) > MAX_WORDS_OF_PARAGRAPH:
        yield "paragraph", text.text[:60]


def _first_word(text: Text) -> Iterator[tuple[str, str]]:
    if HEADLESS.match(text.text):
        yield "headless", text.text[:80]
    elif text.function and not text.is_noun and not text.function.startswith("test_"):
        first = text.text.split()[0].rstrip(".,") if text.text else ""
        if first not in verbs() and not text.text.startswith("True if"):
            yield "verb", f"{text.function}: {text.text[:80]}"


def _wide_lines(source: str, path: Path) -> Iterator[Finding]:
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_table = path.suffix == ".md" and line.lstrip().startswith("|")
        if len(line) > MAX_COLUMNS and not is_code and not is_table:
            yield Finding("wide", f"{path.relative_to(ROOT)}:{number}", line[:60])
