"""Arguments of log calls: a kept log record must not keep a consumer alive."""

from __future__ import annotations

import ast

import pytest

from tests.house._source import modules

LOGGERS = {"logger", "_logger"}


def exceptions_logged(tree: ast.Module) -> list[str]:
    """Return the arguments of log calls that are exceptions, by their names."""
    nodes = [*ast.walk(tree)]
    caught = {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
    caught |= {"error", "failure", "exc"}
    return [
        f"{argument.lineno}: {ast.unparse(argument)}"
        for call in nodes
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if isinstance(call.func.value, ast.Name) and call.func.value.id in LOGGERS
        for argument in call.args
        if (isinstance(argument, ast.Name) and argument.id in caught)
        or (isinstance(argument, ast.Attribute) and argument.attr in {"error", "failure"})
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('logger.warning("failed: %s", error)', ["1: error"]),
        ('logger.log(level, "failed: %s", item.error)', ["1: item.error"]),
        ('logger.warning("failed: %s", str(error))', []),
        ('logger.error("failed", exc_info=error)', []),
    ],
)
def test_exceptions_logged_are_found(line: str, found: list[str]) -> None:
    assert exceptions_logged(ast.parse(line)) == found


def test_every_logger_adds_fields() -> None:
    """Loggers come from ``get_logger``, except for ``kohort``, which logs one line."""
    found = {
        module.name
        for module in modules()
        if module.part != "logs" and "getLogger(" in ast.unparse(module.tree)
    }
    assert found == {"kohort.consumer.driver._driver"}


def test_errors_in_log_calls_bring_their_fields() -> None:
    found = [
        f"{module.name}:{call.lineno}"
        for module in modules()
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if isinstance(call.func.value, ast.Name) and call.func.value.id in LOGGERS
        if any(ast.unparse(argument) == "str(error)" for argument in call.args)
    ]
    assert found == []


def test_log_calls_pass_texts_and_no_exceptions() -> None:
    """The traceback of an exception refers to frames, and these to the whole consumer.

    A handler that keeps records, such as ``logging.handlers.MemoryHandler`` or pytest's, would keep
    a closed consumer.
    """
    found = {module.name: exceptions_logged(module.tree) for module in modules()}
    assert {name: lines for name, lines in found.items() if lines} == {}
