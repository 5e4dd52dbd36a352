"""The queue of callbacks from the engine to the caller, which runs them on its thread or task.

The engine puts a callback into the queue and awaits its end. The sync API runs callbacks inside
calls of the caller. The async API also runs them without a poll (``driver/_async_callbacks``).

Inside a callback, ``commit()``, ``position()``, ``seek()`` and ``pause()`` are ordinary calls.
``poll()`` raises ReentrantCallError. ``close()`` marks the consumer as closing, and completes when
the callback has returned.

``wakeup()`` sets a flag in the queue and notifies the caller. ``poll()`` reads the flag where it
raises errors, so it never interrupts a callback.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kohort.errors import WakeupError
from kohort.listeners._dispatch import CallbackName
from kohort.records import WakeUp
from kohort.transport import OneShot
from kohort.types import NamedTuple, OffsetAndMetadata, RebalanceContext, TopicPartition

SHORT_LATENCY_SECONDS = 0.001
"""A caller with a shorter latency gets its records before the next fetch is sent."""

WAKE_SECONDS = 0.0001
"""Seconds in which a thread wakes up and takes the interpreter's lock."""
CONTENDED_SECONDS = 0.001
"""A release of the interpreter's lock that takes longer has met a CPU-bound thread."""
CONTENDED_PAUSE_SECONDS = 1.0


class LockRelease:
    """Releases of the interpreter's lock, so that a notified thread runs immediately.

    A CPU-bound thread of the program keeps the lock for 5 ms each time. So after a release that
    took ``CONTENDED_SECONDS`` there is no other one for ``CONTENDED_PAUSE_SECONDS``.
    """

    __slots__ = ("_clock", "_not_before", "_sleep")

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._not_before = 0.0

    def release(self) -> None:
        """Release the lock for ``WAKE_SECONDS``, unless a recent release took too long."""
        began = self._clock()
        if began < self._not_before:
            return
        self._sleep(WAKE_SECONDS)
        ended = self._clock()
        if ended - began >= CONTENDED_SECONDS:
            self._not_before = ended + CONTENDED_PAUSE_SECONDS


class CallerLatency:
    """The time from the notification of a waiting caller to its next poll().

    Sending a fetch takes the consumer 0.2 to 0.4 ms. A caller with a latency below
    ``SHORT_LATENCY_SECONDS`` loses nothing if the fetch is sent afterwards. For a slower caller the
    fetch is sent first, so that the broker responds while the caller processes its records.
    """

    __slots__ = ("_notified_at", "is_short")

    def __init__(self) -> None:
        self._notified_at: float | None = None
        self.is_short = True
        """True if the latest latency was below ``SHORT_LATENCY_SECONDS``."""

    def note_notification(self, now: float) -> None:
        """Note that a waiting caller is notified of records. The engine calls this."""
        self._notified_at = now

    def note_poll(self, now: float) -> None:
        """Note that the caller enters poll(). It calls this on its thread."""
        since, self._notified_at = self._notified_at, None
        if since is not None:
            self.is_short = now - since < SHORT_LATENCY_SECONDS


class EngineLoop(Protocol):
    """Access to the engine's event loop, which a ConsumerThread gives to callers of other loops."""

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the engine's event loop."""

    def yield_to_caller(self) -> None:
        """Let the notified caller run before the engine continues."""


class CallersLoop:
    """The event loop of an engine that runs in that of its caller."""

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action``, because the caller is in the engine's event loop already."""
        action()

    def yield_to_caller(self) -> None:
        """Do nothing: asyncio runs tasks in the order in which they become ready.

        On trio tasks have no order.
        """


class PendingCallback:
    """A call of the user's code that the engine waits for.

    The engine creates and awaits it. The caller runs it inside ``poll()``, ``close()`` or
    ``unsubscribe()``, and then calls :meth:`finish`. One of this class itself has no action. It
    finishes when callbacks run.
    """

    __slots__ = ("_done", "_engine_loop", "error", "is_finished", "result")

    def __init__(self, engine_loop: EngineLoop) -> None:
        self._engine_loop = engine_loop
        self._done = OneShot()
        self.is_finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Set the outcome and wake the engine. The caller calls this on its thread or task."""
        self.result, self.error = result, error
        self._engine_loop.call_soon(self._done.set)
        self.is_finished = True

    async def wait(self) -> Any:
        """Wait for the outcome and return it, or raise the error. The engine calls this."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result


