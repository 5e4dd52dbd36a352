"""Deadlines of responses that come slowly, and the measured line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort.errors import KafkaTimeoutError
from kohort.protocol.messages import HeartbeatRequest, HeartbeatResponse, MetadataRequest
from kohort.protocol.messages import MetadataResponse as Metadata
from kohort.transport import BrokerConnection, Line, OneShot
from kohort.transport.connection._pipeline import Pending
from kohort.transport.connection._response_reader import LEAST_RATE
from tests.support.virtual import run_virtual_on
from tests.transport.peer import Network, Peer, answer_bytes

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
TIMEOUT = 30.0
SIZE = 1 << 20


async def _exchange(
    rate: float,
    upto: float = 1.0,
    *,
    line: Line | None = None,
    on_silence: Callable[[Pending | None], None] = lambda _: None,
) -> float:
    """Request a response of 1 MiB, of which a part comes at ``rate``. Return the seconds."""

    async def serve(peer: Peer) -> None:
        await peer.shake_hands()
        header, _ = await peer.expect(MetadataRequest)
        data = answer_bytes(header, Metadata(cluster_id="x" * 30_000, topics=_topics()))
        for at in range(0, int(upto * len(data)), 1 << 14):
            await anyio.sleep((1 << 14) / rate)
            await peer.send(data[at : at + (1 << 14)])
        if upto == 1.0:
            header, _ = await peer.expect(HeartbeatRequest)
            await peer.reply(header, HeartbeatResponse())
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        network.listen("b", 9092, serve)
        connection = await BrokerConnection.open(network.connect, "b", 9092, line=line)
        connection.call_on_silence(on_silence)
        tasks.start_soon(connection.run)
        began = anyio.current_time()
        async with anyio.create_task_group() as requests:
            if upto == 1.0:
                requests.start_soon(_later_heartbeat, connection)
            try:
                await connection.request(MetadataRequest(topics=None), timeout=TIMEOUT)
            except KafkaTimeoutError as error:
                assert "stopped in its response to MetadataRequest" in str(error)
                assert upto < 1.0
        spent = anyio.current_time() - began
        await connection.aclose()
        tasks.cancel_scope.cancel()
    return spent


async def _later_heartbeat(connection: BrokerConnection) -> None:
    """Send a request that waits for the large response, with an earlier deadline."""
    await anyio.sleep(0.001)
    await connection.request(HeartbeatRequest(group_id="g"), timeout=TIMEOUT / 2)


def _topics() -> list[Metadata.MetadataResponseTopic]:
    topic = Metadata.MetadataResponseTopic
    return [topic(name="t" * 10_000 + str(number), partitions=[]) for number in range(100)]


@BACKENDS
@pytest.mark.parametrize("rate", [3 * LEAST_RATE, 1 << 14, 1 << 20])
def test_response_arrives_whatever_time_its_bytes_take(backend: str, rate: float) -> None:
    def main() -> Any:
        return _exchange(rate)

    assert run_virtual_on(backend, main) >= 1_000_000 / rate


@BACKENDS
def test_connection_ends_when_it_is_silent_after_half(backend: str) -> None:
    def main() -> Any:
        return _exchange(1 << 14, 0.5)

    assert run_virtual_on(backend, main) == pytest.approx(SIZE / 2 / (1 << 14) + TIMEOUT, abs=2)


@BACKENDS
@pytest.mark.parametrize("upto", [1.0, 0.5])
def test_silence_begins_after_the_latest_byte(backend: str, upto: float) -> None:
    rate, silences = 1 << 14, []

    async def main() -> Any:
        began = anyio.current_time()

        def note(awaited: Pending | None) -> None:
            silences.append((anyio.current_time() - began, awaited and awaited.name))

        await _exchange(rate, upto, on_silence=note)

    run_virtual_on(backend, main)
    if upto == 1.0:
        assert not silences
    else:
        ((at, name),) = silences
        assert at == pytest.approx(SIZE / 2 / rate + TIMEOUT / 2, abs=2)
        assert name == "MetadataRequest"


def test_time_of_silence_moves_with_the_deadline() -> None:
    pending = Pending("FetchRequest", 1, [], TIMEOUT, 100.0, OneShot())
    assert pending.silent_at == 115.0 and not pending.was_being_received
    pending.move_deadline(142.0, 1 << 20)
    assert pending.silent_at == 127.0 and pending.was_being_received


@BACKENDS
def test_silent_connection_ends_after_the_timeout_alone(backend: str) -> None:
    async def main() -> Any:
        async with anyio.create_task_group() as tasks:

            async def serve(peer: Peer) -> None:
                await peer.shake_hands()
                await peer.receive()
                await peer.receive()

            network = Network(tasks)
            network.listen("b", 9092, serve)
            connection = await BrokerConnection.open(network.connect, "b", 9092)
            tasks.start_soon(connection.run)
            await anyio.sleep(7)
            began = anyio.current_time()
            with pytest.raises(KafkaTimeoutError, match="did not respond to MetadataRequest"):
                await connection.request(MetadataRequest(topics=None), timeout=TIMEOUT)
            assert anyio.current_time() - began == pytest.approx(TIMEOUT)
            await connection.aclose()
            tasks.cancel_scope.cancel()

    run_virtual_on(backend, main)


@BACKENDS
def test_trickled_response_ends_after_the_timeout(backend: str) -> None:
    """A few bytes now and then must not keep a connection open."""

    async def main() -> Any:
        async with anyio.create_task_group() as tasks:

            async def serve(peer: Peer) -> None:
                await peer.shake_hands()
                header, _ = await peer.expect(MetadataRequest)
                data = answer_bytes(header, Metadata(topics=_topics()))
                for at in range(0, len(data), 100):
                    await peer.send(data[at : at + 100])
                    await anyio.sleep(100 * 1.1 / LEAST_RATE)

            network = Network(tasks)
            network.listen("b", 9092, serve)
            connection = await BrokerConnection.open(network.connect, "b", 9092)
            tasks.start_soon(connection.run)
            began = anyio.current_time()
            with pytest.raises(KafkaTimeoutError, match="did not respond to MetadataRequest"):
                await connection.request(MetadataRequest(topics=None), timeout=TIMEOUT)
            assert anyio.current_time() - began == pytest.approx(TIMEOUT)
            await connection.aclose()
            tasks.cancel_scope.cancel()

    run_virtual_on(backend, main)


@BACKENDS
def test_line_has_the_measured_rate(backend: str) -> None:
    line = Line()

    def main() -> Any:
        return _exchange(100_000, line=line)

    run_virtual_on(backend, main)
    assert line.bytes_per_second == pytest.approx(100_000, rel=0.05)
    assert line.delivery_seconds == pytest.approx(10, rel=0.1)


@BACKENDS
@pytest.mark.parametrize(
    ("waits", "least"), [((0.15, 0.3, 9, 1, 2), 0.15), ((0.3, 9, 0.2, 1, 2), 0.2)]
)
def test_round_trip_is_the_shortest_time_to_a_response(
    backend: str, waits: tuple[float, ...], least: float
) -> None:
    """The first wait is that of the handshake. The first few measurements do not count yet."""
    line = Line()

    async def serve(peer: Peer) -> None:
        await anyio.sleep(waits[0])
        await peer.shake_hands()
        for wait in waits[1:]:
            header, _ = await peer.expect(HeartbeatRequest)
            await anyio.sleep(wait)
            await peer.reply(header, HeartbeatResponse())
        await anyio.sleep_forever()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            network = Network(tasks)
            network.listen("b", 9092, serve)
            connection = await BrokerConnection.open(network.connect, "b", 9092, line=line)
            tasks.start_soon(connection.run)
            for _ in waits[1:]:
                assert line.round_trip == math.inf
                await connection.request(HeartbeatRequest(), timeout=TIMEOUT)
            await connection.aclose()
            tasks.cancel_scope.cancel()

    run_virtual_on(backend, main)
    assert line.round_trip == pytest.approx(least)
