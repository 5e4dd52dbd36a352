"""Connections by TLS: bytes, waits, ends and the handshake."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from typing import Any

import anyio
import pytest

from kohort.config import ClientConfig, SecurityConfig, TlsConfig
from kohort.errors import (
    InvalidOptionError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TlsClientCertificateError,
    TlsError,
    TlsVerificationError,
    WrongListenerError,
)
from kohort.protocol import messages
from kohort.security import TlsContexts
from kohort.transport import (
    BrokerConnection,
    BufferPool,
    ByteConnection,
    Connect,
    TcpConnector,
)
from kohort.transport.cluster._tls_connector import AddressedServer, TlsConnector, server_name
from kohort.transport.connection._frames import FrameSource
from kohort.transport.network._tcp import HAS_LOW_WATER
from kohort.transport.network._tls import LOW_WATER, RECORD, TlsConnection, joined
from kohort.transport.network._tls_stream import TlsStream
from tests.support.certificates import Certificates
from tests.support.tls_server import TlsServer, broker, server_context

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["SSLSocket", "connect"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of connection.

    With "connect" TLS runs over the byte stream of a function, as in the option ``connect``.
    """
    if request.param == "connect":
        monkeypatch.setitem(vars(sys.modules[__name__]), "CONNECT", by_hook)
    return str(request.param)


CONNECT: Connect | None = None
"""Function for the option ``connect`` of the running test."""


async def by_hook(host: str, port: int) -> ByteConnection:
    """Connect as a function of the option ``connect`` does."""
    return await TcpConnector(ClientConfig())(host, port)


def connector(certificates: Certificates, **options: Any) -> TlsConnector:
    if "ssl_context" not in options:
        options.setdefault("ssl_cafile", certificates.ca)
    tls = TlsConfig(**options)
    contexts = TlsContexts(SecurityConfig(security_protocol="SSL", tls=tls))
    return TlsConnector(ClientConfig(), contexts, CONNECT)


async def connected(
    server: TlsServer, certificates: Certificates, host: str = "localhost", **options: Any
) -> TlsConnection | TlsStream:
    connection = await connector(certificates, **options)(host, server.port)
    assert isinstance(connection, TlsConnection if CONNECT is None else TlsStream)
    try:
        await connection.handshake(10)
    except BaseException:
        await connection.aclose()
        raise
    return connection


async def receive(connection: ByteConnection, size: int) -> bytes:
    buffer = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        received = await connection.recv_into(buffer[filled:])
        assert received
        filled += received
    return bytes(buffer)


def expect(connection: TlsConnection | TlsStream, size: int) -> None:
    """Announce the bytes that the caller needs, where the connection has that method."""
    if isinstance(connection, TlsConnection):
        connection.expect(size)


def echo(sock: Any) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


async def _received(source: FrameSource, size: int) -> None:
    with anyio.fail_after(60):
        while source.received() != size:  # noqa: ASYNC110 - the system does not report them
            await anyio.sleep(0.01)


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def swallow(sock: Any) -> None:
    sock.recv(1 << 16)


async def test_bytes_go_both_ways_in_order(certificates: Certificates) -> None:
    data = bytes(range(256)) * 4096
    with TlsServer(server_context(certificates), echo) as server:
        connection = await connected(server, certificates)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.send, [data[:10], b"", data[10:400_000], data[400_000:]])
            assert await receive(connection, len(data)) == data
        await connection.aclose()


async def test_small_reads_get_data_that_openssl_holds(certificates: Certificates) -> None:
    """The system has nothing more to receive, so a wait before the second read would not end."""
    data = bytes(range(256)) * 60
    stay = threading.Event()

    def handle(sock: Any) -> None:
        sock.sendall(data)
        stay.wait(120)

    with TlsServer(server_context(certificates), handle) as server:
        connection = await connected(server, certificates)
        with anyio.fail_after(60):
            first = await receive(connection, 10)
            expect(connection, 1)
            assert first + await receive(connection, len(data) - 10) == data
        await connection.aclose()
        stay.set()


async def test_records_that_came_together_are_all_received(certificates: Certificates) -> None:
    """OpenSSL may hold whole records that the system has delivered."""
    data = bytes(range(250)) * 80
    stay = threading.Event()

    def handle(sock: Any) -> None:
        for first in range(0, len(data), 1000):
            sock.sendall(data[first : first + 1000])
        stay.wait(120)

    with TlsServer(server_context(certificates), handle) as server:
        connection = await connected(server, certificates)
        with anyio.fail_after(60):
            received = b""
            while len(received) < len(data):
                received += await receive(connection, 100)
                expect(connection, 1)
        assert received == data
        await connection.aclose()
        stay.set()