class ListenerCallback(PendingCallback):
    """A call of one method of the rebalance listener."""

    __slots__ = ("name", "partitions", "rebalance")

    def __init__(
        self,
        engine_loop: EngineLoop,
        name: CallbackName,
        partitions: frozenset[TopicPartition],
        rebalance: RebalanceContext,
    ) -> None:
        super().__init__(engine_loop)
        self.name = name
        self.partitions = partitions
        self.rebalance = rebalance


class AssignorCallback(PendingCallback):
    """A call of the user's assignor, or of another function of the user."""

    __slots__ = ("assign",)

    def __init__(self, engine_loop: EngineLoop, assign: Callable[[], Any]) -> None:
        super().__init__(engine_loop)
        self.assign = assign


def _do_nothing() -> None:
    pass


class CommitCallback(NamedTuple):
    """The callback of a finished commit. The engine does not wait for it."""

    function: Callable[[Any, Any], Any]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: BaseException | None


class CallbackQueue:
    """The queues from the engine to the caller, and the times of the caller's last calls.

    Appending to and popping from a deque is atomic, so neither side takes a lock.
    """

    def __init__(
        self,
        engine_loop: EngineLoop,
        notify: Callable[[], None],
        clock: Callable[[], float],
        wake_up: WakeUp | None = None,
    ) -> None:
        self.engine_loop = engine_loop
        self._wake_up = wake_up or WakeUp()
        self.notify = notify
        """Function that wakes a waiting caller. It may be called from any thread."""
        self.clock = clock
        self.caller_latency = CallerLatency()
        self.pending: deque[PendingCallback] = deque()
        self.commit_callbacks: deque[CommitCallback] = deque()
        self.is_wakeup_requested = False
        """True if wakeup() was called and no call has raised WakeupError for it yet."""
        self.is_polling = False
        """True while the caller is inside poll() or another call that runs callbacks."""
        self.poll_count = 0
        """Number of calls of poll()."""
        self.longest_poll_interval = 0.0
        """Longest time between two polls in seconds."""
        self._last_at: float | None = None
        self.has_returned_records = False
        """True if the latest poll() returned records, which the caller may still process."""
        self.on_pending: Callable[[], object] = _do_nothing
        """Function called after a callback was added. The async API may run it without a poll."""

    def enter_poll(self) -> None:
        """Note that the caller enters poll()."""
        self._wake_up.set()
        now, last = self.clock(), self.last_poll()
        self.is_polling = True
        self.has_returned_records = False
        self._last_at = now
        self.caller_latency.note_poll(now)
        self.poll_count += 1
        if last is not None and now - last > self.longest_poll_interval:
            self.longest_poll_interval = now - last

    def notify_waiting_caller(self) -> bool:
        """Notify a caller that waits in poll() if its latest latency was short, and let it run.

        Return False without a notification for any other caller.
        """
        if not self.is_polling:
            return False
        self.caller_latency.note_notification(self.clock())
        if not self.caller_latency.is_short:
            return False
        self.notify()
        self.engine_loop.yield_to_caller()
        return True

    def leave_poll(self) -> None:
        """Note that the caller leaves poll()."""
        self.is_polling = False
        self._last_at = self.clock()

    def note_call(self) -> None:
        """Note a call other than poll() that counts for ``max_poll_interval_ms``."""
        self._last_at = self.clock()

    def request_wakeup(self) -> None:
        """Let the caller's current call, or its next one, raise WakeupError."""
        self.is_wakeup_requested = True
        self._wake_up.set()

    @property
    def last_active_at(self) -> float | None:
        """Time when the caller last entered or left poll() or iterated; None for never."""
        at, taken = self._last_at, self._wake_up.taken_at
        if at is None:
            return None
        return max(at, taken)

    def last_poll(self) -> float | None:
        """Return the time of the caller's latest activity; now while it is inside poll()."""
        return self.clock() if self.is_polling else self.last_active_at

    async def call(self, callback: PendingCallback) -> Any:
        """Queue a callback, wait until the caller has run it, and return its result."""
        self.pending.append(callback)
        self._wake_up.set()
        self.notify()
        self.on_pending()
        try:
            return await callback.wait()
        finally:
            callback.is_finished = True  # after a cancellation the caller must not run it

    def raise_wakeup(self) -> None:
        """Raise WakeupError if wakeup() was called, once for all calls since the last error."""
        if self.is_wakeup_requested:
            self.is_wakeup_requested = False
            raise WakeupError("wakeup() was called")

    def add_commit_callback(self, callback: CommitCallback) -> None:
        """Queue the callback of a finished commit."""
        self.commit_callbacks.append(callback)
        self.notify()
