"""An event loop of asyncio whose clock jumps, as trio's ``MockClock`` does."""

from __future__ import annotations

import asyncio
import selectors


class _Selector(selectors.DefaultSelector):
    """Selector that advances the clock in place of a wait."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self._loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop of asyncio on a virtual clock, which jumps as soon as all tasks wait.

    ``with asyncio.Runner(loop_factory=VirtualLoop) as runner: runner.run(main())``

    Hours of timeouts pass as fast as they are computed. The loop does not wait for threads and
    sockets: the clock jumps while they work. So use it with :class:`MemoryCluster`.
    """

    now: float
    """Time of the loop in seconds. Add to it to block the loop for a virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the virtual time in seconds, which begins with 0."""
        return self.now
