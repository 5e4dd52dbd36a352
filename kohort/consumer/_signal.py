"""How the core wakes a caller that waits."""

from __future__ import annotations

import threading

import anyio


class ThreadSignal:
    """For a caller in another thread: remembers that it was given until it is cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def notify(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, timeout: float) -> None:
        """Wait, interruptibly by Ctrl-C, until notified or for ``timeout`` seconds."""
        self._event.wait(min(timeout, threading.TIMEOUT_MAX))


class TaskSignal:
    """For callers in the same event loop, any number of them.

    Take the event first, then look for what you want, then wait for the event: what comes in
    between is not missed.
    """

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def event(self) -> anyio.Event:
        """The event of the next notification."""
        if self._event is None:
            self._event = anyio.Event()
        return self._event
