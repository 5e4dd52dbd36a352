"""Coroutines that are created when they are first awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Deferred(Coroutine[Any, Any, None]):
    """A coroutine that is created when its task begins.

    ``asyncio.run()`` cancels all tasks at its end, including those that have not begun. In such a
    task anyio never awaits the coroutine, and Python warns of it. A program that forgets to close
    a consumer would get that warning besides the one that names the consumer.
    """

    def __init__(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._function = function
        self._coroutine: Coroutine[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        return self._made().__await__()

    def _made(self) -> Coroutine[Any, Any, None]:
        if self._coroutine is None:
            self._coroutine = self._function()
        return self._coroutine

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        return self._made().send(value)

    def throw(self, *raised: Any) -> Any:
        """Raise an exception inside the coroutine."""
        return self._made().throw(*raised)

    def close(self) -> None:
        """End the coroutine, if it has begun."""
        if self._coroutine is not None:
            self._coroutine.close()
