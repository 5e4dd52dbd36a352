"""A SASL login: SaslHandshake, then SaslAuthenticate until both sides accept.

The first login of a connection is alone on it. Later logins are pipelined with other requests
(:mod:`kohort.transport.connection._login_renewal`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import anyio

from kohort.errors import (
    CredentialsUnavailableError,
    ErrorCode,
    KafkaConnectionError,
    KafkaTimeoutError,
    OAuthTokenError,
    SaslAuthenticationFailedError,
    SaslServerError,
    UnsupportedSaslMechanismError,
    WrongListenerError,
    broker_error,
    error_name,
)
from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kohort.transport._printable import in_seconds, reason
from kohort.transport.connection._frames import FrameSource, check_correlation_id
from kohort.transport.connection._versions import BrokerVersions
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection
from kohort.types import escaped

if TYPE_CHECKING:
    from kohort.security import LoginExchange, Mechanism

R = TypeVar("R", bound=Response)

MAX_STEPS = 16
"""Most SaslAuthenticate requests of one login. GSSAPI needs about 4."""
MAX_LISTED = 20
MAX_MESSAGE = 500


class LoginSender(Protocol):
    """A callable that sends a request of a login and returns its response."""

    @property
    def sent_at(self) -> float:
        """Time, by the event loop's clock, from which a session that now begins lasts.

        The trip of the login to the broker is not part of it. So a request that is sent before the
        session ends arrives before its end, too.
        """
        ...

    async def __call__(self, message: Request[R], version: int, /) -> R: ...


class Login:
    """One login: the exchange of a mechanism with a broker. ``step`` names its current step."""

    def __init__(self, mechanism: Mechanism, host: str, peer: str) -> None:
        self.mechanism = mechanism
        self.step = ""
        self.exchange: LoginExchange | None = None
        self._host = host
        self._peer = peer

    async def prepare(self) -> None:
        """Get the credentials or the token. Raises SecurityError."""
        if self.exchange is None:
            self.step = "getting the credentials"
            self.exchange = await self.mechanism.login(self._host)

    async def renew(self) -> bool:
        """Get credentials that differ from the refused ones. Return False if there are none."""
        refused, self.exchange = self.exchange, None
        if refused is not None:
            self.exchange = await self.mechanism.login_again(refused, self._host)
        return self.exchange is not None

    async def shake_hands(self, sender: LoginSender, versions: BrokerVersions) -> None:
        """Send SaslHandshake, which chooses the mechanism."""
        self.step = "SaslHandshake"
        version = versions.choose(SaslHandshakeRequest, min_version=1)
        self.check_handshake(await sender(SaslHandshakeRequest(mechanism=self.name), version))

    def check_handshake(self, response: SaslHandshakeResponse) -> None:
        """Raise the error of a refused handshake."""
        code = response.error_code
        if not code:
            return
        offered = response.mechanisms[:MAX_LISTED]
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            listed = ", ".join(sorted(escaped(str(each))[:MAX_MESSAGE] for each in offered))
            raise UnsupportedSaslMechanismError(
                f"{self._peer} does not offer the SASL mechanism {self.name}. "
                f"Set sasl_mechanism to one that it offers: {listed or 'none'}"
            )
        if code == ErrorCode.ILLEGAL_SASL_STATE and not offered:
            raise WrongListenerError(
                f"{self._peer} is a listener without SASL. Set security_protocol to PLAINTEXT or "
                "SSL, or use the port of a listener with SASL"
            )
        raise broker_error(code, f"{self._peer} responded to SaslHandshake with {error_name(code)}")

    async def authenticate(self, sender: LoginSender, versions: BrokerVersions) -> SaslSession:
        """Log in after the handshake. Returns the session that begins."""
        version = versions.choose(SaslAuthenticateRequest)
        exchange = self.exchange
        assert exchange is not None
        # A list, because frames that raise show their local variables.
        steps = [SaslAuthenticateRequest(auth_bytes=exchange.first())]
        for number in range(1, MAX_STEPS + 1):
            self.step = f"SaslAuthenticate, step {number}"
            response = await sender(steps.pop(), version)
            self._check(response, exchange)
            answer = await exchange.next(bytes(response.auth_bytes))
            if answer is None:
                lifetime = response.session_lifetime_ms if version >= 1 else None
                if lifetime is not None and lifetime < 0:
                    lifetime = 0
                return SaslSession(
                    exchange.principal, sender.sent_at, exchange.session_seconds(lifetime)
                )
            steps.append(SaslAuthenticateRequest(auth_bytes=answer))
            del answer
        raise SaslServerError(f"{self._peer} does not end the {self.name} login")

    def _check(self, response: SaslAuthenticateResponse, exchange: LoginExchange) -> None:
        code = response.error_code
        if not code:
            return
        said = response.error_message or ""  # uncut: masking does not find a part of a secret
        if code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            user = f" of {exchange.principal!r}" if exchange.principal else ""
            raise SaslAuthenticationFailedError(
                f"{self._peer} refused the {self.name} login{user}: {exchange.refusal(said)}"
            )
        text = f"{self._peer} responded to SaslAuthenticate with {error_name(code)}"
        raise broker_error(code, f"{text}: {exchange.shown(said)}" if said else text)

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name


class SaslSession:
    """A successful login. ``began_at`` and ``ends_at`` are times of the event loop's clock."""

    __slots__ = ("began_at", "ends_at", "principal")

    def __init__(self, principal: str, began_at: float, seconds: float | None) -> None:
        self.principal: str = principal
        self.began_at: float = began_at
        self.ends_at: float | None = None if seconds is None else began_at + seconds


