"""What the core leaves for the caller: the user's code runs on the caller's thread or task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import anyio

from kohort.consumer._caller_latency import CallerLatency
from kohort.errors import WakeupError
from kohort.listeners._dispatch import CallbackName
from kohort.records import WakeUp
from kohort.transport import with_principal
from kohort.types import OffsetAndMetadata, TopicPartition

E = TypeVar("E", bound=BaseException)

MAX_ERRORS = 32
"""Errors that are kept for a caller who does not poll; of more, the oldest go."""


class EngineLoop:
    """How the caller reaches the core; for a core in the caller's own event loop, directly."""

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the core's event loop, soon."""
        action()

    def yield_to_caller(self) -> None:
        """Let the notified caller run before the core goes on.

        asyncio runs tasks in the order in which they become ready, so the caller that was notified
        first runs first. On trio tasks have no order.
        """


class PendingCallback:
    """A piece of the user's code that the core waits for.

    The core creates and awaits it; the caller performs it inside ``poll()``, ``close()`` or
    ``unsubscribe()`` and says so with :meth:`finish`.
    """

    __slots__ = ("_done", "_engine_loop", "error", "is_finished", "result")

    def __init__(self, engine_loop: EngineLoop) -> None:
        self._engine_loop = engine_loop
        self._done = anyio.Event()
        self.is_finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Called by the caller, from its own thread or task."""
        self.result, self.error = result, error
        self._engine_loop.call_soon(self._done.set)
        self.is_finished = True

    async def wait(self) -> Any:
        """Called by the core. Raises what the caller's code raised."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result


class PollNotice(PendingCallback):
    """Nothing to do: the core only needs to know that the caller is inside poll()."""

    __slots__ = ()


class ListenerCallback(PendingCallback):
    """A callback of the rebalance listener, by its name."""

    __slots__ = ("name", "partitions")

    def __init__(
        self, engine_loop: EngineLoop, name: CallbackName, partitions: frozenset[TopicPartition]
    ) -> None:
        super().__init__(engine_loop)
        self.name = name
        self.partitions = partitions


class AssignorCallback(PendingCallback):
    """A user's assignor."""

    __slots__ = ("assign",)

    def __init__(self, engine_loop: EngineLoop, assign: Callable[[], Any]) -> None:
        super().__init__(engine_loop)
        self.assign = assign


def _do_nothing() -> None:
    pass


class CommitCallback(NamedTuple):
    """The callback of a commit that is done; nobody waits for it."""

    function: Callable[[Any, Any], Any]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: BaseException | None


def _no_principal() -> None:
    return None


class CallbackQueue:
    """The queues from core to caller, and what the caller last said of itself.

    Appending to and popping from a deque is atomic, so neither side takes a lock here.
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
        """Wakes the caller, if it waits; may be called from any thread."""
        self.clock = clock
        self.caller_latency = CallerLatency()
        self.pending: deque[PendingCallback] = deque()
        self.commit_callbacks: deque[CommitCallback] = deque()
        self.errors: deque[Exception] = deque(maxlen=MAX_ERRORS)
        self.is_wakeup_requested = False
        """wakeup() was called, and nobody has been told yet."""
        self.is_polling = False
        """The caller is inside poll() (or another call that performs work) right now."""
        self.poll_count = 0
        """How often the caller came into poll()."""
        self.longest_poll_interval = 0.0
        """Seconds between two polls, at most."""
        self._last_at: float | None = None
        self.has_returned_records = False
        """True if the latest poll() returned records, which the caller may still process."""
        self.principal: Callable[[], str | None] = _no_principal
        """Returns the user that errors about missing rights name."""
        self.on_pending: Callable[[], object] = _do_nothing
        """Called after work was added; for a consumer that performs it without a poll()."""

    def enter_poll(self) -> None:
        """The caller came into poll()."""
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
        """Notify a caller that waits for records and was quick the last time, and give way to it.

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
        """The caller went out of poll()."""
        self.is_polling = False
        self._last_at = self.clock()

    def note_call(self) -> None:
        """The caller called something other than poll() that shows that it goes on."""
        self._last_at = self.clock()

    def request_wakeup(self) -> None:
        """Have the caller raise WakeupError, as soon as it looks."""
        self.is_wakeup_requested = True
        self._wake_up.set()

    @property
    def last_active_at(self) -> float | None:
        """When the caller last came in, went out or took a record by iteration; None for never."""
        at, taken = self._last_at, self._wake_up.taken_at
        if at is None:
            return None
        return max(at, taken)

    def last_poll(self) -> float | None:
        """When the caller was last known to be polling; now, while it is inside poll()."""
        return self.clock() if self.is_polling else self.last_active_at

    async def call(self, callback: PendingCallback) -> Any:
        """Leave something for the caller and wait until it is done."""
        self.pending.append(callback)
        self._wake_up.set()
        self.notify()
        self.on_pending()
        try:
            return await callback.wait()
        finally:
            callback.is_finished = True  # when it is given up, nobody has to do it any more

    def raise_wakeup(self) -> None:
        """Raise WakeupError if wakeup() was called; once for each time, or for several at once."""
        if self.is_wakeup_requested:
            self.is_wakeup_requested = False
            raise WakeupError("wakeup() was called")

    def add_commit_callback(self, callback: CommitCallback) -> None:
        """Leave the callback of a commit for the caller."""
        self.commit_callbacks.append(callback)
        self.notify()

    def drop_errors(self, kind: type[Exception]) -> None:
        """Drop reported errors that are of no interest any more."""
        for error in [error for error in self.errors if isinstance(error, kind)]:
            self.errors.remove(error)

    def withdraw(self, error: Exception) -> None:
        """Drop a reported error whose cause is over, if it was not raised yet."""
        for other in tuple(self.errors):
            if type(other) is type(error) and str(other) == str(error):
                with suppress(ValueError):  # the caller takes it at this moment
                    self.errors.remove(other)

    def with_principal(self, error: E) -> E:
        """Return an error about a missing right with the user in it; others as they are."""
        return with_principal(error, self.principal())

    def report(self, error: Exception) -> None:
        """Leave an error to be raised from the caller's next poll(); once, if it is there."""
        error = self.with_principal(error)
        # A copy: the caller may take one out, in its own thread, while they are compared.
        known = tuple(self.errors)
        if all(type(error) is not type(other) or str(error) != str(other) for other in known):
            self.errors.append(error)
        self.notify()
