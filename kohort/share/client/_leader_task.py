"""The task that makes the requests of one leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kohort.transport import TaskSignal, callback_loop


class LeaderTask:
    """The task of one leader, which sends one request after the other.

    It lives as long as its broker leads partitions of the member. A new task for each request would
    take much of the time of a poll.
    """

    __slots__ = ("_has_ended", "_request", "_signal")

    def __init__(self) -> None:
        self._signal = TaskSignal(callback_loop())
        self._request: Callable[[], Awaitable[None]] | None = None
        self._has_ended = False

    def begin(self, request: Callable[[], Awaitable[None]]) -> None:
        """Let the task make a request. There is none in flight."""
        self._request = request
        self._signal.notify()

    def end(self) -> None:
        """Let the task end. It makes no request."""
        self._has_ended = True
        self._signal.notify()

    async def run(self) -> None:
        """Make the requests until :meth:`end`, or until the task is cancelled."""
        while not self._has_ended:
            request, self._request = self._request, None
            if request is None:
                await self._signal.wait()
            else:
                await request()
