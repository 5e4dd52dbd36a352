"""Attempts side by side, in which a slow one does not delay the next (RFC 8305)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import anyio

from kohort.transport.network._lifetimes import start_soon
from kohort.transport.network._loop import TaskSignal

T = TypeVar("T")

Attempt: TypeAlias = Callable[[], Awaitable[T | None]]
"""Function that returns None if it failed in a way that lets the others continue."""


async def first_success(
    next_attempt: Callable[[], Awaitable[Attempt[T] | None]],
    discard: Callable[[T], object],
    *,
    stagger: float,
    at_most: int,
) -> T | None:
    """Return the first result of the attempts, or None if all of them failed.

    Each attempt starts when the one before has failed, or after ``stagger`` seconds. ``at_most``
    run at a time. ``next_attempt`` returns None while there is none to start. A result cancels the
    other attempts. ``discard`` gets each later result. An exception ends all attempts.
    """
    results: list[T] = []
    errors: list[Exception] = []
    failed = TaskSignal()
    running = 0
    try:
        async with anyio.create_task_group() as tasks:

            async def run(attempt: Attempt[T]) -> None:
                nonlocal running
                try:
                    result = await attempt()
                    if result is not None:
                        results.append(result)
                except Exception as error:
                    errors.append(error)
                finally:
                    running -= 1
                    failed.notify()
                if results or errors:
                    tasks.cancel_scope.cancel()

            while True:
                try:
                    attempt = await next_attempt() if running < at_most else None
                except Exception as error:
                    errors.append(error)
                    tasks.cancel_scope.cancel()
                    break
                if attempt is not None:
                    running += 1
                    start_soon(tasks, run, attempt)
                elif not running:
                    break
                with anyio.move_on_after(stagger):
                    await failed.wait()
    except BaseException:
        for result in results:
            discard(result)
        raise
    if results:
        for result in results[1:]:
            discard(result)
        return results[0]
    if errors:
        raise errors[0]
    return None
