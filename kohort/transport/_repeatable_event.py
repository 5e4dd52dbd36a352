"""Waiting for something to happen, again and again."""

from __future__ import annotations

import anyio


class RepeatableEvent:
    """Lets everybody go on who waits at the moment; used around a condition of plain data.

    Check the condition, then wait(): nothing runs in between, so no set() is missed. Not for
    several threads.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """The condition may have changed."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next set()."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
