"""The signals that end a command which runs in the foreground."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, and restore the former handlers at the end.

    Call it in the main thread, because Python runs signal handlers there.
    """
    stop = threading.Event()
    with ExitStack() as former:
        for number in (signal.SIGINT, signal.SIGTERM):
            former.callback(signal.signal, number, signal.signal(number, lambda *_: stop.set()))
        yield stop
