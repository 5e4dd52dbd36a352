"""The event loop of a process whose threads are gevent's greenlets.

asyncio allows one running event loop for each system thread, and greenlets share one thread. So the
consumers and the clusters of a process share one event loop. It runs in one greenlet until the
process ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from kohort.errors import ThreadStartError
from kohort.logs import get_logger

logger = get_logger("kohort.consumer")


class SharedLoop:
    """An event loop in a greenlet, which gevent creates instead of a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="kohort-heartbeats", daemon=True)
        self._pid = os.getpid()

    @property
    def is_usable(self) -> bool:
        """True if it runs in this process, or is about to."""
        ended = self.thread.ident is not None and not self.thread.is_alive()
        return self._pid == os.getpid() and not ended

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.loop.is_closed():
            try:
                self.loop.run_forever()
                return
            except (SystemExit, KeyboardInterrupt) as error:
                # Only these two stop the event loop, which its other users still need.
                logger.exception(
                    "%s was raised by a callback in kohort's event loop and is ignored there. "
                    "Raise it in another greenlet to end the program",
                    type(error).__name__,
                )


_shared: SharedLoop | None = None


def shared_loop() -> SharedLoop:
    """Return the shared loop of this process, started on first use.

    Raise ThreadStartError if it cannot be started.
    """
    global _shared
    if _shared is None or not _shared.is_usable:
        _shared = SharedLoop()  # before the start, which lets other greenlets run
        try:
            _shared.thread.start()
        except BaseException as error:
            _shared = None
            if isinstance(error, (RuntimeError, MemoryError)):
                raise ThreadStartError(
                    f"the greenlet of kohort's event loop did not start: {error}. While the "
                    "interpreter exits, no greenlets can be started"
                ) from error
            raise
    return _shared


def threads_are_greenlets() -> bool:
    """True if gevent has replaced Python's threads."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))
