"""The default connection, over real loopback sockets."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator

import anyio
import pytest

from kohort.config import ClientConfig
from kohort.errors import KafkaConnectionError, KafkaTimeoutError
from kohort.transport import (
    NETWORK_ERRORS,
    BrokerConnection,
    BufferPool,
    TcpConnection,
    TcpConnector,
)
from kohort.transport.connection._frames import FrameSource
from tests.support.net import free_ports

pytestmark = pytest.mark.anyio
CONNECT = TcpConnector(ClientConfig())


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket on a loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


async def connected(server: socket.socket) -> tuple[TcpConnection, socket.socket]:
    """Return both ends of a connection. The second is the server's and blocks."""
    connection = await CONNECT("127.0.0.1", port_of(server))
    assert isinstance(connection, TcpConnection)
    peer, _ = server.accept()
    peer.settimeout(10)
    return connection, peer


async def receive(connection: TcpConnection, size: int) -> bytes:
    buffer = bytearray(size)
    filled = 0
    while filled < size:
        received = await connection.recv_into(memoryview(buffer)[filled:])
        assert received
        filled += received
    return bytes(buffer)


async def test_bytes_go_both_ways(listener: socket.socket) -> None:
    connection, peer = await connected(listener)
    with peer:
        await connection.send([b"hello ", bytearray(b"from "), memoryview(b"us"), b""])
        assert peer.recv(100) == b"hello from us"
        peer.sendall(b"and back")
        assert await receive(connection, 8) == b"and back"
        await connection.aclose()
        assert peer.recv(1) == b""


async def test_a_send_larger_than_the_buffers_arrives_whole(listener: socket.socket) -> None:
    connection, peer = await connected(listener)
    parts = [bytes([index % 251]) * size for index, size in enumerate([1, 70_000, 3, 900_000] * 8)]
    parts += [b"x"] * 3000
    whole = b"".join(parts)
    received = bytearray()

    def drain() -> None:
        while len(received) < len(whole):
            received.extend(peer.recv(1 << 16))

    with peer, anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, drain)
            await connection.send(parts)
        await connection.aclose()
    assert received == whole


async def test_the_end_of_the_peer_is_zero_bytes(listener: socket.socket) -> None:
    connection, peer = await connected(listener)
    peer.close()
    assert await connection.recv_into(memoryview(bytearray(10))) == 0
    await connection.aclose()


async def test_a_reset_is_a_network_error(listener: socket.socket) -> None:
    connection, peer = await connected(listener)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()
    with pytest.raises(NETWORK_ERRORS):
        await connection.recv_into(memoryview(bytearray(10)))
    await connection.aclose()


async def test_closing_wakes_who_waits_to_receive(listener: socket.socket) -> None:
    connection, peer = await connected(listener)
    raised = []

    async def wait() -> None:
        try:
            await connection.recv_into(memoryview(bytearray(10)))
        except NETWORK_ERRORS as error:
            raised.append(error)

    with peer, anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await connection.aclose()
            await connection.aclose()
    assert len(raised) == 1
    for use in (connection.recv_into(memoryview(bytearray(1))), connection.send([b"x"])):
        with pytest.raises(anyio.ClosedResourceError):
            await use


async def test_options_of_the_socket_are_set(listener: socket.socket) -> None:
    config = ClientConfig(
        receive_buffer_bytes=65536,
        socket_options=((socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"),),
    )
    connection = await TcpConnector(config)("127.0.0.1", port_of(listener))
    assert isinstance(connection, TcpConnection)
    sock = connection._socket
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (65536, 2 * 65536)
    assert not sock.getblocking()
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 20_000),
    ):
        if hasattr(socket, name):
            assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
    await connection.aclose()


async def test_users_socket_options_replace_the_keepalive(listener: socket.socket) -> None:
    if not hasattr(socket, "TCP_KEEPIDLE"):
        pytest.skip("the system has no TCP_KEEPIDLE")
    config = ClientConfig(socket_options=((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),))
    connection = await TcpConnector(config)("127.0.0.1", port_of(listener))
    assert isinstance(connection, TcpConnection)
    assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
    await connection.aclose()


