"""What the core leaves for the caller: the user's code runs on the caller's thread or task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from kohort.listeners import CallbackName
from kohort.types import TopicPartition


class Work:
    """A piece of the user's code that the core waits for.

    The core creates and awaits it; the caller performs it inside ``poll()``, ``close()`` or
    ``unsubscribe()`` and says so with :meth:`finish`.
    """

    __slots__ = ("_core", "_done", "error", "result")

    def __init__(self, core: CoreLink) -> None:
        self._core = core
        self._done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Called by the caller, from its own thread or task."""
        self.result, self.error = result, error
        self._core.call_soon(self._done.set)

    async def wait(self) -> Any:
        """Called by the core. Raises what the caller's code raised."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result


class PollWork(Work):
    """Nothing to do: the core only needs to know that the caller is inside poll()."""

    __slots__ = ()


class ListenerWork(Work):
    """A callback of the rebalance listener, by its name."""

    __slots__ = ("callback", "partitions")

    def __init__(
        self, core: CoreLink, callback: CallbackName, partitions: frozenset[TopicPartition]
    ) -> None:
        super().__init__(core)
        self.callback = callback
        self.partitions = partitions


class AssignorWork(Work):
    """A user's assignor."""

    __slots__ = ("assign",)

    def __init__(self, core: CoreLink, assign: Callable[[], Any]) -> None:
        super().__init__(core)
        self.assign = assign


class CommitCallbackWork(Work):
    """The callback of an asynchronous commit; nobody waits for it."""

    __slots__ = ("callback", "offsets", "response")

    def __init__(
        self,
        core: CoreLink,
        callback: Callable[[Any, Any], Any],
        offsets: Mapping[TopicPartition, Any],
        response: BaseException | None,
    ) -> None:
        super().__init__(core)
        self.callback = callback
        self.offsets = offsets
        self.response = response


class CoreLink:
    """How the caller reaches the core; for a core in the caller's own event loop, directly."""

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the core's event loop, soon."""
        action()


class Mailbox:
    """The two queues from core to caller, and what the caller last said of itself.

    Appending to and popping from a deque is atomic, so neither side takes a lock here.
    """

    def __init__(self, core: CoreLink, notify: Callable[[], None], clock: Callable[[], float]):
        self.core = core
        self.notify = notify
        """Wakes the caller, if it waits; may be called from any thread."""
        self.clock = clock
        self.work: deque[Work] = deque()
        self.errors: deque[Exception] = deque()
        self.polling = False
        """The caller is inside poll() (or another call that performs work) right now."""
        self._last_poll: float | None = None

    def entered_poll(self) -> None:
        """The caller came into poll()."""
        self.polling = True
        self._last_poll = self.clock()

    def left_poll(self) -> None:
        """The caller went out of poll()."""
        self.polling = False
        self._last_poll = self.clock()

    def last_poll(self) -> float | None:
        """When the caller was last known to be polling; now, while it is inside poll()."""
        return self.clock() if self.polling else self._last_poll

    def post(self, work: Work) -> None:
        """Leave something for the caller to perform."""
        self.work.append(work)
        self.notify()

    async def perform(self, work: Work) -> Any:
        """Leave something for the caller and wait until it is done."""
        self.post(work)
        return await work.wait()

    def report(self, error: Exception) -> None:
        """Leave an error to be raised from the caller's next poll()."""
        self.errors.append(error)
        self.notify()
