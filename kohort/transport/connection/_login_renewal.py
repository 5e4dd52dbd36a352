"""Logins on a live connection, before its SASL session ends (KIP-368).

A broker processes the requests of a connection in order. A login is therefore pipelined after the
requests in flight, even after a fetch that waits for records. Between SaslHandshake and the end of
the login the broker accepts no other request. Later requests wait for about one round trip.

1. At 85 to 95 % of the session the client gets credentials or a token. Requests continue.
2. It closes the gate and sends SaslHandshake with the first SaslAuthenticate. A token that may
   expire before the broker reads it is sent after the response to SaslHandshake.
3. With the last response it opens the gate.

A connection that was not used since its last login is not logged in again until its next request.
The broker does not close it meanwhile.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import anyio

from kohort.errors import (
    ErrorCode,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    MessageDecodeError,
)
from kohort.logs import get_logger
from kohort.protocol import Buffer, Message, Request, Response, decode_response
from kohort.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from kohort.transport._printable import reason
from kohort.transport.connection._frames import Frame, FrameSource
from kohort.transport.connection._login import DirectLoginSender, Login, SaslSession, log_in
from kohort.transport.connection._pipeline import Pending, Pipeline, decoded
from kohort.transport.connection._versions import BrokerVersions
from kohort.transport.network._bytes import ByteConnection
from kohort.transport.network._loop import TaskSignal, running_clock

if TYPE_CHECKING:
    from kohort.security import Mechanism

logger = get_logger("kohort.transport")

R = TypeVar("R", bound=Response)

EARLIEST, LATEST = 0.85, 0.95
"""Fractions of a session between which the next login begins."""
LEAST_INTERVAL = 1.0
"""Seconds that a broker requires between two logins."""
SPARE = 0.05
"""Seconds added to LEAST_INTERVAL, which the broker measures by its clock."""
LONGEST_PAUSE = 10.0


class GatedPipeline(Pipeline):
    """A pipeline with a gate. A closed gate passes only requests of a login."""

    def __init__(self, max_in_flight: int, clock: Callable[[], float]) -> None:
        super().__init__(max_in_flight, clock)
        self.is_closed = False
        self.closes_at = math.inf
        """End of the session. The gate closes then, if no login has begun before."""
        self.wanted = TaskSignal()
        """Notified when the closed gate holds back a request."""
        self._prioritized = 0

    @property
    def holds_back(self) -> bool:
        """True if a request waits for the end of a login."""
        return self.is_closed and len(self.waiting) > self._prioritized

    def take_sendable(self) -> list[Buffer]:
        if not self.is_closed and self._clock() >= self.closes_at:
            self.is_closed = True
        if not self.is_closed:
            return super().take_sendable()
        buffers: list[Buffer] = []
        while self._prioritized:
            self._prioritized -= 1
            pending = self.waiting.popleft()
            self.sent.append(pending)
            buffers += pending.buffers
            pending.buffers = []
        if self.waiting:
            self.wanted.notify()
        return buffers

    @property
    def resumes_at(self) -> float:
        """Time at which the pause ends, or infinity while the gate is closed: its opening wakes."""
        return math.inf if self.is_closed else super().resumes_at

    def withdraw(self, pending: Pending) -> bool:
        if self._prioritized and pending in list(self.waiting)[: self._prioritized]:
            self._prioritized -= 1
        return super().withdraw(pending)

    def prioritize(self, pending: Pending) -> None:
        """Move a request of a login before all others, to be sent even through a closed gate."""
        self.waiting.remove(pending)
        self.waiting.insert(self._prioritized, pending)
        self._prioritized += 1

    @property
    def last_deadline(self) -> float:
        """Latest deadline of the requests in flight, or minus infinity without one."""
        return max((each.deadline for each in self.sent), default=-math.inf)


class LoginConnection(Protocol):
    """Parts of a connection in use that a login needs."""

    peer: str
    versions: BrokerVersions

    @property
    def last_used(self) -> float:
        """Time of the latest request or response."""
        ...

    @property
    def round_trip(self) -> float:
        """Shortest round trip to the broker, or infinity."""
        ...

    def version_for(self, message: type[Message], min_version: int | None = None) -> int:
        """Return the highest version that both sides know."""
        ...

    def post(self, message: Request[R], version: int, timeout: float) -> Pending:
        """Send or queue a request."""
        ...

    def begin_sending(self) -> None:
        """Send queued requests without waiting."""
        ...

    def expect_close(self, reason: KafkaError | None) -> None:
        """Note that the broker is about to close it because of this client."""
        ...

    def retire(self, error: KafkaError) -> None:
        """Close it without a back-off, so that a new connection replaces it."""
        ...


class Logins:
    """The logins of one connection. One follows before each end of a session."""

    def __init__(
        self,
        mechanism: Mechanism,
        host: str,
        peer: str,
        timeout: float,
        rng: random.Random,
    ) -> None:
        self.session: SaslSession = SaslSession("", 0.0, None)
        self.mechanism = mechanism
        self._host = host
        self._peer = peer
        self._timeout = timeout
        """Longest time of the broker for a step, in seconds."""
        self._rng = rng
        self._clock = running_clock()
        self._first = Login(mechanism, host, peer)
        self._has_tried_others = False
        self._pipeline = GatedPipeline(0, self._clock)
        self._renew_at = math.inf
        self._logged_in_at = -math.inf

    def direct(
        self,
        link: ByteConnection,
        source: FrameSource,
        client_id: str,
        take_id: Callable[[], int],
    ) -> DirectLoginSender:
        """Return the sender for the requests of log_in()."""
        return DirectLoginSender(link, source, client_id, take_id, self._clock)

    async def log_in(
        self, sender: DirectLoginSender, versions: BrokerVersions, plain: Pipeline
    ) -> Pipeline:
        """Log in on a new connection and return its pipeline, with a gate if the session ends."""
        session = await log_in(self._first, sender, versions, self._peer, self._timeout)
        self.begin(session)
        if session.ends_at is None:
            return plain
        self._pipeline.max_in_flight = plain.max_in_flight
        return self._pipeline

    async def has_other_credentials(self) -> bool:
        """Return True once if the source has credentials that differ from the refused ones."""
        if self._has_tried_others:
            return False
        self._has_tried_others = True
        try:
            return await self._first.renew()
        except KafkaError as error:
            logger.debug("no other credentials for %s: %s", self._peer, reason(error))
            return False

    def begin(self, session: SaslSession) -> None:
        """Start the session of a successful login, and open the gate."""
        self.session = session
        self._logged_in_at = self._clock()
        pipeline = self._pipeline
        if session.ends_at is None:
            self._renew_at = pipeline.closes_at = math.inf
        else:
            pipeline.closes_at = session.ends_at
            seconds = session.ends_at - session.began_at
            part = self._rng.uniform(EARLIEST, LATEST)
            least = LEAST_INTERVAL + SPARE
            self._renew_at = max(session.began_at + seconds * part, self._logged_in_at + least)
        pipeline.is_closed = False

    async def run(self, connection: LoginConnection) -> None:
        """Log in before each end of the session, until the connection ends."""
        while self.session.ends_at is not None:
            await self._wait_until_due(connection)
            try:
                await self._renew(connection)
            except IllegalSaslStateError:
                await self._postpone(connection)
            except KafkaError as error:
                self._give_up(connection, error)
                return

    async def _wait_until_due(self, connection: LoginConnection) -> None:
        pipeline = self._pipeline
        if pipeline.holds_back:
            return
        with anyio.CancelScope(deadline=self._renew_at):
            await pipeline.wanted.wait()
        if not len(pipeline) and connection.last_used <= self._logged_in_at:
            pipeline.is_closed = True
            await pipeline.wanted.wait()

    async def _renew(self, connection: LoginConnection) -> None:
        login = Login(self.mechanism, self._host, self._peer)
        await self._prepare(login)
        self._pipeline.is_closed = True
        sender = PipelinedLoginSender(connection, self._pipeline, login, self._timeout, self._clock)
        wait = self._pipeline.last_deadline - self._clock()
        if wait > 0 and login.exchange is not None and not login.exchange.is_valid_for(wait):
            # A fetch in flight may delay the broker until the token has expired.
            await sender.shake_hands()
            login.exchange = None
            await self._prepare(login)
        self.begin(await login.authenticate(sender, connection.versions))
        logger.debug("renewed the SASL session of %s", connection.peer)
        connection.begin_sending()

    async def _prepare(self, login: Login) -> None:
        """Get credentials or a token. Retry until the session ends."""
        pause = 0.1
        while True:
            try:
                return await login.prepare()
            except KafkaError as error:
                if self._clock() + pause >= self._pipeline.closes_at:
                    raise
                logger.warning("the SASL session is not renewed yet: %s", reason(error))
                await anyio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _postpone(self, connection: LoginConnection) -> None:
        """Continue without a login that the broker refused as too early."""
        logger.debug("%s refused a SASL login as too early", connection.peer)
        self._pipeline.is_closed = False
        connection.begin_sending()
        self._renew_at = self._clock() + LEAST_INTERVAL
        await anyio.sleep(LEAST_INTERVAL)

    def _give_up(self, connection: LoginConnection, error: KafkaError) -> None:
        """Close the connection. A permanent refusal shows on the next one."""
        logger.info(
            "the SASL session of %s cannot be renewed, a new connection replaces it: %s",
            connection.peer,
            reason(error),
        )
        connection.retire(not_renewed(reason(error)))


def not_renewed(why: str) -> KafkaConnectionError:
    """Return the error of a connection whose session cannot be renewed."""
    return KafkaConnectionError(f"the SASL session could not be renewed: {why}")


class PipelinedLoginSender:
    """Sender of a login on a connection in use. It sends SaslHandshake first."""

    def __init__(
        self,
        connection: LoginConnection,
        pipeline: GatedPipeline,
        login: Login,
        timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self.sent_at = 0.0
        self._connection = connection
        self._pipeline = pipeline
        self._login = login
        self._timeout = timeout
        self._clock = clock
        self._has_begun = False

    async def __call__(self, message: Request[R], version: int, /) -> R:
        """Send a request and return the response. Raises the error that ends the connection."""
        self.sent_at = self._clock()
        if self._has_begun:
            return await self._response(self._post(message, version), message, version)
        handshake = self._begin()
        pending = self._post(message, version)
        if not await self._is_begun(handshake):
            await self._response(pending, message, version)
            raise IllegalSaslStateError("too early")
        return await self._response(pending, message, version)

    async def shake_hands(self) -> None:
        """Send SaslHandshake alone. Its response comes after all requests in flight."""
        if not await self._is_begun(self._begin()):
            raise IllegalSaslStateError("too early")

    def _begin(self) -> Pending:
        self._has_begun = True
        hello = SaslHandshakeRequest(mechanism=self._login.name)
        return self._post(hello, self._connection.version_for(SaslHandshakeRequest, 1))

    async def _is_begun(self, handshake: Pending) -> bool:
        """Wait for SaslHandshake. Return False if the login came too early for the broker."""
        hello = SaslHandshakeRequest(mechanism=self._login.name)
        version = self._connection.version_for(SaslHandshakeRequest, 1)
        response = await self._response(handshake, hello, version)
        # The broker may have started the login right after it began the response before. The way
        # of that response and the way of a later request are a round trip.
        self.sent_at = max(self.sent_at, handshake.preceded_at - self._connection.round_trip)
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            return False
        self._login.check_handshake(response)
        return True

    def _post(self, message: Request[R], version: int) -> Pending:
        now = self._clock()
        wait = max(self._pipeline.last_deadline - now, 0.0)
        pending = self._connection.post(message, version, wait + self._timeout)
        if isinstance(message, SaslAuthenticateRequest):
            pending.on_frame = partial(self._note_refusal, version)
        self._pipeline.prioritize(pending)
        self._connection.begin_sending()
        return pending

    def _note_refusal(self, version: int, frame: Frame) -> None:
        """Note that the broker closes the connection next, before the close is received."""
        try:
            response = decode_response(SaslAuthenticateResponse, version, frame.data)[1]
        except MessageDecodeError:
            return  # _response() raises it
        if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            exchange = self._login.exchange
            text = response.error_message or ""
            self._connection.expect_close(
                None if exchange is None else not_renewed(exchange.shown(text))
            )

    async def _response(self, pending: Pending, message: Request[R], version: int) -> R:
        await pending.done.wait()
        if pending.error is not None:
            raise pending.error
        kind = cast(type[R], type(message).response)
        return decoded(kind, version, pending.frame or Frame(b""))
