"""Receiver of the responses of one connection, which also measures the line to its broker."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any, cast

from kohort.errors import KafkaConnectionError
from kohort.logs import get_logger
from kohort.transport._printable import in_seconds
from kohort.transport.connection._frames import FrameSource
from kohort.transport.connection._pipeline import (
    ConnectionEnd,
    DeadlineTimer,
    Pending,
    RequestSender,
)
from kohort.transport.network._bytes import ByteConnection, works_in_callbacks
from kohort.transport.network._lifetimes import weak_callback
from kohort.transport.network._loop import CallbackLoop
from kohort.transport.network._tcp import TcpConnection

logger = get_logger("kohort.transport")

LEAST_RATE = 1 << 10
"""Bytes per second below which the deadline of a request does not move."""
MEASURED_BYTES = 1 << 16
"""Least bytes of a response whose rate is measured. The first of them come at once."""
ROUND_TRIPS = 5
"""Number of measurements from which the shortest round trip counts."""
HEAD_SECONDS = 1.0
"""Longest time for the first bytes of a response over the size limit, in seconds."""


class Line:
    """The round trip to one broker and its rate of delivery, over all of its connections.

    The receivers of the connections measure them. Any thread may read them.
    """

    __slots__ = ("_round_trips", "_shortest", "bytes_per_second", "delivery_seconds", "round_trip")

    def __init__(self) -> None:
        self.round_trip: float = math.inf
        """Shortest time from a request to the first byte of its response. Infinity before
        ``ROUND_TRIPS`` of them."""
        self.bytes_per_second: float = math.inf
        """Rate of the latest large response. Infinity before one."""
        self.delivery_seconds: float = 0.0
        """Time from the first to the last byte of the latest large response."""
        self._shortest = math.inf
        self._round_trips = 0

    def note_round_trip(self, seconds: float) -> None:
        """Note a time between a request and its response.

        The broker may have worked or waited before it responded, so only the shortest time counts.
        The first ones prove little: a broker that has just started responds late.
        """
        self._round_trips += 1
        self._shortest = min(self._shortest, seconds)
        if self._round_trips >= ROUND_TRIPS:
            self.round_trip = self._shortest

    def note_response(self, size: int, first_at: float, last_at: float) -> None:
        """Note a response of ``size`` bytes and the times of its first and last bytes.

        A receiver that was kept from receiving finds the bytes in the system's buffer. Then the
        rate is too high, never too low.
        """
        if size >= MEASURED_BYTES:
            seconds = self.delivery_seconds = last_at - first_at
            self.bytes_per_second = size / seconds if seconds > 0 else math.inf


class ResponseReader:
    """Receiver of responses, which completes the requests of the sender's pipeline.

    ``timer`` is woken when :meth:`failure` may return another value.
    """

    def __init__(
        self,
        source: FrameSource,
        sender: RequestSender,
        end: ConnectionEnd,
        timer: DeadlineTimer,
        clock: Callable[[], float],
        line: Line,
    ) -> None:
        self.source = source
        self.response_count: int = 0
        """Number of responses since the handshake."""
        self.last_response = -math.inf
        self.head_until = math.inf
        """Time limit for the first bytes of a response over the size limit."""
        self.on_silence: Callable[[Pending | None], None] = _ignore
        """Callback with the request for which nothing comes, and with None when responses resume.

        It is called once for each silence.
        """
        self._is_silent = False
        self._first_at = -math.inf
        """Time of the first byte of the latest response."""
        self._sender = sender
        self._end = end
        self._timer = timer
        self._clock = clock
        self._line = line
        self._failure: tuple[Exception, Pending | None] | None = None

    def begin(self, max_frame: int) -> None:
        """Expect responses of up to this size from now on, instead of those of the handshake."""
        self.source.max_size = max_frame
        self.source.wants_head_of = weak_callback(self._large_response)
        self.source.awaited_id = self._sender.pipeline.awaited_id

    def _large_response(self) -> int | None:
        """Return the correlation id of the next response if it is for request_leased(), or None."""
        if (pending := self._sender.pipeline.awaited) is None or not pending.large:
            return None
        self.head_until = self._clock() + HEAD_SECONDS
        self._timer.end_wait()
        return pending.correlation_id

    async def run(self) -> None:
        """Receive responses until the connection ends or fails."""
        pipeline = self._sender.pipeline
        while self._end.failure is None:
            frame = await self.source.read()
            if frame is None:
                raise self._end.announced or KafkaConnectionError("closed by the broker")
            pending = pipeline.match_response(frame.data)
            source = self.source
            first_at = source.last_at if source.first_at is None else source.first_at
            self._line.note_round_trip(first_at - pending.posted_at)
            self._line.note_response(len(frame.data), first_at, source.last_at)
            pending.preceded_at, self._first_at = self._first_at, first_at
            self.response_count += 1
            self.last_response = self._clock()
            if self._is_silent:
                self._is_silent = False
                self.on_silence(None)
            self.source.pool.trim(self.last_response)
            pending.complete(frame)
            if pipeline.waiting:
                self._sender.sendable.notify()
            del frame, pending  # otherwise the response would live until the next one

    def run_in_callbacks(
        self, link: ByteConnection, loop: CallbackLoop | None, running: Coroutine[Any, Any, None]
    ) -> bool:
        """Continue run() whenever the event loop finds the socket readable, without a task.

        Return False if the loop or the link cannot do that. ``running`` is the coroutine of run(),
        which must not use anyio, because anyio finds no event loop in a callback. Its error is left
        for failure().
        """
        if loop is None or not works_in_callbacks(link):
            return False

        def on_readable() -> None:
            try:
                running.send(None)
            except Exception as error:
                cast(TcpConnection, link).stop_reading()
                # A request that is sent before failure() is called is not the cause.
                self._failure = error, self._sender.pipeline.awaited
                self._timer.end_wait()

        return cast(TcpConnection, link).read_with(loop, on_readable)

    @property
    def silent_at(self) -> float:
        """Time at which note_silence() reports a silence, or infinity."""
        awaited = self._sender.pipeline.awaited
        if awaited is None or self._is_silent:
            return math.inf
        return max(awaited.silent_at, self.source.last_at + awaited.timeout / 2)

    def note_silence(self) -> None:
        """Report if not one byte came for half of the time of the next response."""
        now = self._clock()
        if self.silent_at <= now:
            self.source.received()  # it may move the time of the latest byte
        if self.silent_at <= now:
            self._is_silent = True
            self.on_silence(self._sender.pipeline.awaited)

    def is_receiving(self, pending: Pending, now: float) -> bool:
        """Move the deadline of a sent request if enough bytes came since it was set.

        Return False if they did not, so that the request has failed. The response may be that of
        an earlier request, because responses come in order.
        """
        received = self.source.received()
        last_at = self.source.last_at
        enough = LEAST_RATE * pending.timeout
        if received - pending.received < enough or last_at + pending.timeout <= now:
            return False
        pending.move_deadline(last_at + pending.timeout, received)
        return True

    def failure(self) -> tuple[Exception, Pending | None] | None:
        """Return the error that ended reading, with the request that awaited a response."""
        if self._failure is not None:
            return self._failure
        if self._clock() >= self.head_until and (error := self.source.too_large) is not None:
            return error, self._sender.pipeline.awaited
        return None


SHORT_REQUEST_SECONDS = 2.0
"""Timeout of a request below which the silence of its broker is not logged."""


class SilenceLog:
    """Lines in the log about a broker that sends nothing, one for all of its connections."""

    __slots__ = ("_is_reported",)

    def __init__(self) -> None:
        self._is_reported = False

    def note(self, broker: str, awaited: Pending | None) -> None:
        """Log once that nothing comes for a request, and once that the broker responds again.

        A request with little time, such as the last one of a process, is not worth a line.
        """
        if awaited is not None and awaited.timeout < SHORT_REQUEST_SECONDS:
            return
        if awaited is None and self._is_reported:
            logger.info("%s responds again", broker)
        elif awaited is not None and not self._is_reported:
            logger.warning(
                "%s has sent nothing for %s, and %s waits: it may be frozen or cut off",
                broker,
                in_seconds(awaited.timeout / 2),
                awaited.name,
            )
        self._is_reported = awaited is not None


def _ignore(awaited: Pending | None) -> None:
    pass
