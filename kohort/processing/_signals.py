"""SIGTERM and SIGINT, which stop process() while it runs in the main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(on_signal: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Call ``on_signal`` for each signal in the block, and restore the former handlers after it.

    In other threads the signals are left alone. A handler that Python did not install is, too,
    because it could not be restored.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        on_signal()

    former = {}
    try:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not None:
                former[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
