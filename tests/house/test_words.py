"""The prose of the project by its rules: see ``_language.py``."""

from __future__ import annotations

import ast
import collections
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house._language import Finding, findings
from tests.house._source import ROOT, modules
from tools.prose import Figures, measure, pages, percentile, total

CODE = ("kohort", "pyspark_kohort", "pytest_kohort", "tests", "tools", "benchmarks", "examples")
TEXTS = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "SUPPORT.md",
)
GENERATED = ("docs/reference/api",)
"""Lists of names. The figures of pages include them."""
CEILINGS: dict[tuple[str, str], int] = {
    ("tests/consumer", "headless"): 3,
    ("tests/consumer", "word"): 3,
}
"""(folder, rule) -> number of places that still break the rule. A ceiling may only sink."""

NAMES_OF_PEERS = {
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Deserializer",
    "KafkaConsumer",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
}
"""Classes of other clients that ``kohort.compat`` has to have under their names."""


def _files() -> Iterator[Path]:
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "__pycache__" not in path.parts:
                yield path
    yield from (ROOT / name for name in TEXTS)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if not path.relative_to(ROOT).as_posix().startswith(GENERATED):
            yield path


@functools.cache
def _found() -> tuple[Finding, ...]:
    return tuple(finding for path in _files() for finding in findings(path))


@pytest.mark.timeout(180)  # it reads every file, for 10 s of CPU time
def test_prose_keeps_the_rules() -> None:
    """Every package is at or below its ceiling, which is 0 unless ``CEILINGS`` says otherwise."""
    places = collections.defaultdict(list)
    for finding in _found():
        places[finding.package, finding.rule].append(finding)
    over = [
        f"{finding.where}: {finding.rule}: {finding.text}"
        for key, found in sorted(places.items())
        if len(found) > CEILINGS.get(key, 0)
        for finding in found
    ]
    assert not over, "\n".join(over)


def test_class_names_are_unique_in_the_package() -> None:
    names = collections.defaultdict(list)
    for module in modules():
        for node in module.tree.body:
            of_a_peer = module.part == "compat" and getattr(node, "name", "") in NAMES_OF_PEERS
            if isinstance(node, ast.ClassDef) and not of_a_peer:
                names[node.name].append(module.name)
    assert {name: found for name, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ('def f():\n    """What is held."""\n', ["headless"]),
        ('def f():\n    """Return the number of records."""\n', []),
        ('def is_open():\n    """True if the connection is open."""\n', []),
        ('@property\ndef f():\n    """Number of records."""\n', []),
        ('class C:\n    x: int\n    """Where it ends."""\n', ["headless"]),
        ("# it is read anew\n", ["word"]),
        ("# the field ``told`` is kept\n", []),
        ("# (one) and (two)\n", ["marks"]),
        ("# " + "word " * 26 + "\n", ["long", "wide"]),
        ('raise ValueError("nobody reads it")\n', ["word"]),
        ('raise ValueError(f"{x} sees to it")\n', ["word"]),
        ('logger.warning("the broker told %s", x)\n', ["word"]),
        ('x = "nobody reads it"\n', []),
    ],
)
def test_rules_find_what_they_are_for(source: str, rules: list[str]) -> None:
    path = ROOT / "tests" / "house" / "_sample_of_prose.py"
    assert [finding.rule for finding in findings(path, source)] == rules


def test_markdown_is_read_without_code_and_tables() -> None:
    page = (
        "# What it is\n\n| what | is told |\n|---|---|\n\n```python\n# told\n```\n\nIt is told.\n"
    )
    path = ROOT / "tests" / "house" / "_sample_of_prose.md"
    assert [(found.rule, found.text) for found in findings(path, page)] == [("word", "told")]


# -- figures of all pages --------------------------------------------------------------------------


@functools.cache
def _pages() -> tuple[Figures, ...]:
    return tuple(measure(path) for path in pages())


def test_prose_of_all_pages_reaches_the_goals() -> None:
    """The goals hold over README and docs. ``python -m tools.prose`` prints the figures."""
    all_pages = total(_pages())
    assert percentile(all_pages.sentences, 90) <= 25
    assert percentile(all_pages.paragraphs, 90) <= 60
    assert all_pages.passives_per_1000 <= 15
    assert [each.name for each in _pages() if each.wide_lines] == []
    assert [each.name for each in _pages() if each.without_code] == []


def test_prose_of_each_page_reaches_the_goals() -> None:
    long = {each.name for each in _pages() if percentile(each.sentences, 90) > 25}
    large = {each.name for each in _pages() if percentile(each.paragraphs, 90) > 75}
    assert (long, large) == (set(), set())


def test_figures_of_a_page_count_what_the_rules_say() -> None:
    page = """# A heading is left out

A record is returned, and it was never lost. The consumer reads on.

| a cell | a b c d e f g h i j k l m n o p |
|---|---|

- `commit()` works.

```python
# not run: it needs a cluster
```
"""
    wide = "`" + "x" * 101 + "`"
    figures = measure(ROOT / "docs" / "sample.md", f"{page}\n{wide}\n")
    assert figures.sentences == [9, 4, 2, 1]
    assert figures.paragraphs == [13, 2, 1]
    assert [each.rpartition(": ")[2] for each in figures.passives] == [
        "is returned",
        "was never lost",
    ]
    assert (figures.wide_lines, figures.long_cells, figures.without_code) == (1, 1, 1)
    assert measure(ROOT / "docs" / "sample.md", page.replace("# not run: ", "# ")).without_code == 0
    assert measure(ROOT / "docs" / "reference" / "sample.md", page).without_code == 0
    assert percentile(range(1, 11), 90) == 9
