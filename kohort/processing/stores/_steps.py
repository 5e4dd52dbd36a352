"""Steps: one text of a call for both APIs, and the two functions that run it.

A function of steps is a generator that yields the result of each call. The result of a
synchronous call is sent back as it is. That of an asynchronous one is awaited first.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import anyio

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]

END_SECONDS = 5.0
"""Longest time of the steps that remain after a cancellation, such as a rollback."""


class Handover:
    """Result of a step at which its caller takes over with a cursor, and runs the rest later."""

    def __init__(self, cursor: Any) -> None:
        self.cursor: Any = cursor


def run_steps(steps: Steps[T], error: BaseException | None = None) -> T:
    """Run steps whose calls are synchronous, up to a Handover, which is returned.

    ``error`` is that of the caller who took over.
    """
    result: Any = None
    while True:
        try:
            result = steps.send(result) if error is None else steps.throw(error)
        except StopIteration as end:
            value: T = end.value
            return value
        error = None
        if isinstance(result, Handover):
            return result  # type: ignore[return-value]


async def await_steps(steps: Steps[T], error: BaseException | None = None) -> T:
    """Do the same for calls that may be asynchronous.

    Steps after a failure cannot be cancelled.
    """
    result: Any = None
    with anyio.CancelScope() as end:
        if error is not None and not isinstance(error, Exception):
            _shield(end)
        while True:
            try:
                result = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as stop:
                value: T = stop.value
                return value
            error = None
            if isinstance(result, Handover):
                return result  # type: ignore[return-value]
            if inspect.isawaitable(result):
                try:
                    result = await result
                except BaseException as raised:
                    if not isinstance(raised, Exception):
                        _shield(end)
                    error, result = raised, None
    raise AssertionError("the scope of steps absorbed a cancellation")


def _shield(scope: anyio.CancelScope) -> None:
    scope.shield = True
    scope.deadline = anyio.current_time() + END_SECONDS
