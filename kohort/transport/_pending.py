"""Requests of one connection, from the queue to the response."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from kohort.errors import KafkaError, ProtocolError
from kohort.protocol import Buffer
from kohort.transport._frames import Frame, check_correlation_id
from kohort.transport._loop import OneShot


class Pending:
    """A request, with its bytes until they are sent, and then its response or an error."""

    __slots__ = (
        "abandoned",
        "buffers",
        "correlation_id",
        "deadline",
        "done",
        "error",
        "frame",
        "large",
        "name",
        "on_frame",
        "result",
        "timeout",
    )

    def __init__(
        self,
        name: str,
        correlation_id: int,
        buffers: list[Buffer],
        timeout: float,
        now: float,
        done: OneShot,
    ) -> None:
        self.name: str = name
        self.correlation_id: int = correlation_id
        self.buffers: list[Buffer] = buffers
        self.timeout: float = timeout
        self.deadline: float = now + timeout
        self.done: OneShot = done
        self.frame: Frame | None = None
        self.error: KafkaError | None = None
        self.abandoned: bool = False
        self.large: bool = False
        """True if the first bytes are needed of a response over the size limit."""
        self.on_frame: Callable[[Frame], Any] | None = None
        """Callback with the response before the waiting task continues, unless it is cancelled."""
        self.result: Any = None
        """The return value of :attr:`on_frame`."""

    def complete(self, frame: Frame) -> None:
        """Store the response and wake the waiting task, which may have been cancelled."""
        self.frame = frame
        try:
            if self.abandoned:
                frame.release()
            elif self.on_frame is not None:
                self.result = self.on_frame(frame)
        finally:  # Ctrl-C comes in calls
            self.done.set()

    def fail(self, error: KafkaError) -> None:
        """End the wait for the response with an error."""
        if not self.done.is_set:
            self.error = error
            self.done.set()


class Pipeline:
    """Requests that wait to be sent, and sent ones in the order of their responses."""

    def __init__(self, max_in_flight: int) -> None:
        self.waiting: deque[Pending] = deque()
        self.sent: deque[Pending] = deque()
        self.max_in_flight = max_in_flight

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sent)

    def take_sendable(self) -> list[Buffer]:
        """Return the bytes of all requests that may be sent now, and count these as sent."""
        buffers: list[Buffer] = []
        while self.waiting and len(self.sent) < self.max_in_flight:
            pending = self.waiting.popleft()
            self.sent.append(pending)
            buffers += pending.buffers
            pending.buffers = []
        return buffers

    def withdraw(self, pending: Pending) -> bool:
        """Remove a request that was not sent. Return False if it was sent."""
        if pending in self.waiting:
            self.waiting.remove(pending)
            return True
        return False

    def overdue(self, now: float) -> list[Pending]:
        """Return the requests whose deadline has passed, the sent ones first."""
        return [each for each in (*self.sent, *self.waiting) if each.deadline <= now]

    @property
    def awaited(self) -> Pending | None:
        """The request whose response comes next."""
        return self.sent[0] if self.sent else None

    def awaited_id(self) -> int | None:
        """Return the correlation id of the next response, or None if no request was sent."""
        return self.sent[0].correlation_id if self.sent else None

    def match_response(self, data: Buffer) -> Pending:
        """Remove and return the request of this response. Raises ProtocolError without one."""
        if not self.sent:
            raise ProtocolError("a response came without a request")
        check_correlation_id(data, self.sent[0].correlation_id)
        return self.sent.popleft()

    @property
    def next_deadline(self) -> float:
        """Earliest deadline, or infinity without one."""
        return min((each.deadline for each in (*self.sent, *self.waiting)), default=math.inf)

    def clear(self) -> list[Pending]:
        """Remove and return all requests."""
        everything = [*self.sent, *self.waiting]
        self.sent.clear()
        self.waiting.clear()
        return everything
