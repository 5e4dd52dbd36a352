"""Order of the calls that a consumer makes of kohort's consumer."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kohort.logs import get_logger

logger = get_logger("kohort.compat.aiokafka")


class CallQueue:
    """Calls that change the subscription or positions, in the order of the program.

    ``unsubscribe()`` of aiokafka returns at once, and kohort's is awaited. Calls that follow it
    wait until it has ended. Without such a call, a function runs at once and raises its error.
    """

    def __init__(self) -> None:
        self._pending = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._waiting: deque[Callable[[], Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """True while calls wait for an earlier one."""
        return self._task is not None

    def run(self, function: Callable[[], Any]) -> None:
        """Call the function after all earlier ones, and await its result if it is awaitable."""
        if self._task is not None:
            self._waiting.append(function)
            return
        result = function()
        if inspect.isawaitable(result):
            self._task = asyncio.get_running_loop().create_task(self._finish(result))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count the block as a call that waits for records."""
        self._pending += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._pending -= 1
            if not self._pending:
                self._is_idle.set()

    async def readers_returned(self, seconds: float) -> None:
        """Wait until no call waits for records, at most for this time."""
        if not self._pending:
            return  # without a switch of tasks, on which mocks of kstreams rely
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), seconds)

    async def settled(self) -> None:
        """Wait until no call waits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _finish(self, result: Awaitable[Any]) -> None:
        try:
            await self._logged(result)
            while self._waiting:
                try:
                    found = self._waiting.popleft()()
                except Exception:
                    logger.exception("a call after unsubscribe() failed")
                    continue
                if inspect.isawaitable(found):
                    await self._logged(found)
        finally:
            self._task = None

    async def _logged(self, result: Awaitable[Any]) -> None:
        try:
            await result
        except Exception:
            logger.exception("unsubscribe() failed")