async def test_one_call_receives_many_records(certificates: Certificates) -> None:
    data = bytes(256 << 10)
    sent, stay = threading.Event(), threading.Event()

    def handle(sock: Any) -> None:
        sock.sendall(data)
        sent.set()
        stay.wait(120)

    with TlsServer(server_context(certificates), handle) as server:
        connection = await connected(server, certificates)
        await anyio.to_thread.run_sync(sent.wait, 10)
        expect(connection, len(data))
        calls = 0
        buffer = memoryview(bytearray(len(data)))
        filled = 0
        while filled < len(data):
            filled += await connection.recv_into(buffer[filled:])
            calls += 1
        assert calls < len(data) // RECORD // 2
        await connection.aclose()
        stay.set()


@pytest.mark.skipif(not HAS_LOW_WATER, reason="only Linux wakes the reader of a full buffer")
async def test_reader_is_woken_for_many_records_at_once(
    certificates: Certificates, way: str
) -> None:
    if way == "connect":
        pytest.skip("a byte stream has no such mark")
    data = bytes(2 * LOW_WATER)
    with TlsServer(server_context(certificates), echo) as server:
        connection = await connected(server, certificates)
        assert isinstance(connection, TlsConnection)
        sock = connection._socket
        marks = []
        for size in (len(data), LOW_WATER, RECORD, 1):
            connection.expect(size)
            marks.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
        assert marks[0] == LOW_WATER and RECORD < marks[1] < LOW_WATER - RECORD
        assert marks[2:] == [1, 1]  # OpenSSL may hold all of one record but its last byte
        await connection.aclose()


@pytest.mark.skipif(not HAS_LOW_WATER, reason="only Linux has a mark")
async def test_bytes_below_the_mark_count_as_received(certificates: Certificates, way: str) -> None:
    """A deadline would otherwise end a slow response, whose bytes have not woken the reader."""
    if way == "connect":
        pytest.skip("a byte stream has no such mark")
    pieces = [threading.Event() for _ in range(3)]
    raw = 2 * (RECORD + 22)  # TLS 1.3 adds a header, a type and a tag

    def handle(sock: Any) -> None:
        sock.sendall((8 * LOW_WATER).to_bytes(4, "big") + bytes(RECORD - 4))
        for piece in pieces:
            piece.wait(60)
            sock.sendall(bytes(2 * RECORD))
        sock.recv(1)

    with TlsServer(server_context(certificates), handle) as server:
        connection = await connected(server, certificates)
        now = 0.0
        source = FrameSource(connection, BufferPool(), 64 * LOW_WATER, lambda: now)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.read)
            await _received(source, RECORD)
            for number, piece in enumerate(pieces, 1):
                now += 1
                source.received()
                assert source.last_at == now - 1
                piece.set()
                await _received(source, RECORD + number * raw)
                assert source.last_at == now
            assert source.received_bytes == RECORD  # the reader was not woken
            tasks.cancel_scope.cancel()
        await connection.aclose()


async def test_cut_connection_ends_as_closed_one_does(certificates: Certificates) -> None:
    def cut(sock: Any) -> None:
        sock.sendall(b"last words")
        plain = socket.socket(fileno=sock.detach())
        plain.close()

    with TlsServer(server_context(certificates), cut) as server:
        connection = await connected(server, certificates)
        assert await receive(connection, 10) == b"last words"
        assert await connection.recv_into(memoryview(bytearray(10))) == 0
        assert await connection.recv_into(memoryview(bytearray(10))) == 0
        await connection.aclose()


async def test_close_notify_ends_the_stream(certificates: Certificates) -> None:
    def close(sock: Any) -> None:
        sock.sendall(b"last words")
        sock.unwrap()

    with TlsServer(server_context(certificates), close) as server:
        connection = await connected(server, certificates)
        assert await receive(connection, 10) == b"last words"
        assert await connection.recv_into(memoryview(bytearray(10))) == 0
        await connection.aclose()


async def test_aclose_sends_close_notify_and_waits_for_none(certificates: Certificates) -> None:
    ends: list[bytes | Exception] = []

    def handle(sock: Any) -> None:
        try:
            ends.append(sock.recv(10))
        except Exception as error:
            ends.append(error)

    context = server_context(certificates)
    with TlsServer(context, handle) as server:
        connection = await connected(server, certificates)
        with anyio.fail_after(60):
            await connection.aclose()
            await connection.aclose()
    assert ends == [b""]


async def test_closing_wakes_the_reader(certificates: Certificates) -> None:
    stay = threading.Event()
    with TlsServer(server_context(certificates), lambda sock: wait_for(stay)) as server:
        connection = await connected(server, certificates)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    with pytest.raises(anyio.ClosedResourceError):
                        await connection.recv_into(memoryview(bytearray(10)))

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await connection.aclose()
        stay.set()


