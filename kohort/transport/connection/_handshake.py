"""First steps of a connection, which are the connect hook, TLS, and ApiVersions (KIP-511)."""

from __future__ import annotations

import functools
import random
import re
import struct
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

import anyio

from kohort.config import VERSION
from kohort.errors import (
    BrokerResponseError,
    ErrorCode,
    FrameTooLargeError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    SecurityError,
    WrongListenerError,
    broker_error,
    error_name,
)
from kohort.logs import get_logger
from kohort.protocol import Buffer, decode_response, encode_request, messages
from kohort.transport._backoff import SYSTEM_RNG
from kohort.transport._printable import LOOKS_LIKE_TLS, address, in_seconds, reason
from kohort.transport.connection._frames import (
    Frame,
    FrameSource,
    OversizedFrameError,
    check_correlation_id,
)
from kohort.transport.connection._versions import BrokerVersions, ClosedSilentlyError, Greeting
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection, Connect
from kohort.types import escaped

if TYPE_CHECKING:
    from kohort.security import Mechanism
    from kohort.transport.connection._login_renewal import Logins

logger = get_logger("kohort.transport")

USUAL_GREETING = Greeting()
MAX_BYTES = 1 << 19
"""Largest response to ApiVersions. A broker sends a few KB."""
_ERROR_CODE = struct.Struct(">4xh")  # after the correlation id, in every version


async def secure(link: ByteConnection, timeout: float) -> None:
    """Do the handshake of a connection that has one, such as TLS, within ``timeout`` seconds.

    Raises SecurityError, KafkaTimeoutError and NETWORK_ERRORS, as its ``handshake()`` does.
    """
    handshake: Callable[[float], Awaitable[None]] | None = getattr(link, "handshake", None)
    if handshake is not None:
        await handshake(timeout)


async def shake_hands(
    link: ByteConnection,
    source: FrameSource,
    peer: str,
    client_id: str,
    greeting: Greeting = USUAL_GREETING,
) -> BrokerVersions:
    """Request the versions of a broker, in a lower version of the request if it requires one.

    Correlation ids 0 and below are used. Raises WrongListenerError, ProtocolError,
    BrokerResponseError, KafkaConnectionError and errors of the connection. Raises
    ClosedSilentlyError if the broker closed before it sent a byte.
    """
    tried = greeting.version
    for correlation_id in count(0, -1):
        _expect(source, correlation_id)
        request = versions_request(greeting) if tried >= 3 else messages.ApiVersionsRequest()
        try:
            await link.send(encode_request(request, tried, correlation_id, client_id))
            frame = await _read_response(source, peer)
        except (KafkaConnectionError, *NETWORK_ERRORS) as error:
            if source.is_unused:
                raise ClosedSilentlyError(reason(error)) from error
            raise
        if frame is None:
            kind = "TLS" if hasattr(link, "handshake") else "plaintext"
            error_type = ClosedSilentlyError if source.is_unused else KafkaConnectionError
            raise error_type(
                f"closed during the handshake: is it a {kind} listener of a Kafka broker?"
            )
        check_correlation_id(frame.data, correlation_id)
        response = _decode(tried, frame.data)
        if not response.error_code:
            break
        again = _fallback_version(tried, response)
        if response.error_code != ErrorCode.UNSUPPORTED_VERSION or again is None:
            raise refusal(peer, greeting, response.error_code)
        tried = again
    return BrokerVersions.of(peer, response)


def refusal(peer: str, greeting: Greeting, error_code: int) -> BrokerResponseError:
    """Return the error for a response to ApiVersions with an error code."""
    if error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
        cluster_id = escaped(str(greeting.cluster_id))
        text = f"{peer} is not broker {greeting.node_id} of cluster {cluster_id}"
    else:
        text = f"{peer} responded to ApiVersions with {error_name(error_code)}"
    return broker_error(error_code, text)


