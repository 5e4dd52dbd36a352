"""Logins on a live connection, before its SASL session ends (KIP-368).

A broker takes the requests of a connection in turn. A login is therefore pipelined after the
requests in flight, even after a fetch that waits for records. Between SaslHandshake and the end of
the login the broker takes nothing else: later requests wait for about one round trip.

1. At 85 to 95 % of the session the client gets credentials or a token. Requests go on.
2. It closes the gate and sends SaslHandshake with the first SaslAuthenticate. A token that may
   expire before the broker reads it is sent after the answer to SaslHandshake.
3. With the last answer it opens the gate.

A connection that was not used since its last login is not logged in again until its next request.
The broker does not close it meanwhile.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import anyio

from kohort.errors import (
    ErrorCode,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    MessageDecodeError,
)
from kohort.protocol import Buffer, Request, Response, decode_response
from kohort.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from kohort.transport._bytes import ByteConnection
from kohort.transport._decoding import decoded
from kohort.transport._frames import Frame, FrameSource
from kohort.transport._login import DirectLoginSender, Login, SaslSession, log_in
from kohort.transport._loop import running_clock
from kohort.transport._pending import Pending, Pipeline
from kohort.transport._printable import reason
from kohort.transport._repeatable_event import RepeatableEvent
from kohort.transport._versions import BrokerVersions

if TYPE_CHECKING:
    from kohort.security import Mechanism
    from kohort.transport._connection import BrokerConnection

logger = logging.getLogger("kohort.transport")

R = TypeVar("R", bound=Response)

EARLIEST, LATEST = 0.85, 0.95
"""Parts of a session between which the next login begins."""
LEAST_INTERVAL = 1.0
"""Seconds between two logins that a broker requires."""
SPARE = 0.05
"""Seconds added to LEAST_INTERVAL, because the broker's clock counts."""
LONGEST_PAUSE = 10.0


class GatedPipeline(Pipeline):
    """A pipeline with a gate, which lets requests of a login pass while it is closed."""

    def __init__(self, max_in_flight: int, clock: Callable[[], float]) -> None:
        super().__init__(max_in_flight)
        self.is_closed = False
        self.closes_at = math.inf
        """End of the session. The gate closes then, if no login has begun before."""
        self.wanted = RepeatableEvent()
        """Set when the closed gate holds back a request."""
        self._clock = clock
        self._prioritized = 0

    @property
    def holds_back(self) -> bool:
        """True if a request waits for a login."""
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
            self.wanted.set()
        return buffers

    def withdraw(self, pending: Pending) -> bool:
        if self._prioritized and pending in list(self.waiting)[: self._prioritized]:
            self._prioritized -= 1
        return super().withdraw(pending)

    def prioritize(self, pending: Pending) -> None:
        """Put a request of a login before all others, even while the gate is closed."""
        self.waiting.remove(pending)
        self.waiting.insert(self._prioritized, pending)
        self._prioritized += 1

    @property
    def last_deadline(self) -> float:
        """Latest deadline of the requests in flight; minus infinity if there are none."""
        return max((each.deadline for each in self.sent), default=-math.inf)


