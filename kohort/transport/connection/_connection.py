"""BrokerConnection: handshake, versions, pipelined requests and their deadlines.

``open()`` does what comes before the first request: the TLS handshake, ApiVersions and the login.
The request ApiVersions is the Greeting. If the broker closes at it without a byte, a lower version
follows on a new connection. The versions are known while another connection to the same broker is
open, or if all brokers of the cluster serve them. Then other requests follow ApiVersions without a
wait for its response, except for a login.
``run()`` then serves the connection with these parts:

- Pipeline has the queue of requests, and those in flight. RequestSender sends them.
- ResponseReader completes requests, and measures the round trip and the rate of the broker (Line).
  On asyncio the event loop calls it when the socket is readable. On trio and over streams it is a
  task.
- DeadlineTimer is one timer for all deadlines.
- Logins renews the SASL session. Other requests wait for about one round trip.
- ConnectionEnd has the end, and its reason.

Invariants:

1. A connection belongs to one event loop, so it has no locks.
2. Responses come in the order of the requests. A request that passes its deadline therefore closes
   the connection, because its missing response holds back all later ones. A request that was not
   sent yet fails alone.
3. A deadline moves with the bytes that arrive, while at least 1 KiB/s of a response come. So it
   ends a silent connection, but not a slow one.
4. The cancellation of a caller leaves the connection open. The response is dropped when it comes,
   and the deadline still applies.
5. The end comes once, and fails all requests that wait or are in flight. One that caused it gets
   the error itself, and the others get a KafkaConnectionError.
6. ``call_on_close()`` runs before any waiting caller continues, so a back-off begins first.
7. A throttle time in a response pauses later requests of this connection (KIP-219). In older
   versions of an API the broker pauses, and the client does not. Logins continue.
8. A buffer is used again only if no view of it exists. A lease that ends too early costs memory,
   never data.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import anyio

from kohort.config import ClientConfig
from kohort.errors import (
    FrameTooLargeError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageDecodeError,
    ProtocolError,
    SaslAuthenticationFailedError,
)
from kohort.logs import error_text, get_logger
from kohort.protocol import Message, Request, Response, encode_request, messages
from kohort.transport._printable import LOOKS_LIKE, NONSENSE, RAISE, address, in_seconds
from kohort.transport.connection._frames import Frame, FrameSource, Leased, OversizedFrameError
from kohort.transport.connection._handshake import MAX_BYTES as HANDSHAKE_MAX_BYTES
from kohort.transport.connection._handshake import (
    connected,
    explained_error,
    first_login,
    refusal,
    secure,
    shake_hands,
    versions_request,
)
from kohort.transport.connection._pipeline import (
    ConnectionEnd,
    DeadlineTimer,
    Pending,
    Pipeline,
    RequestSender,
    decoded,
    pause_after,
    respond,
)
from kohort.transport.connection._pool import BufferPool
from kohort.transport.connection._response_reader import LEAST_RATE, Line, ResponseReader
from kohort.transport.connection._versions import (
    BrokerVersions,
    ClosedSilentlyError,
    Greeting,
    Greetings,
)
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection, Connect
from kohort.transport.network._lifetimes import start_soon
from kohort.transport.network._loop import OneShot, callback_loop, clock_of, running_clock

if TYPE_CHECKING:
    from kohort.security import Mechanism
    from kohort.transport.connection._login_renewal import Logins

DEFAULTS = ClientConfig()
"""Defaults for callers without a configuration."""

logger = get_logger("kohort.transport")

R = TypeVar("R", bound=Response)

CLOSE_SECONDS = 1.0


def _nothing() -> None:
    """Do nothing."""


class BrokerConnection:
    """A connection to a broker. open() creates it, and run() has to run for responses to come.

    It belongs to one event loop. All requests share one order.
    """

    def __init__(
        self,
        link: ByteConnection,
        peer: str,
        client_id: str,
        pool: BufferPool,
        max_in_flight: int,
        line: Line | None = None,
    ) -> None:
        self.peer = peer
        """``host:port``, escaped."""
        self.versions: BrokerVersions = BrokerVersions(peer, ())
        self.is_confirmed: bool = False
        """True once the broker has sent its versions."""
        self.is_misjudged: bool = False
        """True if the broker serves others than those in which the first requests were sent."""
        self.logins: Logins | None = None
        """Logins that renew the SASL session, or None without SASL."""
        self._loop = callback_loop()
        self._clock = clock_of(self._loop)
        self._link = link
        self._on_confirmation: Callable[[], None] = _nothing
        self._client_id = client_id
        self._next_id = 0
        self._last_request: float = self._clock()
        self._last_proof = self._last_request
        """Time of the end of the handshake, if no response came since."""
        self._check: OneShot | None = None
        """Set when a check by is_alive() ends. None while none runs."""
        self._pipeline = Pipeline(max_in_flight, self._clock)
        self._end = ConnectionEnd()
        self._timer = DeadlineTimer()  # for _watch()
        self._sender = RequestSender(link, self._pipeline)
        self._source = FrameSource(link, pool, HANDSHAKE_MAX_BYTES, self._clock)
        self._line = line or Line()
        self._reader = ResponseReader(
            self._source, self._sender, self._end, self._timer, self._clock, self._line
        )

    # -- opening ------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        connect: Connect,
        host: str,
        port: int,
        *,
        client_id: str = DEFAULTS.client_id,
        timeout: float = DEFAULTS.socket_connection_setup_timeout_ms / 1000,
        pool: BufferPool | None = None,
        max_frame: int = DEFAULTS.receive_message_max_bytes,
        max_in_flight: int = DEFAULTS.max_in_flight_requests_per_connection,
        mechanism: Mechanism | None = None,
        rng: random.Random | None = None,
        greetings: Greetings | None = None,
        node_id: int = -1,
        line: Line | None = None,
        known_versions: Callable[[Greeting], BrokerVersions | None] = lambda _: None,
    ) -> BrokerConnection:
        """Connect, do the TLS handshake, ask for versions and log in.

        Each step takes at most ``timeout`` seconds. If the broker refuses the credentials and the
        ``mechanism`` has others by now, these are tried at once. ``rng`` spreads the later logins.
        ``greetings`` and ``node_id`` decide the first request. If the broker closes at it without a
        byte, another connection gets a lower version. ``line`` notes the measured times.
        ``known_versions`` gets the first request, and returns the versions that this broker serves
        for certain. If it returns None, they are awaited.
        Raises SecurityError, KafkaConnectionError, KafkaTimeoutError, ProtocolError,
        UnsupportedVersionError or another BrokerResponseError, with the address in the message.
        """
        peer = address(host, port)
        logins = first_login(mechanism, host, peer, timeout, rng)
        greetings = greetings or Greetings()
        clock = running_clock()
        greeting = greetings.of(host, port, node_id, clock())
        while True:
            link = await connected(connect, host, port, timeout)
            connection = cls(link, peer, client_id, pool or BufferPool(), max_in_flight, line)
            try:
                await connection._prepare(logins, timeout, max_frame, greeting, known_versions)
            except SaslAuthenticationFailedError:
                if logins is None or not await logins.has_other_credentials():
                    raise
            except KafkaConnectionError as error:
                if not isinstance(error.__cause__, ClosedSilentlyError):
                    raise
                lower = greetings.lower(host, port, greeting, clock())
                if lower is None:
                    raise
                greeting = lower
            else:
                greetings.succeeded(host, port, greeting, clock())
                return connection

    async def _prepare(
        self,
        logins: Logins | None,
        timeout: float,
        max_frame: int,
        greeting: Greeting,
        known_versions: Callable[[Greeting], BrokerVersions | None],
    ) -> None:
        """Do all steps before the first request. Close the connection if one fails."""
        source = self._source
        is_ready = False
        try:
            await secure(self._link, timeout)
            if logins is None and (known := known_versions(greeting)) is not None:
                self._reader.begin(max_frame)
                self._send_greeting(known, timeout, greeting)
                is_ready = True
                return
            with anyio.move_on_after(timeout) as scope:
                began = self._clock()
                self.versions = await shake_hands(
                    self._link, source, self.peer, self._client_id, greeting
                )
                self._line.note_round_trip(self._clock() - began)
                self.is_confirmed = True
                is_ready = logins is None
            if scope.cancelled_caught:
                raise KafkaTimeoutError(
                    f"{self.peer} accepted, but did not respond within {in_seconds(timeout)}"
                )
            if logins is not None:
                sender = logins.direct(self._link, source, self._client_id, self._take_id)
                self._pipeline = await logins.log_in(sender, self.versions, self._pipeline)
                self._sender.pipeline = self._pipeline
                self.logins, is_ready = logins, True
        except Exception as error:
            explained = explained_error(self.peer, error)
            if explained is error:
                raise
            raise explained from error
        finally:
            if not is_ready:
                await self._close_link()
        self._last_proof = self._clock()
        self._reader.begin(max_frame)

    def _send_greeting(self, known: BrokerVersions, timeout: float, greeting: Greeting) -> None:
        """Use known versions, and request those of this connection before all else.

        An address may lead to several brokers, and not all of them serve the same. An error in the
        callback ends the connection, as each error of the reader does.
        """
        self.versions = known
        kind = messages.ApiVersionsResponse
        version = known.choose(messages.ApiVersionsRequest, max_version=greeting.version)

        def received(frame: Frame) -> None:
            self._reader.response_count -= 1  # a part of the handshake
            response = decoded(kind, version, frame)
            frame.release()
            if response.error_code:
                raise refusal(self.peer, greeting, response.error_code)
            confirmed, self.is_confirmed = BrokerVersions.of(self.peer, response), True
            if confirmed.by_api != known.by_api:
                self.versions, self.is_misjudged = confirmed, True
            confirm, self._on_confirmation = self._on_confirmation, _nothing
            confirm()

        self.post(versions_request(greeting), version, timeout).on_frame = received

    # -- requests -----------------------------------------------------------------------------

    @property
    def failure(self) -> KafkaError | None:
        """Reason why it is closed, or None while it is open."""
        return self._end.failure

    @property
    def closed_by_us(self) -> bool:
        """True if this client closed it, or caused the close."""
        return self._end.is_by_client

    @property
    def lost_requests(self) -> int:
        """Number of requests that failed because it closed."""
        return self._end.lost_requests

    @property
    def response_count(self) -> int:
        """Number of responses since the handshake."""
        return self._reader.response_count

    @property
    def last_used(self) -> float:
        """Time of the latest request or response."""
        return max(self._last_request, self._reader.last_response)

    @property
    def round_trip(self) -> float:
        """Shortest round trip to the broker in seconds. Infinity before it is known."""
        return self._line.round_trip

    @property
    def in_flight(self) -> int:
        """Number of requests without a response, abandoned ones included."""
        return len(self._pipeline)

    def is_silent(self, seconds: float) -> bool:
        """True if nothing is in flight, and nothing came from the broker for that time.

        A load balancer may have forgotten the connection. True also while is_alive() checks it.
        """
        if self._check is not None:
            return True
        proof = max(self._last_proof, self._reader.last_response)
        return not self._pipeline and proof + seconds < self._clock()

    async def is_alive(self, seconds: float) -> bool:
        """Return True if the broker responds to ApiVersions within that time. Close it if not.

        Callers during a check wait for its result.
        """
        if self._check is not None:
            await self._check.wait()
            return self._end.failure is None
        silence = self._clock() - max(self._last_proof, self._reader.last_response)
        self._check = OneShot()
        try:
            with anyio.move_on_after(seconds) as scope:
                await self.request(
                    messages.ApiVersionsRequest(), timeout=2 * seconds, max_version=2
                )
            if scope.cancelled_caught and self._end.failure is None:
                error = KafkaConnectionError(
                    f"{self.peer} did not respond within {in_seconds(seconds)} after "
                    f"{in_seconds(silence)} without a request"
                )
                logger.info("%s: a new connection replaces this one", error_text(error))
                self.retire(error)
        except KafkaError:
            pass  # the connection is closed, or the request does not suit the broker
        finally:
            self._check.set()
            self._check = None
        return self._end.failure is None

    def version_for(
        self,
        message: type[Message],
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> int:
        """Return the highest version that both sides know. Raises UnsupportedVersionError."""
        return self.versions.choose(message, min_version, max_version)

    async def request(
        self,
        message: Request[R],
        *,
        timeout: float = DEFAULTS.request_timeout_ms / 1000,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """Send a request and wait at most ``timeout`` seconds for its response.

        Raises KafkaTimeoutError, KafkaConnectionError, ProtocolError, UnsupportedVersionError,
        MessageEncodeError. The memoryviews in the response stay valid.
        """
        response, frame = await self._exchange(message, timeout, min_version, max_version)
        frame.release()
        return response

    async def request_leased(
        self,
        message: Request[R],
        *,
        timeout: float = DEFAULTS.request_timeout_ms / 1000,
        min_version: int | None = None,
        max_version: int | None = None,
        on_response: Callable[[Leased[R]], None] | None = None,
    ) -> Leased[R]:
        """Send a request for a large response, whose buffer is reused after its release.

        ``on_response`` gets the response first, in the callback that received it. It must not
        raise or wait, and it must not use anyio, which finds no event loop in a callback. Raises
        OversizedFrameError for a response over the size limit.
        """
        return Leased(
            *await self._exchange(
                message, timeout, min_version, max_version, large=True, on_response=on_response
            )
        )

    async def _exchange(
        self,
        message: Request[R],
        timeout: float,
        min_version: int | None,
        max_version: int | None,
        *,
        large: bool = False,
        on_response: Callable[[Leased[R]], None] | None = None,
    ) -> tuple[R, Frame]:
        if (failure := self._end.failure) is not None:
            raise KafkaConnectionError(
                f"the connection to {self.peer} is closed: {failure}"
            ) from failure
        chosen = self.version_for(type(message), min_version, max_version)
        kind = cast(type[R], type(message).response)
        pending = self.post(message, chosen, timeout, large=large)
        if on_response is not None:
            pending.on_frame = partial(respond, kind, chosen, on_response)
        try:
            await pending.done.wait()
        except BaseException:
            self._abandon(pending)
            raise
        if pending.error is not None:
            if isinstance(pending.error, OversizedFrameError):
                pending.error.version = chosen
            raise pending.error
        frame = pending.frame or Frame(b"")
        response = cast("R | None", pending.result)
        if response is None:
            try:
                response = decoded(kind, chosen, frame)
            except MessageDecodeError as error:
                raise self._fail(error) from error
        if pause := pause_after(response, chosen):
            self._pipeline.pause(pause)
        return response, frame

    def post(
        self, message: Request[R], version: int, timeout: float, *, large: bool = False
    ) -> Pending:
        """Send or queue a request. Its timeout begins now."""
        correlation_id = self._take_id()
        buffers = encode_request(message, version, correlation_id, self._client_id)
        now = self._last_request = self._clock()
        name = type(message).__name__
        done, received = OneShot(self._loop), self._source.received_bytes
        pending = Pending(name, correlation_id, buffers, timeout, now, done, received)
        pending.large = large
        self._pipeline.waiting.append(pending)
        self._sender.begin()
        if (due := min(pending.deadline, pending.silent_at)) < self._timer.end:
            self._timer.move_to(due)
        return pending

    def _take_id(self) -> int:
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return self._next_id

    def _abandon(self, pending: Pending) -> None:
        """Mark a request as abandoned by its caller. Its deadline still applies."""
        if not self._pipeline.withdraw(pending):
            pending.abandoned = True

    def _expire(self, pending: Pending) -> None:
        if self._pipeline.withdraw(pending):
            pending.fail(
                KafkaTimeoutError(
                    f"{pending.name} could not be sent to {self.peer} within "
                    f"{pending.timeout:g} s: earlier requests have no response yet"
                )
            )
        else:
            within = "in time" if pending.abandoned else f"within {in_seconds(pending.timeout)}"
            text = f"did not respond to {pending.name} {within}"
            if pending.was_being_received:
                text = (
                    f"stopped in its response to {pending.name}: less than {LEAST_RATE} bytes per "
                    f"second came in {in_seconds(pending.timeout)}"
                )
            self._fail(KafkaTimeoutError(f"{self.peer} {text}"), pending)

    # -- running ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send and receive until a failure, a close or cancellation, then close. Never raises."""
        running = self._reader.run()
        try:
            async with anyio.create_task_group() as tasks:
                self._end.tasks = tasks.cancel_scope
                if self._end.failure is None:
                    start_soon(tasks, self._run_task, self._sender.run)
                    if self.logins is not None:
                        start_soon(tasks, self._run_task, partial(self.logins.run, self))
                    if not self._reader.run_in_callbacks(self._link, self._loop, running):
                        start_soon(tasks, self._run_task, lambda: running)
                    await self._watch()
        finally:
            running.close()
            self.abort()
            await self._close_link()

    async def _run_task(self, function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except Exception as error:
            self._fail_reading(error, self._pipeline.awaited)

    def _fail_reading(self, error: Exception, pending: Pending | None) -> None:
        # A protocol error replaces the next response, so the awaited request gets the error.
        if not isinstance(error, ProtocolError):
            pending = None
        elif pending is not None and isinstance(error, OversizedFrameError):
            error = error.with_text(
                f"the response to {pending.name} has {error.size} bytes, more than "
                f"receive_message_max_bytes={error.limit}"
            )
        self._fail(error, pending)

    async def _watch(self) -> None:
        """Fail the requests whose deadline has passed, with one timer for all of them."""
        while self._end.failure is None:
            if (failure := self._reader.failure()) is not None:
                return self._fail_reading(*failure)
            now = self._clock()
            for pending in self._pipeline.overdue(now):
                if not pending.done.is_set:  # it failed with the one before it
                    if pending.buffers or not self._reader.is_receiving(pending, now):
                        self._expire(pending)
            self._reader.note_silence()
            # Deadlines of requests of one kind only grow, so the timer is seldom moved.
            await self._timer.wait(
                min(self._pipeline.next_deadline, self._reader.head_until, self._reader.silent_at)
            )

    def begin_sending(self) -> None:
        """Send queued requests as far as the system takes their bytes at once."""
        self._sender.begin()

    # -- the end ------------------------------------------------------------------------------

    def call_on_confirmation(self, callback: Callable[[], None]) -> None:
        """Call it once the broker has sent its versions, which may be now."""
        if self.is_confirmed:
            callback()
        else:
            self._on_confirmation = callback

    def call_on_close(self, callback: Callable[[], None]) -> None:
        """Call it at the close, before any waiting caller continues."""
        self._end.on_close = callback

    def call_on_silence(self, callback: Callable[[Pending | None], None]) -> None:
        """Call it with a request for which nothing comes, and with None when responses resume."""
        self._reader.on_silence = callback

    def expect_close(self, reason: KafkaError | None) -> None:
        """Note that the broker is about to close it because of this client."""
        self._end.is_by_client = True
        if reason is not None:
            self._end.announced = reason

    def _fail(self, error: Exception, culprit: Pending | None = None) -> KafkaError:
        """Close with an error, fail all requests with it, and return it as a typed error."""
        explained = explained_error(self.peer, error)
        if isinstance(explained, ProtocolError) and not isinstance(explained, OversizedFrameError):
            large = isinstance(explained, FrameTooLargeError) and LOOKS_LIKE not in str(explained)
            explained = type(explained)(f"{explained}. {NONSENSE}{RAISE if large else ''}")
        explained.__cause__ = error.__cause__
        self._end.fail(explained, self._pipeline, culprit)
        self._on_confirmation = _nothing  # it refers to the connection
        return explained

    def abort(self) -> None:
        """Refuse new requests and fail those in flight. run() then ends."""
        if self._end.failure is None:
            self.retire(KafkaConnectionError("the connection was closed by this client"))

    def retire(self, error: KafkaError) -> None:
        """Close it without a back-off, so that a new connection replaces it."""
        self._end.is_by_client = True
        self._fail(error)

    async def _close_link(self) -> None:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            try:
                await self._link.aclose()
            except NETWORK_ERRORS:
                logger.debug("closing the connection to %s failed", self.peer, exc_info=True)

    async def aclose(self) -> None:
        """Close it within a second and fail the requests in flight. Idempotent."""
        self.abort()
        await self._close_link()