def versions_request(greeting: Greeting = USUAL_GREETING) -> messages.ApiVersionsRequest:
    """Return the request for the versions of a broker, which names this client and the broker."""
    return messages.ApiVersionsRequest(
        client_software_name="kohort",
        client_software_version=_client_version(),
        cluster_id=greeting.cluster_id,
        node_id=greeting.node_id,
    )


async def _read_response(source: FrameSource, peer: str) -> Frame | None:
    try:
        return await source.read()
    except FrameTooLargeError as error:
        if LOOKS_LIKE_TLS not in str(error):
            raise
        raise WrongListenerError(
            f"{peer} is a TLS listener: set security_protocol to SSL or SASL_SSL, or use the port "
            "of a listener without TLS"
        ) from error


def _expect(source: FrameSource, correlation_id: int) -> None:
    source.awaited_id = lambda: correlation_id


def _decode(tried: int, frame: Buffer) -> messages.ApiVersionsResponse:
    """Decode a response. With UNSUPPORTED_VERSION it always has the body of version 0."""
    refused = (
        len(frame) >= _ERROR_CODE.size
        and _ERROR_CODE.unpack_from(frame)[0] == ErrorCode.UNSUPPORTED_VERSION
    )
    return decode_response(messages.ApiVersionsResponse, 0 if refused else tried, frame)[1]


def _fallback_version(tried: int, response: messages.ApiVersionsResponse) -> int | None:
    """Return the request version after a refusal, or None to give up.

    It is the version that the broker named, or 0.
    """
    if tried == 0:
        return None
    for each in response.api_keys:
        if each.api_key == messages.ApiVersionsRequest.api_key:
            again = min(each.max_version, tried)
            return again if max(each.min_version, 0) <= again < tried else None
    return 0


@functools.cache
def _client_version() -> str:
    """Return the version of this package in the characters that KIP-511 allows."""
    return re.sub(r"[^0-9A-Za-z.-]+", "-", VERSION).strip("-.") or "0"


async def connected(connect: Connect, host: str, port: int, timeout: float) -> ByteConnection:
    """Return a new connection.

    Raises KafkaConnectionError, KafkaTimeoutError, and a KafkaError of the hook as it is.
    """
    peer = address(host, port)
    with anyio.move_on_after(timeout):
        try:
            return checked(await connect(host, port))
        except KafkaError:
            raise
        except Exception as error:
            raise KafkaConnectionError(f"cannot connect to {peer}: {reason(error)}") from error
    through = getattr(connect, "through", "")
    raise KafkaTimeoutError(f"no connection to {peer}{through} within {in_seconds(timeout)}")


def explained_error(peer: str, error: Exception) -> KafkaError:
    """Return a failure as a typed error that names the peer."""
    text = reason(error)
    if not text.startswith(peer):
        text = f"{peer}: {text}"
    if isinstance(error, OversizedFrameError):
        return error.with_text(text)
    if isinstance(error, SecurityError):
        return error
    if isinstance(error, KafkaTimeoutError | ProtocolError):
        return type(error)(text)
    if isinstance(error, KafkaError) and not isinstance(error, KafkaConnectionError):
        return error
    if not isinstance(error, NETWORK_ERRORS):
        logger.error("the connection to %s failed", peer, exc_info=error)
    return KafkaConnectionError(text)


def checked(link: ByteConnection) -> ByteConnection:
    """Raise TypeError if the result of the user's connect hook is not a connection."""
    for method in ("recv_into", "send", "aclose"):
        if not hasattr(link, method):
            raise TypeError(
                f"the connect hook returned {link!r}, which has no {method}(). Wrap a stream of "
                "anyio in kohort.transport.StreamConnection"
            )
    return link


def first_login(
    mechanism: Mechanism | None,
    host: str,
    peer: str,
    timeout: float,
    rng: random.Random | None,
) -> Logins | None:
    """Return the logins of a new connection; None without a mechanism."""
    if mechanism is None:
        return None
    from kohort.transport.connection._login_renewal import (
        Logins,  # only listeners with SASL need it
    )

    return Logins(mechanism, host, peer, timeout, rng or SYSTEM_RNG)
