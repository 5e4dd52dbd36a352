"""What the core leaves for the caller: the user's code runs on the caller's thread or task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import anyio

from kohort.consumer._caller_latency import Pace
from kohort.errors import WakeupError
from kohort.listeners import CallbackName
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


class Work:
    """A piece of the user's code that the core waits for.

    The core creates and awaits it; the caller performs it inside ``poll()``, ``close()`` or
    ``unsubscribe()`` and says so with :meth:`finish`.
    """

    __slots__ = ("_core", "_done", "error", "finished", "result")

    def __init__(self, core: EngineLoop) -> None:
        self._core = core
        self._done = anyio.Event()
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Called by the caller, from its own thread or task."""
        self.result, self.error = result, error
        self._core.call_soon(self._done.set)
        self.finished = True

    async def wait(self) -> Any:
        """Called by the core. Raises what the caller's code raised."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result


class PollNotice(Work):
    """Nothing to do: the core only needs to know that the caller is inside poll()."""

    __slots__ = ()


class ListenerCallback(Work):
    """A callback of the rebalance listener, by its name."""

    __slots__ = ("callback", "partitions")

    def __init__(
        self, core: EngineLoop, callback: CallbackName, partitions: frozenset[TopicPartition]
    ) -> None:
        super().__init__(core)
        self.callback = callback
        self.partitions = partitions


class AssignorCallback(Work):
    """A user's assignor."""

    __slots__ = ("assign",)

    def __init__(self, core: EngineLoop, assign: Callable[[], Any]) -> None:
        super().__init__(core)
        self.assign = assign


def _nothing() -> None:
    pass


class CommitCallback(NamedTuple):
    """The callback of a commit that is done; nobody waits for it."""

    function: Callable[[Any, Any], Any]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: BaseException | None


def _nobody() -> None:
    return None


class CallbackQueue:
    """The queues from core to caller, and what the caller last said of itself.

    Appending to and popping from a deque is atomic, so neither side takes a lock here.
    """

    def __init__(
        self,
        core: EngineLoop,
        notify: Callable[[], None],
        clock: Callable[[], float],
        wake_up: WakeUp | None = None,
    ) -> None:
        self.core = core
        self._wake_up = wake_up or WakeUp()
        self.notify = notify
        """Wakes the caller, if it waits; may be called from any thread."""
        self.clock = clock
        self.pace = Pace()
        self.work: deque[Work] = deque()
        self.commit_callbacks: deque[CommitCallback] = deque()
        self.errors: deque[Exception] = deque(maxlen=MAX_ERRORS)
        self.woken = False
        """wakeup() was called, and nobody has been told yet."""
        self.polling = False
        """The caller is inside poll() (or another call that performs work) right now."""
        self.polls = 0
        """How often the caller came into poll()."""
        self.longest_absence = 0.0
        """Seconds between two polls, at most."""
        self._last_at: float | None = None
        self.has_returned_records = False
        """True if the latest poll() returned records, which the caller may still process."""
        self.principal: Callable[[], str | None] = _nobody
        """Returns the user that errors about missing rights name."""
        self.on_work: Callable[[], object] = _nothing
        """Called after work was added; for a consumer that performs it without a poll()."""

    def entered_poll(self) -> None:
        """The caller came into poll()."""
        self._wake_up.set()
        now, last = self.clock(), self.last_poll()
        self.polling = True
        self.has_returned_records = False
        self._last_at = now
        self.pace.came_back(now)
        self.polls += 1
        if last is not None and now - last > self.longest_absence:
            self.longest_absence = now - last

    def notify_waiting_caller(self) -> bool:
        """Notify a caller that waits for records and was quick the last time, and give way to it.

        Return False without a notification for any other caller.
        """
        if not self.polling:
            return False
        self.pace.notified(self.clock())
        if not self.pace.quick:
            return False
        self.notify()
        self.core.yield_to_caller()
        return True

    def left_poll(self) -> None:
        """The caller went out of poll()."""
        self.polling = False
        self._last_at = self.clock()

    def seen(self) -> None:
        """The caller called something other than poll() that shows that it goes on."""
        self._last_at = self.clock()

    def wake(self) -> None:
        """Have the caller raise WakeupError, as soon as it looks."""
        self.woken = True
        self._wake_up.set()

    @property
    def last_at(self) -> float | None:
        """When the caller last came in, went out or took a record by iteration; None for never."""
        at, taken = self._last_at, self._wake_up.taken_at
        if at is None:
            return None
        return max(at, taken)

    def last_poll(self) -> float | None:
        """When the caller was last known to be polling; now, while it is inside poll()."""
        return self.clock() if self.polling else self.last_at

    async def perform(self, work: Work) -> Any:
        """Leave something for the caller and wait until it is done."""
        self.work.append(work)
        self._wake_up.set()
        self.notify()
        self.on_work()
        try:
            return await work.wait()
        finally:
            work.finished = True  # when it is given up, nobody has to do it any more

    def take_wakeup(self) -> None:
        """Raise WakeupError if wakeup() was called; once for each time, or for several at once."""
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup() was called")

    def answer(self, callback: CommitCallback) -> None:
        """Leave the callback of a commit for the caller."""
        self.commit_callbacks.append(callback)
        self.notify()

    def forget(self, kind: type[Exception]) -> None:
        """Drop reported errors that are of no interest any more."""
        for error in [error for error in self.errors if isinstance(error, kind)]:
            self.errors.remove(error)

    def withdraw(self, error: Exception) -> None:
        """Drop a reported error whose cause is over, if it was not raised yet."""
        for other in tuple(self.errors):
            if type(other) is type(error) and str(other) == str(error):
                with suppress(ValueError):  # the caller takes it at this moment
                    self.errors.remove(other)

    def named(self, error: E) -> E:
        """Return an error about a missing right with the user in it; others as they are."""
        return with_principal(error, self.principal())

    def report(self, error: Exception) -> None:
        """Leave an error to be raised from the caller's next poll(); once, if it is there."""
        error = self.named(error)
        # A copy: the caller may take one out, in its own thread, while they are compared.
        known = tuple(self.errors)
        if all(type(error) is not type(other) or str(error) != str(other) for other in known):
            self.errors.append(error)
        self.notify()
