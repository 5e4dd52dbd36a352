"""Arguments of log calls: a kept log record must not keep a consumer alive."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort

PACKAGE = Path(kohort.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}


def _log_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in {"logger", "_logger"}:
                if node.func.attr in LEVELS:
                    yield node


def exceptions_logged(source: str) -> list[tuple[int, str]]:
    """Return line and text of the arguments of log calls that are exceptions, by their names."""
    tree = ast.parse(source)
    caught = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and node.name is not None
    }
    caught |= {"error", "failure", "exc"}
    return [
        (argument.lineno, ast.unparse(argument))
        for call in _log_calls(tree)
        for argument in call.args
        if (isinstance(argument, ast.Name) and argument.id in caught)
        or (isinstance(argument, ast.Attribute) and argument.attr in {"error", "failure"})
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('logger.warning("failed: %s", error)', ["error"]),
        ('logger.log(level, "failed: %s", item.error)', ["item.error"]),
        ('logger.warning("failed: %s", str(error))', []),
        ('logger.error("failed", exc_info=error)', []),
    ],
)
def test_exceptions_logged_are_found(line: str, found: list[str]) -> None:
    assert [text for _, text in exceptions_logged(line)] == found


def test_log_calls_pass_texts_and_no_exceptions() -> None:
    """The traceback of an exception refers to frames, and these to the whole consumer.

    A handler that keeps records, such as ``logging.handlers.MemoryHandler`` or pytest's, would keep
    a closed consumer.
    """
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := exceptions_logged(path.read_text()))
    }
    assert found == {}
