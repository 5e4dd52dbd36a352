"""Defaults of times and sizes are written in kohort/config alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kohort.config import GroupConfig
from kohort.spark_connector.options._options import MAX_POLL_INTERVAL_MS
from tests.house._source import ROOT

PARTS = ("transport", "fetcher", "coordinator_client", "consumer", "subscription")
NAMES = re.compile(r"timeout|interval|max_age|max_frame|max_in_flight|_ms$|_seconds$")


def defaults(tree: ast.AST) -> Iterator[tuple[int, str, ast.expr]]:
    """Yield line, name and default of each parameter and of each annotated field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            of = node.args
            placed = [*of.posonlyargs, *of.args]
            pairs = [*zip(placed[len(placed) - len(of.defaults) :], of.defaults, strict=True)]
            for each, default in [*pairs, *zip(of.kwonlyargs, of.kw_defaults, strict=True)]:
                if default is not None:
                    yield node.lineno, each.arg, default
        elif isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and field.value is not None:
                    assert isinstance(field.target, ast.Name)
                    yield field.lineno, field.target.id, field.value


def test_no_default_repeats_an_option_as_a_number() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name} = {ast.unparse(default)}"
        for part in PARTS
        for path in sorted((ROOT / "kohort" / part).rglob("*.py"))
        for line, name, default in defaults(ast.parse(path.read_text(encoding="utf-8")))
        if NAMES.search(name) and isinstance(default, ast.Constant) and default.value
        if isinstance(default.value, int | float) and default.value is not True
    ]
    assert found == []


def test_spark_connector_knows_the_default_of_the_poll_interval() -> None:
    """The connector imports nothing but kohort's public names, so it repeats the number."""
    assert GroupConfig().max_poll_interval_ms == MAX_POLL_INTERVAL_MS
