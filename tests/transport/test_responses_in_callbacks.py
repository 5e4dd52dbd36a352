"""Responses that the receiving callback delivers, before the task continues."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.errors import MessageDecodeError
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.transport import BrokerConnection
from tests.transport.peer import Network, Peer, Serve
from tests.transport.tcp_network import TcpNetwork

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[Network, TcpNetwork], ids=["memory", "tcp"])
def network_type(request: pytest.FixtureRequest) -> Any:
    return request.param


async def exchange(network_type: Any, serve: Serve, use: Any) -> None:
    """Run ``use`` with a connection to a broker that runs ``serve`` after the handshake."""

    async def shake_and_serve(peer: Peer) -> None:
        await peer.shake_hands()
        await serve(peer)

    async with anyio.create_task_group() as tasks:
        network = network_type(tasks)
        network.listen("b", 9092, shake_and_serve)
        connection = await BrokerConnection.open(network.connect, "b", 9092)
        tasks.start_soon(connection.run)
        await use(connection)
        await connection.aclose()
        tasks.cancel_scope.cancel()


def answer_of(records: bytes) -> FetchResponse:
    partition = FetchResponse.PartitionData(records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    return FetchResponse(responses=[topic])


async def answer_fetch(peer: Peer, records: bytes = b"x") -> None:
    header, _ = await peer.expect(FetchRequest)
    await peer.reply(header, answer_of(records))


async def test_a_response_is_passed_on_before_the_task_goes_on(network_type: Any) -> None:
    events: list[str] = []

    async def ask(connection: BrokerConnection, name: str) -> None:
        await connection.request_leased(
            FetchRequest(), max_version=12, on_response=lambda _: events.append(f"{name} came")
        )
        events.append(f"{name} goes on")

    async def serve(peer: Peer) -> None:
        first, _ = await peer.expect(FetchRequest)
        second, _ = await peer.expect(FetchRequest)
        await peer.reply(first, answer_of(b"1"))
        await peer.reply(second, answer_of(b"2"))
        await peer.receive()

    async def use(connection: BrokerConnection) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, connection, "a")
            tasks.start_soon(ask, connection, "b")

    await exchange(network_type, serve, use)
    for name in "ab":
        assert events.index(f"{name} came") < events.index(f"{name} goes on")
    assert len(events) == 4


async def test_the_task_gets_the_response_that_was_passed_on(network_type: Any) -> None:
    passed: list[FetchResponse] = []
    pooled: list[bool] = []

    async def serve(peer: Peer) -> None:
        await answer_fetch(peer)
        await answer_fetch(peer, bytes(100_000))
        await peer.receive()

    async def use(connection: BrokerConnection) -> None:
        for _ in range(2):
            leased = await connection.request_leased(
                FetchRequest(),
                max_version=12,
                on_response=lambda leased: passed.append(leased.response),
            )
            assert leased.response is passed[-1]
            pooled.append(leased.is_pooled)

    await exchange(network_type, serve, use)
    assert pooled == [False, True]


async def test_no_response_is_passed_on_when_it_is_garbage(network_type: Any) -> None:
    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(FetchRequest)
        frame = header.correlation_id.to_bytes(4, "big") + b"\xff"
        await peer.send(len(frame).to_bytes(4, "big") + frame)
        await peer.receive()

    async def use(connection: BrokerConnection) -> None:
        passed: list[Any] = []
        with pytest.raises(MessageDecodeError):
            await connection.request_leased(
                FetchRequest(), max_version=12, on_response=passed.append
            )
        assert not passed
        assert connection.failure is not None

    await exchange(network_type, serve, use)


async def test_no_response_is_passed_on_when_its_task_is_gone(network_type: Any) -> None:
    may_answer = anyio.Event()
    passed: list[Any] = []

    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(FetchRequest)
        await may_answer.wait()
        await peer.reply(header, answer_of(b"1"))
        await answer_fetch(peer)
        await peer.receive()

    async def use(connection: BrokerConnection) -> None:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await connection.request_leased(
                    FetchRequest(), max_version=12, on_response=passed.append
                )

            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        may_answer.set()
        await connection.request_leased(FetchRequest(), max_version=12)
        assert not passed

    await exchange(network_type, serve, use)
