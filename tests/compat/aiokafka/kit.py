"""Helpers of the tests for aiokafka's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

SECONDS = 90.0
"""Time limit of a step."""


async def within(step: Awaitable[T]) -> T:
    """Return the result of a step that must end."""
    return await asyncio.wait_for(step, SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def make_listener(compat: Any) -> Any:
    """Return a listener that notes its calls, one by a coroutine and one by a function."""

    class Notes(compat.ConsumerRebalanceListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.calls: list[tuple[str, list[tuple[str, int]]]] = []
            self.consumer: Any = None
            self.positions: dict[Any, int] = {}

        async def on_partitions_revoked(self, revoked: set[Any]) -> None:
            await asyncio.sleep(0)
            self.calls.append(("revoked", sorted(revoked)))

        def on_partitions_assigned(self, assigned: set[Any]) -> Any:
            assert isinstance(assigned, set)
            self.calls.append(("assigned", sorted(assigned)))
            return self.look_up(assigned)

        async def look_up(self, assigned: set[Any]) -> None:
            for tp in assigned if self.consumer else ():
                self.positions[tp] = await self.consumer.position(tp)

    return Notes()
