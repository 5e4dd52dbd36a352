"""Opening a connection: connect, ApiVersions, and every fault of the peer."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort.errors import (
    BrokerResponseError,
    CorrelationIdError,
    FrameTooLargeError,
    InvalidRequestError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageDecodeError,
    UnsupportedVersionError,
    WrongListenerError,
)
from kohort.protocol import ApiKey, decode_request_header
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from kohort.transport import BrokerConnection, ByteConnection
from kohort.transport.connection._versions import BrokerVersions, Greetings
from tests.transport.peer import Network, Peer, Serve, api_versions

pytestmark = pytest.mark.anyio


async def open_to(serve: Serve, **options: Any) -> BrokerConnection:
    """Return the connection, already closed. Check that the client leaves none open."""
    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        network.listen("b", 9092, serve)
        failure: KafkaError | None = None
        try:
            connection = await BrokerConnection.open(network.connect, "b", 9092, **options)
            await connection.aclose()
        except KafkaError as error:
            failure = error
        assert network.open_ends == 0
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return connection


def refusal(correlation_id: int, ranges: list[tuple[int, int, int]]) -> bytes:
    """Return UNSUPPORTED_VERSION as Kafka sends it.

    The response has the form of version 0, whatever version the request had.
    """
    body = struct.pack(">ihi", correlation_id, 35, len(ranges))
    body += b"".join(struct.pack(">hhh", *each) for each in ranges)
    return struct.pack(">i", len(body)) + body


async def test_the_client_says_who_it_is() -> None:
    seen = []

    async def serve(peer: Peer) -> None:
        header, request = await peer.expect(ApiVersionsRequest)
        seen.append((header, request))
        await peer.reply(header, api_versions())

    await open_to(serve, client_id="c")
    ((header, request),) = seen
    assert isinstance(request, ApiVersionsRequest)
    assert (header.client_id, header.request_api_version) == ("c", 4)
    assert request.client_software_name == "kohort"
    assert request.client_software_version


@pytest.mark.parametrize(
    ("ranges", "versions"),
    [
        ([(18, 0, 3)], [4, 3]),
        ([(18, 0, 0)], [4, 0]),
        ([(3, 0, 9), (18, 0, 2)], [4, 2]),
        ([], [4, 0]),
    ],
)
async def test_a_broker_that_refuses_the_version_is_asked_in_its_own(
    ranges: list[tuple[int, int, int]], versions: list[int]
) -> None:
    asked = []

    async def serve(peer: Peer) -> None:
        while (frame := await peer.receive_frame()) is not None:
            header = decode_request_header(frame)
            asked.append(header.request_api_version)
            if len(asked) == 1:
                await peer.send(refusal(header.correlation_id, ranges))
            else:
                await peer.reply(header, api_versions({int(ApiKey.HEARTBEAT): (0, 2)}))

    connection = await open_to(serve)
    assert asked == versions
    assert connection.version_for(HeartbeatRequest) == 2


async def test_a_broker_that_refuses_every_version_is_given_up() -> None:
    asked = []

    async def serve(peer: Peer) -> None:
        while (frame := await peer.receive_frame()) is not None:
            header = decode_request_header(frame)
            asked.append(header.request_api_version)
            await peer.send(refusal(header.correlation_id, []))

    with pytest.raises(UnsupportedVersionError, match="b:9092"):
        await open_to(serve)
    assert asked == [4, 0]


async def test_handshake_fails_when_broker_offers_the_refused_version() -> None:
    async def serve(peer: Peer) -> None:
        while (frame := await peer.receive_frame()) is not None:
            header = decode_request_header(frame)
            await peer.send(refusal(header.correlation_id, [(18, 0, 4)]))

    with anyio.fail_after(60), pytest.raises(UnsupportedVersionError):
        await open_to(serve)


def closing_above(top: int, asked: list[int], *, reset: bool) -> Serve:
    """Return a broker that closes a connection on a version above ``top``, without a response."""

    async def serve(peer: Peer) -> None:
        frame = await peer.receive_frame()
        assert frame is not None
        header = decode_request_header(frame)
        asked.append(header.request_api_version)
        if header.request_api_version <= top:
            await peer.reply(header, api_versions())
        elif reset:
            peer.reset()

    return serve


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(("top", "versions"), [(3, [4, 3]), (2, [4, 3, 0]), (0, [4, 3, 0])])
async def test_broker_that_closes_on_a_version_gets_a_lower_one(
    top: int, versions: list[int], reset: bool
) -> None:
    asked: list[int] = []
    greetings = Greetings()
    await open_to(closing_above(top, asked, reset=reset), greetings=greetings)
    assert asked == versions
    await open_to(closing_above(top, asked, reset=reset), greetings=greetings)
    assert asked == [*versions, versions[-1]]  # remembered for this address


async def test_lower_version_is_forgotten_after_ten_minutes() -> None:
    greetings = Greetings()
    lower = greetings.lower("b", 1, greetings.of("b", 1, 1, 0), 0)
    assert lower is not None and lower.version == 3
    greetings.succeeded("b", 1, lower, 0)
    greetings.succeeded("b", 1, greetings.of("b", 1, 1, 500), 500)  # it prolongs nothing
    assert [greetings.of("b", 1, 1, now).version for now in (0, 599, 601)] == [3, 3, 4]
    assert greetings.of("other", 1, 1, 0).version == 4


async def test_listener_that_always_closes_gets_no_ladder_again_soon() -> None:
    asked: list[int] = []
    greetings = Greetings()
    for _ in range(3):
        with pytest.raises(KafkaConnectionError, match="plaintext listener") as caught:
            await open_to(closing_above(-1, asked, reset=False), greetings=greetings)
        assert type(caught.value) is KafkaConnectionError
    assert asked == [4, 3, 0, 4, 4]


async def test_another_error_of_the_broker_is_raised_as_that() -> None:
    async def serve(peer: Peer) -> None:
        await peer.shake_hands(ApiVersionsResponse(error_code=42))

    with pytest.raises(InvalidRequestError, match="b:9092 responded to ApiVersions") as caught:
        await open_to(serve)
    assert isinstance(caught.value, BrokerResponseError)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", WrongListenerError, "TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x46", WrongListenerError, "TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", FrameTooLargeError, "HTTP"),
        (b"E\0\0\0\x5cSFATAL\0VFATAL\0C0A000\0Munsupported", FrameTooLargeError, "PostgreSQL"),
        (b"-ERR unknown command\r\n", FrameTooLargeError, "Redis"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", FrameTooLargeError, "SSH"),
        (b"\x7f\xff\xff\xff", FrameTooLargeError, "2147483647"),
        (b"\x00\x20\x00\x00", FrameTooLargeError, "2097152"),
        (b"\x00\x00\x00\x02ab", MessageDecodeError, "too short"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00", MessageDecodeError, "ApiVersions"),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x63abcdef", CorrelationIdError, "id 99"),
        (b"\x00\x00", KafkaConnectionError, "inside a frame"),
        (b"", KafkaConnectionError, "plaintext listener"),
    ],
)
async def test_what_is_not_kafka_is_told_with_the_address(
    answer: bytes, kind: type[KafkaError], text: str
) -> None:
    async def serve(peer: Peer) -> None:
        await peer.expect(ApiVersionsRequest)
        if answer:
            await peer.send(answer)

    with pytest.raises(kind, match="b:9092") as caught:
        await open_to(serve, max_frame=2**31 - 1)
    assert type(caught.value) is kind
    assert text in str(caught.value)


async def test_a_black_hole_is_given_up_in_time() -> None:
    async def serve(peer: Peer) -> None:
        await anyio.sleep_forever()

    with pytest.raises(KafkaTimeoutError, match="b:9092 accepted, but did not respond"):
        await open_to(serve, timeout=0.05)


async def test_a_connect_that_hangs_is_given_up_in_time() -> None:
    async def connect(host: str, port: int) -> ByteConnection:
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(KafkaTimeoutError, match="no connection to b:9092 within"):
        await BrokerConnection.open(connect, "b", 9092, timeout=0.05)


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), OSError("dns"), ValueError("bug")])
async def test_whatever_a_connect_hook_raises_arrives_typed(error: Exception) -> None:
    async def connect(host: str, port: int) -> ByteConnection:
        raise error

    with pytest.raises(KafkaConnectionError, match=f"cannot connect to b:9092: {error}") as caught:
        await BrokerConnection.open(connect, "b", 9092)
    assert caught.value.__cause__ is error
    assert caught.value.retriable


async def test_a_cancelled_open_leaves_no_connection() -> None:
    shaking = anyio.Event()

    async def serve(peer: Peer) -> None:
        await peer.receive()
        shaking.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        network.listen("b", 9092, serve)
        async with anyio.create_task_group() as openers:
            openers.start_soon(BrokerConnection.open, network.connect, "b", 9092)
            await shaking.wait()
            openers.cancel_scope.cancel()
        assert network.open_ends == 0
        tasks.cancel_scope.cancel()


async def test_a_host_cannot_forge_a_line_of_the_log() -> None:
    async def connect(host: str, port: int) -> ByteConnection:
        raise ConnectionRefusedError("no\nINFO all is well\x1b[31m")

    with pytest.raises(KafkaConnectionError) as caught:
        await BrokerConnection.open(connect, "evil\r\nhost\x1b[2J", 9092)
    assert str(caught.value).isprintable()


class TestKnownVersions:
    """Another connection to the broker is open, so requests wait for no versions."""

    KNOWN = BrokerVersions("b:9092", api_versions().api_keys)

    @staticmethod
    @asynccontextmanager
    async def opened(serve: Serve) -> AsyncIterator[BrokerConnection]:
        """Run a connection, and check that the client closes it."""
        async with anyio.create_task_group() as tasks:
            network = Network(tasks)
            network.listen("b", 9092, serve)
            known = TestKnownVersions.KNOWN
            connection = await BrokerConnection.open(
                network.connect, "b", 9092, known_versions=lambda _: known
            )
            tasks.start_soon(connection.run)
            yield connection
            await connection.aclose()
            assert network.open_ends == 0
            tasks.cancel_scope.cancel()

    async def test_request_is_sent_before_the_versions_come(self) -> None:
        async def serve(peer: Peer) -> None:
            greeting, _ = await peer.expect(ApiVersionsRequest)
            header, _ = await peer.expect(HeartbeatRequest)
            await peer.reply(greeting, api_versions())
            await peer.reply(header, HeartbeatResponse(throttle_time_ms=7))
            await peer.receive()

        async with self.opened(serve) as connection:
            response = await connection.request(HeartbeatRequest(), timeout=60)
            assert response.throttle_time_ms == 7
            assert connection.response_count == 1
            assert connection.versions is self.KNOWN

    async def test_versions_of_the_connection_replace_known_ones(self) -> None:
        async def serve(peer: Peer) -> None:
            await peer.shake_hands(api_versions({int(ApiKey.HEARTBEAT): (0, 2)}))
            while (exchange := await peer.receive()) is not None:
                await peer.reply(exchange[0], HeartbeatResponse())

        async with self.opened(serve) as connection:
            await connection.request(HeartbeatRequest(), timeout=60)
            assert connection.version_for(HeartbeatRequest) == 2

    @pytest.mark.parametrize(
        ("code", "text"), [(129, "is not broker -1"), (42, "responded to ApiVersions with")]
    )
    async def test_refusal_ends_the_connection_and_its_requests(self, code: int, text: str) -> None:
        async def serve(peer: Peer) -> None:
            await peer.shake_hands(ApiVersionsResponse(error_code=code))
            await peer.receive()

        async with self.opened(serve) as connection:
            with pytest.raises(KafkaConnectionError, match=text):
                await connection.request(HeartbeatRequest(), timeout=60)
            assert isinstance(connection.failure, BrokerResponseError)
            assert not connection.response_count
