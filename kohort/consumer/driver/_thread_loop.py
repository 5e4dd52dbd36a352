"""The event loop of the consumer thread. It is imported when the first one starts."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kohort.transport import frame_selector


class WatchedSelector(selectors.BaseSelector):
    """A default selector that shows other threads if the event loop waits in it."""

    def __init__(self) -> None:
        self._inner = selectors.DefaultSelector()
        self.frames = frame_selector(self._inner)
        """Receiver of frames while the event loop waits; None on systems without one."""
        self._select = (self.frames or self._inner).select
        self.is_waiting = False
        """True while the event loop is idle, and until it holds the interpreter's lock again."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.is_waiting = timeout is None or timeout > 0
        try:
            return self._select(timeout)
        finally:
            self.is_waiting = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class ConsumerEventLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose connections may receive whole frames in the selector."""

    def __init__(self, selector: WatchedSelector) -> None:
        super().__init__(selector)
        self.frame_selector = selector.frames


def new_event_loop() -> tuple[asyncio.AbstractEventLoop, Callable[[], bool]]:
    """Return a new event loop, and a function that returns True while the loop is busy.

    The default event loop of Windows has no selector; there the function is always False.
    """
    if sys.platform == "win32":
        return asyncio.new_event_loop(), lambda: False
    selector = WatchedSelector()
    return ConsumerEventLoop(selector), lambda: not selector.is_waiting