class Logins:
    """The logins of one connection: the first, then one before each end of a session."""

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
        """Seconds that the broker may take for a step."""
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
        """Return what sends the requests of log_in()."""
        return DirectLoginSender(link, source, client_id, take_id, self._clock)

    async def log_in(
        self, sender: DirectLoginSender, versions: BrokerVersions, plain: Pipeline
    ) -> Pipeline:
        """Log in on a new connection. Returns the pipeline for it: with a gate if that ends."""
        session = await log_in(self._first, sender, versions, self._peer, self._timeout)
        self.begin(session)
        if session.ends_at is None:
            return plain
        self._pipeline.max_in_flight = plain.max_in_flight
        return self._pipeline

    async def has_other_credentials(self) -> bool:
        """True, once, if the source has credentials that differ from the refused ones."""
        if self._has_tried_others:
            return False
        self._has_tried_others = True
        try:
            return await self._first.renew()
        except KafkaError as error:
            logger.debug("no other credentials for %s: %s", self._peer, reason(error))
            return False

    def begin(self, session: SaslSession) -> None:
        """Take the session of a login that succeeded, and open the gate."""
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

    async def run(self, connection: BrokerConnection) -> None:
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

    async def _wait_until_due(self, connection: BrokerConnection) -> None:
        pipeline = self._pipeline
        if pipeline.holds_back:
            return
        with anyio.CancelScope(deadline=self._renew_at):
            await pipeline.wanted.wait()
        if not len(pipeline) and connection.last_used <= self._logged_in_at:
            pipeline.is_closed = True
            await pipeline.wanted.wait()

    async def _renew(self, connection: BrokerConnection) -> None:
        login = Login(self.mechanism, self._host, self._peer)
        await self._prepare(login)
        self._pipeline.is_closed = True
        sender = PipelinedLoginSender(connection, self._pipeline, login, self._timeout, self._clock)
        wait = self._pipeline.last_deadline - self._clock()
        if wait > 0 and login.exchange is not None and not login.exchange.is_valid_for(wait):
            # A fetch may keep the broker from reading the token until it has expired.
            await sender.shake_hands()
            login.exchange = None
            await self._prepare(login)
        self.begin(await login.authenticate(sender, connection.versions))
        logger.debug("renewed the SASL session of %s", connection.peer)
        connection.begin_sending()

    async def _prepare(self, login: Login) -> None:
        """Get credentials or a token. Try again as long as the session lasts."""
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

    async def _postpone(self, connection: BrokerConnection) -> None:
        """Go on without a login: the broker refused one as too early, and nothing else."""
        logger.debug("%s refused a SASL login as too early", connection.peer)
        self._pipeline.is_closed = False
        connection.begin_sending()
        self._renew_at = self._clock() + LEAST_INTERVAL
        await anyio.sleep(LEAST_INTERVAL)

    def _give_up(self, connection: BrokerConnection, error: KafkaError) -> None:
        """Close the connection. A new one shows whether the login is refused for good."""
        logger.info(
            "the SASL session of %s cannot be renewed, a new connection replaces it: %s",
            connection.peer,
            reason(error),
        )
        connection.retire(not_renewed(reason(error)))


def not_renewed(why: str) -> KafkaConnectionError:
    """Return the error that a connection ends with when its session cannot be renewed."""
    return KafkaConnectionError(f"the SASL session could not be renewed: {why}")


class PipelinedLoginSender:
    """Sends the requests of a login on a connection in use, SaslHandshake before the first."""

    def __init__(
        self,
        connection: BrokerConnection,
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
        """Send a request and return the response. Raises what the connection ends with."""
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
        """Send SaslHandshake alone. Its answer comes after those to all that is in flight."""
        if not await self._is_begun(self._begin()):
            raise IllegalSaslStateError("too early")

    def _begin(self) -> Pending:
        self._has_begun = True
        hello = SaslHandshakeRequest(mechanism=self._login.name)
        return self._post(hello, self._connection.version_for(SaslHandshakeRequest, 1))

    async def _is_begun(self, handshake: Pending) -> bool:
        """False if the broker takes no login yet."""
        hello = SaslHandshakeRequest(mechanism=self._login.name)
        version = self._connection.version_for(SaslHandshakeRequest, 1)
        response = await self._response(handshake, hello, version)
        # The broker took up the login after all that was in flight before.
        self.sent_at = self._clock()
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
        """Note that the broker closes the connection next. Called before it can have closed it."""
        try:
            response = decode_response(SaslAuthenticateResponse, version, frame.data)[1]
        except MessageDecodeError:
            return  # _answer() raises it
        if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            connection = self._connection
            connection.closed_by_us = True
            exchange = self._login.exchange
            if exchange is not None:
                connection.close_reason = not_renewed(exchange.shown(response.error_message or ""))

    async def _response(self, pending: Pending, message: Request[R], version: int) -> R:
        await pending.done.wait()
        if pending.error is not None:
            raise pending.error
        kind = cast(type[R], type(message).response)
        return decoded(kind, version, pending.frame or Frame(b""))
