"""The signal by which the engine wakes a caller in another thread, and the results of its calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

WAIT_SLICE_SECONDS = 0.1
"""Seconds of the main thread's first wait slice.

A signal that arrives just before a wait does not end the wait. Python runs its handler, such as
that of Ctrl-C, at the end of the slice."""
MAX_WAIT_SLICE_SECONDS = 1.0
"""Maximum seconds of a slice. Slices double, because each wake-up costs CPU time."""

PAUSE_SECONDS = 0.0001
"""Seconds of one wait of poll(timeout_ms=0), in which the consumer thread can run."""
PAUSE_INTERVAL_SECONDS = 0.001
"""Seconds between two pauses. A new record waits about half of that for the interpreter's lock."""
MAX_PAUSE_SECONDS = 0.002
"""Maximum seconds that the caller waits while the consumer thread is busy."""

_STEP = "step"
_RUNNING = "running"
_CANCELLED = "cancelled"


def wait_slices(timeout: float) -> Iterator[float]:
    """Yield the seconds of each wait until ``timeout`` has passed.

    Python runs signal handlers in the main thread only, so other threads wait in one slice.
    """
    deadline = time.monotonic() + timeout
    is_main = threading.get_ident() == threading.main_thread().ident
    longest = WAIT_SLICE_SECONDS if is_main else threading.TIMEOUT_MAX
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, longest)
        if is_main:
            longest = min(2 * longest, MAX_WAIT_SLICE_SECONDS)


class ThreadSignal:
    """The signal for a caller in another thread, set by notify() and kept until it is cleared.

    It is a lock that is released while the signal is set. Unlike an Event, it may be set by a
    signal handler that interrupts the waiting thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def notify(self) -> None:
        if self._lock.locked():
            with suppress(RuntimeError):  # another thread has released it
                self._lock.release()

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    def wait_once(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds. If notified, clear the signal and return True."""
        return self._lock.acquire(timeout=timeout)

    def wait(self, timeout: float) -> None:
        """Wait until notified or for ``timeout`` seconds, then clear the signal.

        Ctrl-C interrupts the wait.
        """
        for seconds in wait_slices(timeout):
            if self._lock.acquire(timeout=seconds):
                return


class PollPauses:
    """The short waits of a caller that repeats poll(timeout_ms=0).

    Such a caller keeps the interpreter's lock for 5 ms each time (``sys.getswitchinterval()``). The
    consumer thread releases the lock several times for one response.
    """

    def __init__(self, signal: ThreadSignal) -> None:
        self._signal = signal
        self._next = 0.0

    def pause(self, is_busy: Callable[[], bool]) -> bool:
        """Wait for a notification, unless the last wait was ``PAUSE_INTERVAL_SECONDS`` ago or less.

        Return True if notified.
        """
        now = time.monotonic()
        if now < self._next:
            return False
        end = now + MAX_PAUSE_SECONDS
        try:
            while not self._signal.wait_once(PAUSE_SECONDS):
                if not is_busy() or time.monotonic() >= end:
                    return False
            return True
        finally:
            self._next = time.monotonic() + PAUSE_INTERVAL_SECONDS


class Outcome(Protocol):
    """The methods of a future that the consumer thread needs."""

    def cancel(self) -> bool: ...

    def running(self) -> bool: ...

    def set_running_or_notify_cancel(self) -> bool: ...

    def set_result(self, result: Any) -> None: ...

    def set_exception(self, exception: BaseException | None) -> None: ...


class CallResult(Generic[T]):
    """A future for one waiting caller, which Ctrl-C cannot leave locked.

    Ctrl-C in a method of concurrent.futures.Future may leave its lock acquired, and then the
    consumer thread would wait for that lock without end. This object has no lock that the consumer
    thread acquires. The first step is one key of a dict (see _delivery, rule 4).
    """

    __slots__ = ("_error", "_first_step", "_is_done", "_signal", "_value")

    def __init__(self, signal: ThreadSignal | None = None) -> None:
        """``signal`` is notified at the end. A caller that has none calls :meth:`wait`."""
        self._signal = signal or ThreadSignal()
        self._first_step: dict[str, str] = {}
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None

    # -- the caller ---------------------------------------------------------------------------

    def done(self) -> bool:
        """Return True if the call has a result or an error."""
        return self._is_done

    def wait(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for the end of the call."""
        if not self._is_done:
            self._signal.wait_once(timeout)

    def exception(self) -> BaseException | None:
        """Return the error of a finished call, or None."""
        return self._error

    def result(self) -> T:
        """Return the result of a finished call, or raise its error."""
        try:
            if self._error is not None:
                raise self._error
            value: T = self._value
            return value
        finally:
            del self  # the error refers to this frame

    # -- the consumer thread ------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel the call and return True, unless it has begun."""
        return self._first_step.setdefault(_STEP, _CANCELLED) is _CANCELLED

    def running(self) -> bool:
        """Return True if the call has begun and not ended."""
        return self._first_step.get(_STEP) is _RUNNING and not self._is_done

    def set_running_or_notify_cancel(self) -> bool:
        """Begin the call and return True, unless it was cancelled."""
        return self._first_step.setdefault(_STEP, _RUNNING) is _RUNNING

    def set_result(self, result: T) -> None:
        """End the call with a result."""
        self._value = result
        self._is_done = True
        self._signal.notify()

    def set_exception(self, exception: BaseException | None) -> None:
        """End the call with an error."""
        self._error = exception
        self._is_done = True
        self._signal.notify()
