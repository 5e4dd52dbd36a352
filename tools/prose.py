"""Check of the prose: words to leave out, and the length of sentences.

``python -m tools.prose [FILE...]`` prints each finding as ``file:line: text: reason``. Prose is
comments, docstrings, the messages of the packages, and the paragraphs of Markdown pages.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SUFFIXES: Final = (".py", ".pyx", ".pxd", ".c", ".h", ".md")
PACKAGES: Final = ("kohort", "pyspark_kohort", "pytest_kohort")
"""Folders whose strings are messages. The strings of tests are data."""
LEFT_OUT: Final = ("benchmarks/results/", "docs/reference/api", "kohort/records/codecs/lz4.")
"""Generated lists and figures, and the source of LZ4."""
MAX_WORDS: Final = 25
WORDS: Final = re.compile(
    r"""\b(?:
        anew | at\ will | in\ the\ midst | but\ for | any\ more | sees?\ to | affair
      | of\ (?:its|one's|their|his|our|your)\ own | by\ (?:itself|himself|themselves)
      | so\ (?:many|long|much) | nobody | somebody | mend(?:s|ed|ing)? | told | tells?
      | deal[ts]? | handout | performer | parting | mailbox | bell
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words that a reader who knows Kafka and Python has to read twice, and metaphors."""

_PYTHON: Final = re.compile(
    r'(?P<comment>\#[^\n]*)|[rfu]{0,2}"""(?P<long>(?:[^"\\]|\\.|"(?!""))*)"""'
    r"""|(?P<short>(?:[rfu]{0,2}(?:"(?!"")(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*)+)""",
    re.DOTALL | re.IGNORECASE,
)
_C: Final = re.compile(
    r"(?P<comment>//[^\n]*)|/\*(?P<long>.*?)\*/"
    r'|(?P<short>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')',
    re.DOTALL,
)
_MARKDOWN: Final = re.compile(
    r"^ *```.*?^ *```$|(?P<comment>\Z.)|(?P<short>\Z.)|<!--.*?-->|^[#|][^\n]*"
    r"|(?P<long>(?:^(?! *```|[#|]|<!--)[^\n]*\S[^\n]*\n?(?!\s*(?:[-*]|\d+\.)\s))+)",
    re.DOTALL | re.MULTILINE,
)
_LITERAL: Final = re.compile(r"""[rfu]{0,2}(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*""", re.I)
_DIRECTIVE: Final = re.compile(
    r"^\W+$|^!|(?:# *)?(?:noqa|type: ignore|pyright: ignore|pragma|fmt:|distutils).*"
)
_SENTENCE_END: Final = re.compile(r'(?<=[.!?])\s+(?=[A-Z`:"(\[*])')
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]*\n|\n\s*(?:[-*]|\d+\.) ")
_CODE: Final = re.compile(r"``[^`]*``|`[^`]*`")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text. Indented blocks and doctests are code and left out."""
    for paragraph in _PARAGRAPH_END.split(text):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") or not line.strip() for line in lines):
            continue
        if not lines[0].lstrip().startswith((">>>", "::")):
            yield from _SENTENCE_END.split(" ".join(paragraph.split()))


def words(text: str) -> list[str]:
    """Return the words of a sentence. Code in backticks counts as one word."""
    text = re.sub(r":\w+:", " ", _CODE.sub(" x ", text))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return [each for each in re.findall(r"[\w'\-./]+", text) if re.search("[A-Za-z0-9]", each)]


def texts(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each piece of prose in a file."""
    pattern = {".md": _MARKDOWN, ".c": _C, ".h": _C}.get(path.suffix, _PYTHON)
    has_messages = pattern is _PYTHON and path.parts[0] in PACKAGES
    comment, first = "", 0  # comments on lines that follow each other
    line, end = 1, 0
    for match in pattern.finditer(source):
        gap = source[end : match.start()]
        line += gap.count("\n")
        if comment and (match["comment"] is None or gap.strip() or gap.count("\n") > 1):
            yield first, comment
            comment = ""
        if match["comment"] is not None:
            first = first if comment else line
            comment += _DIRECTIVE.sub("", match["comment"].lstrip("#/ ")) + "\n"
        elif match["long"] is not None and not gap.rstrip().endswith(("(", ",", "=", "[")):
            yield line, inspect.cleandoc(re.sub(r"^ \*", "", match["long"], flags=re.MULTILINE))
        elif has_messages and match["short"] is not None:
            message = "".join(map("".join, _LITERAL.findall(match["short"])))
            yield line, "" if match["short"][0] == "r" else re.sub(r"\{[^{}]*\}", "x", message)
        line += match[0].count("\n")
        end = match.end()
    if comment:
        yield first, comment


def findings(path: Path, source: str) -> Iterator[str]:
    """Yield what breaks a rule. The path is relative to the root of the project."""
    for line, text in texts(path, source):
        bare = _CODE.sub(lambda code: "x" + "\n" * code[0].count("\n"), text)
        for match in WORDS.finditer(bare):
            at = line + bare.count("\n", 0, match.start())
            yield f"{path}:{at}: {match[0]}: a word to leave out"
        for sentence in sentences(text):
            if (count := len(words(sentence))) > MAX_WORDS:
                yield f"{path}:{line}: {sentence[:60]}...: {count} words in a sentence"


def project_files() -> list[Path]:
    """Return the files with prose that git knows, relative to the root of the project."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def main(arguments: list[str]) -> int:
    """Print the findings in the files, or in all files. Return 1 if there are any."""
    named = [Path(name).resolve().relative_to(ROOT) for name in arguments]
    paths = [path for path in named or project_files() if path.suffix in SUFFIXES]
    paths = [path for path in paths if not path.as_posix().startswith(LEFT_OUT)]
    found = [each for path in paths for each in findings(path, (ROOT / path).read_text())]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
