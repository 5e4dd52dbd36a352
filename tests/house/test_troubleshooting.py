"""docs/troubleshooting.md: its form, and the texts that it quotes from the code."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.house._source import ROOT, modules

PAGE = ROOT / "docs" / "troubleshooting.md"
OUTPUT = re.compile(r"It prints:\n\n```text\n(?:.*\n)*?```$", re.MULTILINE)
QUOTED = re.compile(r"^(### .+)|```text\n((?:.*\n)*?)```$", re.MULTILINE)
OMITTED = r"\s*\.{3,4}\s*"


@functools.cache
def texts() -> str:
    """Return every string of the package, one a line. Values are left out."""
    found = []
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "\0" for part in node.values
                )
                found.append("".join(map(str, parts)))
    return "\n".join(re.sub(r"%[sdrg]|%\.\df", "\0", " ".join(text.split())) for text in found)


def quoted() -> list[tuple[str, str]]:
    """Return heading and text of each quotation."""
    found = []
    heading = ""
    for title, text in QUOTED.findall(OUTPUT.sub("", PAGE.read_text())):
        heading = title.removeprefix("### ") or heading
        if text and heading:
            found.append((heading, " ".join(text.split())))
    return found


def is_text_of_the_code(text: str) -> bool:
    """True if each part between ``...`` is in a string of the package."""
    parts = re.split(OMITTED, text)
    return all(part.strip("'. ") in texts() for part in parts if len(part) > 2)


@pytest.mark.parametrize(("heading", "text"), quoted())
@pytest.mark.cases
def test_a_quoted_text_is_one_of_the_code(heading: str, text: str) -> None:
    assert is_text_of_the_code(text), f"{heading}: {text}"


def test_a_text_that_the_code_does_not_have_is_noticed() -> None:
    assert not is_text_of_the_code("commit failed for ...: this was never written")
