"""RepeatableEvent: an event that can be set many times."""

from __future__ import annotations

import anyio


class RepeatableEvent:
    """An event that wakes all tasks that wait at the moment.

    Check a condition, then call wait(). Nothing runs in between, so no set() is missed. It belongs
    to one thread.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake the waiting tasks, because the condition may have changed."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next set()."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