async def test_handshake_has_a_time_limit_of_its_own(certificates: Certificates) -> None:
    stay = threading.Event()
    with TlsServer(None, lambda sock: wait_for(stay)) as server:
        connection = await connector(certificates)("localhost", server.port)
        assert isinstance(connection, TlsConnection | TlsStream)
        with pytest.raises(KafkaTimeoutError, match=r"TLS handshake was not done within 0\.05 s"):
            await connection.handshake(0.05)
        await connection.aclose()
        stay.set()


async def test_final_dot_is_not_part_of_the_name(certificates: Certificates) -> None:
    assert server_name("broker.example.org.") == "broker.example.org"
    assert server_name("fe80::1%eth0") == "fe80::1"
    with TlsServer(server_context(certificates), echo) as server:
        connect = connector(certificates)
        sock = await TcpConnector(ClientConfig()).open_socket("localhost", server.port)
        connection = TlsConnection(sock, AddressedServer(connect, "localhost.", server.port))
        await connection.handshake(10)
        await connection.aclose()
    assert server.names == ["localhost"]


async def test_sni_is_sent_without_check_of_the_host(certificates: Certificates) -> None:
    with TlsServer(server_context(certificates, "wronghost"), echo) as server:
        connection = await connected(server, certificates, ssl_check_hostname=False)
        await connection.aclose()
    assert server.names == ["localhost"]


async def test_address_is_matched_against_ip_names(certificates: Certificates) -> None:
    with TlsServer(server_context(certificates), echo) as server:
        connection = await connected(server, certificates, "127.0.0.1")
        await connection.aclose()
    with TlsServer(server_context(certificates, "noip"), echo) as server:
        with pytest.raises(TlsVerificationError, match=r"is for localhost, not for 127\.0\.0\.1"):
            await connected(server, certificates, "127.0.0.1")


async def test_renegotiation_is_off(certificates: Certificates) -> None:
    context = connector(certificates).contexts.current()
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_small_buffers_are_sent_together() -> None:
    large = bytes(RECORD)
    assert joined([b"a", b"", b"b", large]) == b"ab"
    assert joined([large, b"a"]) is large
    assert joined([b"a" * 100, b"b" * (RECORD - 99)]) == b"a" * 100


# -- what the handshake ends with -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "connects"),
    [
        ("otherca", "signed by CN=otherroot, which is not in ssl_cafile", 2),
        ("selfsigned", r"\(CN=selfsigned\) is self-signed and is not in ssl_cafile", 2),
        ("wronghost", r"is for kafka\.example\.org, not for localhost", 2),
        ("expired", "expired on 2020-01-02 00:00 UTC", 2),
        ("notyet", "is not valid before 2040-01-01 00:00 UTC. Check the clock", 2),
    ],
)
async def test_refused_certificate_is_explained(
    certificates: Certificates, name: str, text: str, connects: int
) -> None:
    with TlsServer(server_context(certificates, name), echo) as server:
        connect = connector(certificates)
        for _ in range(2):
            connection = await connect("localhost", server.port)
            assert isinstance(connection, TlsConnection | TlsStream)
            with pytest.raises(TlsVerificationError, match=text) as raised:
                await connection.handshake(10)
            assert str(raised.value).startswith(f"{server.address}: ")
            await connection.aclose()
        assert server.connects == connects + 1  # the certificate is checked immediately


