"""The task that makes the requests of one leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kohort.transport import TaskSignal, callback_loop


class LeaderTask:
    """The task of one leader, which sends one request after the other.

    It lives as long as the client, because a new task for each request takes much of the time of a
    poll. That of a broker that has left the cluster waits until then, as its id may come back.
    """

    __slots__ = ("_request", "_signal")

    def __init__(self) -> None:
        self._signal = TaskSignal(callback_loop())
        self._request: Callable[[], Awaitable[None]] | None = None

    def begin(self, request: Callable[[], Awaitable[None]]) -> None:
        """Let the task make a request. There is none in flight."""
        self._request = request
        self._signal.notify()

    async def run(self) -> None:
        """Make the requests until the task is cancelled."""
        while True:
            request, self._request = self._request, None
            if request is None:
                await self._signal.wait()
            else:
                await request()
