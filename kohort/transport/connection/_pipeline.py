"""Pipelined requests of one connection: their queue, sender, deadlines and end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio

from kohort.errors import KafkaConnectionError, KafkaError, ProtocolError
from kohort.protocol import Buffer, Response, decode_response
from kohort.transport.connection._frames import (
    Frame,
    Leased,
    OversizedFrameError,
    check_correlation_id,
)
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection, works_in_callbacks
from kohort.transport.network._loop import OneShot, TaskSignal
from kohort.transport.network._tcp import unsent_after

R = TypeVar("R", bound=Response)

MAX_THROTTLE_MS = 60_000
"""Longest pause that a broker may request (KIP-219)."""
_WAIT_FOR_MEMBERS = frozenset({"JoinGroupRequest", "SyncGroupRequest"})
_PAUSES_FROM: dict[int, int] = {
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    32: 2,  # DescribeConfigs
}
"""First version of an API, by its key, after which the client pauses. Before, the broker pauses."""


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
        "posted_at",
        "preceded_at",
        "received",
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
        received: int = 0,
    ) -> None:
        self.name: str = name
        self.correlation_id: int = correlation_id
        self.buffers: list[Buffer] = buffers
        self.timeout: float = timeout
        self.posted_at: float = now
        self.preceded_at: float = -math.inf
        """Time of the first byte of the response before this one, set when this one comes."""
        self.deadline: float = now + timeout
        self.received: int = received
        """Bytes that the connection had received when :attr:`deadline` was set."""
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

    @property
    def silent_at(self) -> float:
        """Time after which the lack of a response is unusual, or infinity if it is not."""
        return math.inf if self.name in _WAIT_FOR_MEMBERS else self.deadline - self.timeout / 2

    @property
    def was_being_received(self) -> bool:
        """True if the deadline has moved."""
        return self.deadline > self.posted_at + self.timeout

    def move_deadline(self, deadline: float, received: int) -> None:
        """Set a later deadline, and the number of bytes received until now."""
        self.deadline, self.received = deadline, received

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

    def __init__(self, max_in_flight: int, clock: Callable[[], float]) -> None:
        self.waiting: deque[Pending] = deque()
        self.sent: deque[Pending] = deque()
        self.max_in_flight = max_in_flight
        self._clock = clock
        self._paused_until = -math.inf

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sent)

    def take_sendable(self) -> list[Buffer]:
        """Return the bytes of all requests that may be sent now, and count these as sent."""
        buffers: list[Buffer] = []
        if self._paused_until != -math.inf:
            if self.waiting and self._pause_end() > self._clock():
                return buffers
            if self._paused_until <= self._clock():
                self._paused_until = -math.inf
        while self.waiting and len(self.sent) < self.max_in_flight:
            pending = self.waiting.popleft()
            self.sent.append(pending)
            buffers += pending.buffers
            pending.buffers = []
        return buffers

    def pause(self, seconds: float) -> None:
        """Send no request for that time, because the broker throttles this client (KIP-219).

        The broker does not read from the connection meanwhile. A pause takes at most half of the
        time of a request. So a heartbeat is sent before the session ends.
        """
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _pause_end(self) -> float:
        return min(self._paused_until, *(each.deadline - each.timeout / 2 for each in self.waiting))

    @property
    def resumes_at(self) -> float:
        """Time at which the pause of waiting requests ends, or infinity without a pause."""
        is_full = len(self.sent) >= self.max_in_flight
        if self._paused_until == -math.inf or not self.waiting or is_full:
            return math.inf
        return self._pause_end()

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


class DeadlineTimer:
    """Timer of one task."""

    __slots__ = ("_scope", "end")

    def __init__(self) -> None:
        self.end = math.inf
        """Time at which the current wait ends."""
        self._scope = anyio.CancelScope()

    async def wait(self, until: float) -> None:
        """Wait until this time, or another time of move_to()."""
        self.end = until
        with anyio.CancelScope(deadline=until) as self._scope:
            await anyio.sleep_forever()

    def move_to(self, end: float) -> None:
        """End the current wait at another time."""
        self.end = self._scope.deadline = end

    def end_wait(self) -> None:
        """End the current wait. Without a wait nothing happens, so check conditions before it."""
        self.move_to(-math.inf)


def _nothing() -> None:
    pass


class ConnectionEnd:
    """End of a connection, which comes once."""

    def __init__(self) -> None:
        self.failure: KafkaError | None = None
        """Reason why the connection is closed, or None while it is open."""
        self.is_by_client = False
        """True if this client closed it, or caused the close."""
        self.lost_requests = 0
        """Number of requests that failed because it closed."""
        self.announced: KafkaError | None = None
        """Reason why the broker is about to close it, if that is known."""
        self.on_close: Callable[[], None] = _nothing
        """Callback at the close, before any waiting caller continues."""
        self.tasks: anyio.CancelScope | None = None
        """Scope of the tasks that end with the connection."""

    def fail(self, error: KafkaError, pipeline: Pipeline, culprit: Pending | None) -> None:
        """Close with an error, and fail all requests with it."""
        if self.failure is not None:
            return
        self.failure = error
        # After an oversized response the broker is healthy.
        self.is_by_client = self.is_by_client or isinstance(error, OversizedFrameError)
        self.lost_requests = len(pipeline)
        for pending in pipeline.clear():
            if pending is culprit:
                pending.fail(error)
            else:
                lost = KafkaConnectionError(f"{pending.name} was lost with its connection: {error}")
                lost.__cause__ = error
                pending.fail(lost)
        if self.tasks is not None:
            self.tasks.cancel()
        self.on_close()
        self.on_close = _nothing  # it refers to the connection


class RequestSender:
    """Sender of the requests that wait in a pipeline, in their order.

    A caller sends its request itself if the system takes all bytes at once. The task of run()
    sends the rest.
    """

    __slots__ = ("_error", "_is_sending", "_link", "_send_now", "_unsent", "pipeline", "sendable")

    def __init__(self, link: ByteConnection, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.sendable = TaskSignal()
        """Notified when a waiting request may be sent."""
        self._link = link
        self._send_now: Callable[[Sequence[Buffer]], int] | None = (
            getattr(link, "send_now", None) if works_in_callbacks(link) else None
        )
        self._unsent: list[Buffer] = []
        """Bytes that begin() could not send, which run() sends first."""
        self._is_sending = False
        self._error: Exception | None = None

    def begin(self) -> None:
        """Send the bytes that the system takes at once. The task of run() sends the rest."""
        if self._send_now is not None and not self._is_sending and not self._unsent:
            buffers = self.pipeline.take_sendable()
            try:
                sent = self._send_now(buffers) if buffers else 0
            except NETWORK_ERRORS as error:
                sent, self._error = 0, error
            self._unsent = unsent_after(buffers, sent)
        if self._unsent or self.pipeline.waiting:
            self.sendable.notify()

    async def run(self) -> None:
        """Send what begin() did not send, until an error or a cancellation."""
        while True:
            buffers, self._unsent = self._unsent or self.pipeline.take_sendable(), []
            if self._error is not None:
                raise self._error
            if buffers:
                self._is_sending = True
                await self._link.send(buffers)
                self._is_sending = False
            elif (resumes_at := self.pipeline.resumes_at) == math.inf:
                await self.sendable.wait()
            else:
                with anyio.CancelScope(deadline=resumes_at):
                    await self.sendable.wait()


def decoded(kind: type[R], version: int, frame: Frame) -> R:
    """Return the response in a frame. Raises MessageDecodeError."""
    _, response = decode_response(kind, version, frame.data)
    _bound_throttle(response)
    return response


def respond(
    kind: type[R], version: int, on_response: Callable[[Leased[R]], None], frame: Frame
) -> R | None:
    """Decode a response and pass it on. Return None on failure, which the task then raises."""
    try:
        response = decoded(kind, version, frame)
    except Exception:
        return None
    on_response(Leased(response, frame))
    return response


def pause_after(response: Any, version: int) -> float:
    """Return the seconds without requests that a response in this version asks for (KIP-219)."""
    if version < _PAUSES_FROM.get(response.api_key, 0):
        return 0.0
    seconds: float = getattr(response, "throttle_time_ms", 0) / 1000
    return seconds


def _bound_throttle(response: Any) -> None:
    requested = getattr(response, "throttle_time_ms", 0)
    if not 0 <= requested <= MAX_THROTTLE_MS:
        response.throttle_time_ms = min(max(requested, 0), MAX_THROTTLE_MS)