@pytest.mark.parametrize(
    ("crl", "name", "text"),
    [
        ("ca.crl", "revoked", "is revoked by the CRL in ssl_crlfile"),
        ("ca.crl", "otherca", "has no CRL of CN=otherroot"),
    ],
)
async def test_revocation_is_checked(
    certificates: Certificates, crl: str, name: str, text: str, tmp_path: Any
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(
        certificates.path("ca.pem").read_bytes() + certificates.path("otherroot.pem").read_bytes()
    )
    options = {"ssl_cafile": str(both), "ssl_crlfile": str(certificates.path(crl))}
    with TlsServer(server_context(certificates, name), echo) as server:
        with pytest.raises(TlsVerificationError, match=text):
            await connected(server, certificates, **options)
    with TlsServer(server_context(certificates), echo) as server:
        connection = await connected(server, certificates, **options)
        await connection.aclose()


async def test_plain_kafka_is_the_wrong_listener(certificates: Certificates) -> None:
    """A broker closes without a byte, so the connector tries again with plain bytes."""
    hellos = []

    def handle(sock: Any) -> None:
        if sock.recv(1, socket.MSG_PEEK) == b"\x16":
            hellos.append(sock.recv(1 << 16))
            return
        broker(lambda: ("localhost", server.port))(sock)

    with TlsServer(None, handle) as server:
        with pytest.raises(WrongListenerError, match="is a listener without TLS: set security_p"):
            await connected(server, certificates)
        assert server.connects == 2 and len(hellos) == 1


async def test_silent_server_may_only_be_starting(certificates: Certificates) -> None:
    with TlsServer(None, swallow) as server:
        with pytest.raises(KafkaConnectionError, match="is it a TLS listener"):
            await connected(server, certificates)


async def test_http_server_is_the_wrong_listener(certificates: Certificates) -> None:
    def handle(sock: Any) -> None:
        sock.recv(1 << 16)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with TlsServer(None, handle) as server:
        with pytest.raises(WrongListenerError, match="the response is not TLS"):
            await connected(server, certificates)


async def test_old_versions_of_tls_are_named(certificates: Certificates) -> None:
    context = server_context(certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with TlsServer(context, echo) as server:
        with pytest.raises(TlsError, match="no TLS version in common: check ssl_min_version"):
            await connected(server, certificates, ssl_min_version="TLSv1.3")


async def test_missing_cipher_names_both_causes(certificates: Certificates) -> None:
    context = server_context(certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with TlsServer(context, echo) as server:
        with pytest.raises(TlsError, match=r"check ssl_ciphers.*set ssl_certfile"):
            await connected(server, certificates, ssl_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("name", [None, "otherclient", "expired"])
async def test_refused_client_certificate_is_told_apart(
    certificates: Certificates, version: str, name: str | None
) -> None:
    context = server_context(certificates, client_auth=True)
    context.maximum_version = ssl.TLSVersion[version]
    options: dict[str, Any] = {}
    text = "requires a client certificate, and none is set. Set ssl_certfile"
    if name is not None:
        options = {
            "ssl_certfile": str(certificates.path(f"{name}.pem")),
            "ssl_keyfile": str(certificates.path(f"{name}.key")),
        }
        text = "refused the client certificate of ssl_certfile"
    if name == "expired":
        text = "it expired. Renew it"
    with TlsServer(context, broker(lambda: ("localhost", 1))) as server:
        with pytest.raises((TlsClientCertificateError, TlsError)) as raised:
            await BrokerConnection.open(
                connector(certificates, **options), "localhost", server.port
            )
        if name is not None or version == "TLSv1_3":
            assert type(raised.value) is TlsClientCertificateError
            assert text in str(raised.value)


async def test_client_certificate_is_presented(certificates: Certificates) -> None:
    subjects: list[Any] = []

    def handle(sock: Any) -> None:
        subjects.append(dict(pair[0] for pair in sock.getpeercert()["subject"]))

    with TlsServer(server_context(certificates, client_auth=True), handle) as server:
        connection = await connected(
            server, certificates, ssl_certfile=str(certificates.path("client.both"))
        )
        assert await connection.recv_into(memoryview(bytearray(1))) == 0
        await connection.aclose()
    assert subjects == [{"commonName": "client"}]


async def test_contexts_with_own_wrap_socket_are_honoured(certificates: Certificates) -> None:
    """The context does the handshake and then checks the certificate."""
    checked: list[str | None] = []

    class Context(ssl.SSLContext):
        def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
            wrapped = super().wrap_socket(*args, **options)
            checked.append(wrapped.version())
            return wrapped

    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca)
    if CONNECT is not None:  # a socket would be needed
        with pytest.raises(InvalidOptionError, match="has its own wrap_socket"):
            connector(certificates, ssl_context=context)
        return
    with TlsServer(server_context(certificates), echo) as server:
        connection = await connected(server, certificates, ssl_context=context)
        await connection.send([b"hello"])
        assert await receive(connection, 5) == b"hello"
        await connection.aclose()
    assert checked == ["TLSv1.3"]


async def test_contexts_with_own_wrap_bio_are_honoured(certificates: Certificates) -> None:
    """truststore's context has both methods."""
    names: list[Any] = []

    class Context(ssl.SSLContext):
        def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
            names.append(options["server_hostname"])
            return super().wrap_socket(*args, **options)

        def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
            names.append(options["server_hostname"])
            return super().wrap_bio(*args, **options)

    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca)
    with TlsServer(server_context(certificates), echo) as server:
        connection = await connected(server, certificates, ssl_context=context)
        await connection.aclose()
    assert names == ["localhost"]


# -- requests -------------------------------------------------------------------------------


async def test_requests_are_answered_over_tls(certificates: Certificates) -> None:
    with TlsServer(
        server_context(certificates), broker(lambda: ("localhost", server.port))
    ) as server:
        connection = await BrokerConnection.open(connector(certificates), "localhost", server.port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            for _ in range(20):
                answer = await connection.request(messages.MetadataRequest(topics=[]))
                assert [each.port for each in answer.brokers] == [server.port]
            await connection.aclose()
