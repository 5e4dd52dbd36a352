"""Records at a steady rate."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from tests.interop.brokers import Feed

TICK_S = 0.02


class Pump:
    """A producer of ``rate`` records a second in a thread, until its ``with`` block ends.

    After a pause of the machine it produces the records that are late.
    """

    def __init__(self, feed: Feed, partitions: int, rate: int) -> None:
        self._feed = feed
        self._rounds_a_second = rate / partitions
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pump:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            began, rounds = time.monotonic(), 0
            while not self._over.wait(TICK_S):
                due = int((time.monotonic() - began) * self._rounds_a_second)
                self._feed.start(due - rounds)
                rounds = due
            self._feed.write(1)
        except BaseException as error:
            self._failure = error
