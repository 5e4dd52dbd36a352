"""Modules are small and finished, aliases have one home, and no machine or registry is named."""

from __future__ import annotations

import ast
import collections
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.house._source import ROOT, modules

MAX_LINES = 700
MAX_MEDIAN = 200
LEFT_OVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|pragma: no " r"cover")
REGISTRY = re.compile(r"\bpypi\b|pythonhosted|repo1?\.maven|mvnrepository|npmjs|proxy\.golang")
MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:root|home|work|Users)/\w")
PLACES = (
    "kohort",
    "pyspark_kohort",
    "pytest_kohort",
    "tests",
    "tools",
    "docs",
    "examples",
    "benchmarks",
    "browser",
    "constraints",
)
SUFFIXES = {".py", ".md", ".toml", ".txt", ".json", ".pxd", ".h", ".typed"}


PRIMITIVES = "kohort.protocol._types"
"""Module with Kafka's names of primitive types. Messages have fields of these types."""


def project_files() -> Iterator[Path]:
    """Yield every text file of the project."""
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")
    yield ROOT / ".ci" / "run"
    for place in PLACES:
        for path in (ROOT / place).rglob("*"):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def test_modules_are_small(record_property: Callable[[str, object], None]) -> None:
    sizes = {module.name: module.lines for module in modules()}
    median = statistics.median(sizes.values())
    record_property("median_lines_per_module", median)
    assert {name: lines for name, lines in sizes.items() if lines > MAX_LINES} == {}
    assert median <= MAX_MEDIAN


def test_every_module_says_what_it_is() -> None:
    assert [m.name for m in modules() if m.lines and ast.get_docstring(m.tree) is None] == []


def type_aliases(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module's type aliases."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            if ast.unparse(node.annotation) == "TypeAlias":
                yield ast.unparse(node.target)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            name = ast.unparse(node.targets[0])
            if name[0].isupper() and not name.isupper():
                yield name


def test_type_aliases_have_one_home() -> None:
    homes = collections.defaultdict(list)
    for module in modules():
        if module.name != PRIMITIVES:
            for name in type_aliases(module.tree):
                homes[name].append(module.name)
    # Iteration returns records of any types, and batches have records of bytes.
    homes["Record"].remove("kohort.records._iteration")
    assert len(homes) > 30
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_nothing_is_left_to_do() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in project_files()
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFT_OVER.search(line)
    ]
    assert found == []


def test_no_registry_and_no_machine_is_named() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in project_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if (match := REGISTRY.search(line) or MACHINE_PATH.search(line))
    ]
    assert found == []
