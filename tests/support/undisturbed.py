"""Measurements of what one call allocates, while other threads of the process run.

tracemalloc and gc count for the whole process. Threads of other fixtures (a cluster, Spark's
gateway, pytest-xdist) allocate at any time, so a single measurement can include their work.
"""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIES = 5


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep other threads from running for half a second, unless this one waits.

    CPython lets another thread run when that has waited for the switch interval. Threads that wait
    already still use the old interval, so they run first.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.5)
    try:
        if threading.active_count() > 1:
            time.sleep(2 * before)
        yield
    finally:
        sys.setswitchinterval(before)


def least(measure: Callable[[], int], allowed: int) -> int:
    """Return the first measurement of at most ``allowed``, else the least of ``TRIES``.

    Other threads can add to a measurement. What the measured code adds is in each of them.
    """
    found = [measure()]
    while min(found) > allowed and len(found) < TRIES:
        with undisturbed():
            found.append(measure())
    return min(found)


def peak(run: Callable[[], object]) -> int:
    """Return the peak of bytes that ``run`` allocated. tracemalloc has to be started."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    run()
    return tracemalloc.get_traced_memory()[1] - before