async def test_every_address_of_a_name_is_tried(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = port_of(listener)
    asked = resolve_to(monkeypatch, ["127.0.0.2", "::1", "127.0.0.1"], port)
    connection = await CONNECT("brokers.test", port)
    await connection.aclose()
    assert asked == ["brokers.test"]


async def test_all_addresses_that_failed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    resolve_to(monkeypatch, ["127.0.0.2", "127.0.0.3"], port)
    with pytest.raises(ConnectionError) as caught:
        await CONNECT("brokers.test", port)
    for each in ("127.0.0.2", "127.0.0.3"):
        assert f"{each}:{port}: Connection refused" in str(caught.value)


async def test_silent_address_leaves_time_for_the_next_address(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = port_of(listener)
    resolve_to(monkeypatch, ["127.0.0.2", "127.0.0.1"], port)
    real = TcpConnector._connect

    async def connect(self: TcpConnector, family: int, sockaddr: tuple[str, int]) -> socket.socket:
        if sockaddr[0] == "127.0.0.2":
            await anyio.sleep_forever()
        return await real(self, family, sockaddr)

    monkeypatch.setattr(TcpConnector, "_connect", connect)
    slow = TcpConnector(ClientConfig(socket_connection_setup_timeout_ms=600_000))
    with anyio.fail_after(300):  # one after the other, the silent one had 300 s of 600
        with anyio.move_on_after(600):
            connection = await slow("brokers.test", port)
    await connection.aclose()


async def test_addresses_that_accept_together_leave_one_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve_to(monkeypatch, ["127.0.0.1", "127.0.0.2", "127.0.0.3"], 1)
    started, accepts = [], anyio.Event()
    sockets: list[socket.socket] = []

    async def connect(self: TcpConnector, family: int, sockaddr: tuple[str, int]) -> socket.socket:
        started.append(sockaddr[0])
        if len(started) == 3:
            accepts.set()
        with anyio.CancelScope(shield=True):
            await accepts.wait()
        sockets.append(socket.socket())
        return sockets[-1]

    monkeypatch.setattr(TcpConnector, "_connect", connect)
    connection = await CONNECT("brokers.test", 1)
    assert started == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert sum(each.fileno() >= 0 for each in sockets) == 1
    await connection.aclose()
    assert all(each.fileno() < 0 for each in sockets)


def resolve_to(monkeypatch: pytest.MonkeyPatch, addresses: list[str], port: int) -> list[str]:
    """Let every name have these addresses. Return the list of resolved names."""
    asked: list[str] = []

    async def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [
            (
                socket.AF_INET6 if ":" in each else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (each, port, 0, 0) if ":" in each else (each, port),
            )
            for each in addresses
        ]

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("localhost", 0), ("localhost", 70000), ("localhost", -1), ("a" * 300, 9092)],
)
async def test_what_is_no_address_is_a_network_error(host: str, port: int) -> None:
    with pytest.raises(OSError):  # noqa: PT011
        await CONNECT(host, port)


async def test_a_refused_port_and_a_name_nobody_knows_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = free_ports(1)
    with pytest.raises(KafkaConnectionError, match=f"127.0.0.1:{port}: Connection refused"):
        await BrokerConnection.open(CONNECT, "127.0.0.1", port)

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(anyio, "getaddrinfo", unknown)
    with pytest.raises(KafkaConnectionError, match=r"cannot resolve nowhere\.test"):
        await BrokerConnection.open(CONNECT, "nowhere.test", port)


async def test_a_black_hole_is_given_up(listener: socket.socket) -> None:
    with pytest.raises(KafkaTimeoutError, match="did not respond"):
        await BrokerConnection.open(CONNECT, "127.0.0.1", port_of(listener), timeout=0.1)


async def test_a_port_does_not_connect_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    real = socket.socket.connect_ex

    def bind_first(self: socket.socket, address: tuple[str, int]) -> int:
        self.bind(address)
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect_ex", bind_first)
    with pytest.raises(ConnectionError, match="refused"):
        await CONNECT("127.0.0.1", port)


async def test_no_socket_is_left_when_connecting_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []

    def hang(self: socket.socket, address: tuple[str, int]) -> int:
        made.append(self)
        return errno.EINPROGRESS

    async def forever(_: object) -> None:
        scope.cancel()
        await anyio.sleep_forever()

    monkeypatch.setattr(socket.socket, "connect_ex", hang)
    monkeypatch.setattr(anyio, "wait_writable", forever)
    with anyio.CancelScope() as scope:
        await CONNECT("127.0.0.1", 9092)
    assert [sock.fileno() for sock in made] == [-1]


async def test_receive_wakes_for_whole_expected_data_or_the_end(
    listener: socket.socket,
) -> None:
    connection, peer = await connected(listener)
    got: list[int] = []

    async def receive() -> None:
        while size := await connection.recv_into(memoryview(bytearray(100_000))):
            got.append(size)
        got.append(0)

    async with anyio.create_task_group() as tasks:
        connection.expect(2000)
        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        peer.sendall(b"x" * 1200)
        peer.sendall(b"x" * 800)
        peer.close()
    assert sum(got) == 2000 and got[-1] == 0
    await connection.aclose()
    connection.expect(1)


async def test_a_byte_wakes_it_again_behind_a_large_frame(listener: socket.socket) -> None:
    connection, peer = await connected(listener)
    size = 3_000_000
    with peer:
        thread = threading.Thread(target=lambda: peer.sendall(size.to_bytes(4) + bytes(size)))
        thread.start()
        source = FrameSource(connection, BufferPool(), 1 << 30)
        frame = await source.read()
        assert frame is not None and len(frame.data) == size
        thread.join()
        peer.sendall((1).to_bytes(4))
        peer.sendall(b"x")
        small = await source.read()
        assert small is not None and small.data == b"x"
    await connection.aclose()
