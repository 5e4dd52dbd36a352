"""Requests of one connection, from being queued to being answered."""

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
    """One request: its bytes until they are sent, then its answer or an error."""

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
        """The answer may be over the bound, and its first bytes are wanted then."""
        self.on_frame: Callable[[Frame], Any] | None = None
        """Called with the answer before the task that waits goes on, unless it was cancelled."""
        self.result: Any = None
        """The return value of :attr:`on_frame`."""

    def complete(self, frame: Frame) -> None:
        """Pass the answer on. The task that waited may have been cancelled."""
        self.frame = frame
        try:
            if self.abandoned:
                frame.release()
            elif self.on_frame is not None:
                self.result = self.on_frame(frame)
        finally:  # Ctrl-C comes in calls
            self.done.set()

    def fail(self, error: KafkaError) -> None:
        """There will be no answer."""
        if not self.done.is_set:
            self.error = error
            self.done.set()


class Pipeline:
    """Requests that wait to be sent, and those sent, in the order of their answers."""

    def __init__(self, max_in_flight: int) -> None:
        self.waiting: deque[Pending] = deque()
        self.sent: deque[Pending] = deque()
        self.max_in_flight = max_in_flight

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sent)

    def take_sendable(self) -> list[Buffer]:
        """The bytes of all that may be sent now; they count as sent."""
        buffers: list[Buffer] = []
        while self.waiting and len(self.sent) < self.max_in_flight:
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

    def overdue(self, now: float) -> list[Pending]:
        """Those whose time is up, the sent ones first."""
        return [each for each in (*self.sent, *self.waiting) if each.deadline <= now]

    @property
    def awaited(self) -> Pending | None:
        """The request whose response comes next."""
        return self.sent[0] if self.sent else None

    def awaited_id(self) -> int | None:
        """The correlation id of the next response; None if no request was sent."""
        return self.sent[0].correlation_id if self.sent else None

    def match_response(self, data: Buffer) -> Pending:
        """Take out the request that this response answers. ProtocolError if it answers none."""
        if not self.sent:
            raise ProtocolError("an answer came that nothing was asked for")
        check_correlation_id(data, self.sent[0].correlation_id)
        return self.sent.popleft()

    @property
    def next_deadline(self) -> float:
        """Earliest deadline; infinity if there is none."""
        return min((each.deadline for each in (*self.sent, *self.waiting)), default=math.inf)

    def clear(self) -> list[Pending]:
        """Forget all; returns them."""
        everything = [*self.sent, *self.waiting]
        self.sent.clear()
        self.waiting.clear()
        return everything
