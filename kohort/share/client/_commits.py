"""The commits of one share consumer: they wait until all marks are sent and answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from kohort.consumer.engine._observed import Observed
from kohort.errors import ConsumerClosedError, KafkaError, KafkaTimeoutError
from kohort.share.client._locks import Locks
from kohort.transport import TaskSignal, in_seconds, start_soon

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.consumer.engine._engine import Engine

Finish = Callable[[KafkaError | None], None]


class Commits:
    """The commits of one share consumer. It belongs to the event loop of the engine.

    ``looks`` has the leaders looked at, and ``answers`` is notified after each response.
    """

    def __init__(
        self, engine: Engine, locks: Locks, looks: TaskSignal, answers: TaskSignal
    ) -> None:
        self._engine = engine
        self._locks = locks
        self._looks = looks
        self._answers = answers
        self._waiting: deque[tuple[float, Finish]] = deque()
        """Commits to begin: their timeout, and the function to call at the end."""
        self._is_open = False
        self.running: int = 0
        """Number of calls that wait until all is sent, also one that closes the consumer."""

    async def commit(self, timeout: float) -> None:
        """Send what is marked, and wait for the answers.

        Raise KafkaTimeoutError if they do not come in time. They are still noted then.
        """
        partitions, observe = self._locks.unsettled(), self._engine.offset_requests.observe
        end = observe() if partitions and observe is not None else None
        self.running += 1
        try:
            with anyio.move_on_after(timeout):
                await self.settle()
        finally:
            self.running -= 1
        error = None
        if not self._locks.is_settled:
            error = KafkaTimeoutError(
                f"acknowledgements were not answered within {in_seconds(timeout)}. They are still "
                "sent, and the next commit() names those that fail"
            )
        if end is not None:
            end(Observed(partitions), error)
        if error is not None:
            raise error

    async def settle(self) -> None:
        """Wait until all marks are sent and answered."""
        while not self._locks.is_settled:
            event = self._answers.event()
            self._looks.notify()
            if not self._locks.is_settled:
                await event.wait()

    def start(self, timeout: float, finish: Finish) -> None:
        """Begin a commit, and call ``finish`` with its error or None, also at the end."""
        if not self._is_open:
            finish(ConsumerClosedError("the consumer is closed"))
        else:
            # The caller is no task, so the tasks of the client start it.
            self._waiting.append((timeout, finish))
            self._looks.notify()

    def open(self) -> None:
        """Take commits, until :meth:`close`."""
        self._is_open = True

    @property
    def has_requests(self) -> bool:
        """True if commits are to begin, which takes tasks."""
        return bool(self._waiting)

    def begin(self, tasks: TaskGroup) -> None:
        """Begin the commits that were started."""
        while self._waiting:
            start_soon(tasks, self._run, *self._waiting.popleft())

    async def _run(self, timeout: float, finish: Finish) -> None:
        error: KafkaError | None = ConsumerClosedError("the consumer was closed")
        try:
            await self.commit(timeout)
            error = None
        except KafkaError as caught:
            error = caught
        finally:
            finish(error)

    def close(self) -> None:
        """Take no more commits, and end those that have not begun."""
        self._is_open = False
        while self._waiting:
            _, finish = self._waiting.popleft()
            finish(ConsumerClosedError("the consumer was closed"))