class DirectLoginSender:
    """Sender of a login on a connection without other requests."""

    def __init__(
        self,
        link: ByteConnection,
        source: FrameSource,
        client_id: str,
        take_id: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self.sent_at: float = 0.0
        self._clock = clock
        self._link = link
        self._source = source
        self._client_id = client_id
        self._take_id = take_id

    async def __call__(self, message: Request[R], version: int, /) -> R:
        """Send a request and return the response.

        Raises KafkaConnectionError if the broker closes the connection.
        """
        correlation_id = self._take_id()
        self._source.awaited_id = lambda: correlation_id
        name = type(message).__name__.removesuffix("Request")
        self.sent_at = self._clock()
        try:
            await self._link.send(encode_request(message, version, correlation_id, self._client_id))
            frame = await self._source.read()
        except NETWORK_ERRORS as error:
            # The frames below have the credentials in their local variables.
            raise KafkaConnectionError(f"{name}: {reason(error)}") from error.with_traceback(None)
        if frame is None:
            raise KafkaConnectionError(f"closed by the broker before a response to {name}")
        check_correlation_id(frame.data, correlation_id)
        kind = cast(type[R], type(message).response)
        return decode_response(kind, version, frame.data)[1]


async def log_in(
    login: Login, sender: DirectLoginSender, versions: BrokerVersions, peer: str, timeout: float
) -> SaslSession:
    """Log in on a new connection. Each step of the broker may take ``timeout`` seconds.

    Raises SecurityError, KafkaTimeoutError that names the step, KafkaConnectionError.
    """
    session: SaslSession | None = None
    try:
        with anyio.move_on_after(timeout) as scope:
            await login.shake_hands(sender, versions)
        if not scope.cancelled_caught:
            # The token comes after the handshake, which fails first on a listener of another kind.
            await login.prepare()
            with anyio.move_on_after(timeout):
                session = await login.authenticate(sender, versions)
    except (SaslServerError, OAuthTokenError, CredentialsUnavailableError) as error:
        if str(error).startswith(peer):
            raise
        # The frames below have parts of the exchange in their local variables.
        named = type(error)(f"{peer}: {error.with_traceback(None)}")
        raise named from error.__cause__
    if session is None:
        raise KafkaTimeoutError(
            f"{peer} did not complete the {login.name} login within {in_seconds(timeout)}: "
            f"no response to {login.step}"
        )
    return session
