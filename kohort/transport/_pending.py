"""Requests of one connection, from being queued to being answered."""

from __future__ import annotations

from collections import deque

import anyio

from kohort.errors import KafkaError
from kohort.protocol import Buffer
from kohort.transport._frames import Frame


class Pending:
    """One request: its bytes until they are sent, then its answer or an error."""

    __slots__ = (
        "abandoned",
        "buffers",
        "correlation_id",
        "deadline",
        "done",
        "error",
        "frame",
        "name",
        "timeout",
    )

    def __init__(
        self, name: str, correlation_id: int, buffers: list[Buffer], timeout: float
    ) -> None:
        self.name = name
        self.correlation_id = correlation_id
        self.buffers = buffers
        self.timeout = timeout
        self.deadline = anyio.current_time() + timeout
        self.done = anyio.Event()
        self.frame: Frame | None = None
        self.error: KafkaError | None = None
        self.abandoned = False

    def answer(self, frame: Frame) -> None:
        """The answer is there; whoever waited may have gone."""
        self.frame = frame
        self.done.set()

    def fail(self, error: KafkaError) -> None:
        """There will be no answer."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Pipeline:
    """Requests that wait to be sent, and those sent, in the order of their answers."""

    def __init__(self, max_in_flight: int) -> None:
        self.waiting: deque[Pending] = deque()
        self.sent: deque[Pending] = deque()
        self._max_in_flight = max_in_flight

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sent)

    def take_sendable(self) -> list[Buffer]:
        """The bytes of all that may be sent now; they count as sent."""
        buffers: list[Buffer] = []
        while self.waiting and len(self.sent) < self._max_in_flight:
            pending = self.waiting.popleft()
            self.sent.append(pending)
            buffers += pending.buffers
            pending.buffers = []
        return buffers

    def withdraw(self, pending: Pending) -> bool:
        """Take back one that was not sent; False if it was."""
        if pending in self.waiting:
            self.waiting.remove(pending)
            return True
        return False

    def first_abandoned(self) -> Pending | None:
        """Of the sent ones that nobody waits for, the one whose time ends first."""
        abandoned = [pending for pending in self.sent if pending.abandoned]
        return min(abandoned, key=lambda pending: pending.deadline, default=None)

    def clear(self) -> list[Pending]:
        """Forget all; returns them."""
        everything = [*self.sent, *self.waiting]
        self.sent.clear()
        self.waiting.clear()
        return everything
