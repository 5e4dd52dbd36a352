"""One connection: pipelined requests, their order, cancellation, and failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from kohort.errors import (
    CorrelationIdError,
    FrameTooLargeError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageDecodeError,
    MessageEncodeError,
    ProtocolError,
    UnsupportedVersionError,
)
from kohort.protocol import ApiKey, Response
from kohort.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.transport import BrokerConnection, OversizedFrameError
from tests.transport.peer import Network, Peer, Serve, answer_bytes, api_versions
from tests.transport.tcp_network import TcpNetwork

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True, params=[Network, TcpNetwork], ids=["memory", "tcp"])
def _network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect opened() in memory, and over sockets, which are read in callbacks."""
    monkeypatch.setitem(globals(), "Network", request.param)


@asynccontextmanager
async def opened(serve: Serve, **options: Any) -> AsyncIterator[tuple[BrokerConnection, Network]]:
    """Run a connection to a broker that shakes hands and then runs ``serve``."""

    async def shake_and_serve(peer: Peer) -> None:
        await peer.shake_hands()
        await serve(peer)

    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        network.listen("b", 9092, shake_and_serve)
        connection = await BrokerConnection.open(network.connect, "b", 9092, **options)
        tasks.start_soon(connection.run)
        yield connection, network
        await connection.aclose()
        assert network.open_ends == 0
        tasks.cancel_scope.cancel()


async def heartbeat(connection: BrokerConnection, group: str = "g") -> HeartbeatResponse:
    return await connection.request(HeartbeatRequest(group_id=group), timeout=60)


async def outcome(results: list[Any], connection: BrokerConnection, group: str) -> None:
    try:
        results.append((group, (await heartbeat(connection, group)).throttle_time_ms))
    except KafkaError as error:
        results.append((group, error))


async def answer_heartbeats(peer: Peer) -> None:
    """Respond to each heartbeat with the number in its group id."""
    while (exchange := await peer.receive()) is not None:
        header, request = exchange
        assert isinstance(request, HeartbeatRequest)
        await peer.reply(header, HeartbeatResponse(throttle_time_ms=int(request.group_id)))


async def test_a_request_is_answered() -> None:
    async with opened(answer_heartbeats) as (connection, _):
        assert (await heartbeat(connection, "7")).throttle_time_ms == 7
        assert connection.in_flight == 0
        assert connection.response_count == 1
        assert connection.failure is None


async def test_a_hook_that_makes_no_connection_is_told() -> None:
    class Stream:
        async def send(self, data: bytes) -> None:
            raise AssertionError

    async def connect(host: str, port: int) -> Any:
        return Stream()

    with pytest.raises(KafkaConnectionError, match=r"no recv_into\(\).*StreamConnection"):
        await BrokerConnection.open(connect, "broker", 9092)


@pytest.mark.parametrize(("asked", "kept"), [("2147483647", 60_000), ("-5", 0)])
async def test_a_broker_that_asks_for_endless_silence_is_not_believed(
    asked: str, kept: int
) -> None:
    async with opened(answer_heartbeats) as (connection, _):
        assert (await heartbeat(connection, asked)).throttle_time_ms == kept


async def test_request_has_client_id_and_highest_common_version() -> None:
    seen = []

    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(HeartbeatRequest)
        seen.append((header.client_id, header.request_api_version))
        await peer.reply(header, HeartbeatResponse())

    async with opened(serve, client_id="me") as (connection, _):
        await heartbeat(connection)
    assert seen == [("me", 4)]


async def test_requests_are_pipelined_and_answers_find_their_requests() -> None:
    everything_there = []

    async def serve(peer: Peer) -> None:
        exchanges = [await peer.expect(HeartbeatRequest) for _ in range(5)]
        everything_there.append(len(exchanges))
        for header, request in exchanges:
            assert isinstance(request, HeartbeatRequest)
            await peer.reply(header, HeartbeatResponse(throttle_time_ms=int(request.group_id)))
        await peer.receive()

    results: list[Any] = []
    async with opened(serve) as (connection, _), anyio.create_task_group() as tasks:
        for index in range(5):
            tasks.start_soon(outcome, results, connection, str(index))
    assert everything_there == [5]
    assert sorted(results) == [(str(index), index) for index in range(5)]


async def test_answers_to_several_requests_may_come_in_one_piece() -> None:
    async def serve(peer: Peer) -> None:
        exchanges = [await peer.expect(HeartbeatRequest) for _ in range(3)]
        await peer.send(
            b"".join(
                answer_bytes(header, HeartbeatResponse(throttle_time_ms=index))
                for index, (header, _) in enumerate(exchanges)
            )
        )
        await peer.receive()

    results: list[Any] = []
    async with opened(serve) as (connection, _), anyio.create_task_group() as tasks:
        for index in range(3):
            tasks.start_soon(outcome, results, connection, str(index))
    assert sorted(each for _, each in results) == [0, 1, 2]


@pytest.mark.parametrize("_network", [Network], indirect=True)  # sockets are too slow
async def test_no_more_than_the_allowed_number_is_in_flight() -> None:
    got_two, go_on = anyio.Event(), anyio.Event()

    async def serve(peer: Peer) -> None:
        exchanges = [await peer.expect(HeartbeatRequest) for _ in range(2)]
        got_two.set()
        await go_on.wait()
        for header, request in exchanges:
            assert isinstance(request, HeartbeatRequest)
            await peer.reply(header, HeartbeatResponse(throttle_time_ms=int(request.group_id)))
        await answer_heartbeats(peer)

    results: list[Any] = []
    async with (
        opened(serve, max_in_flight=2) as (connection, network),
        anyio.create_task_group() as tasks,
    ):
        for index in range(4):
            tasks.start_soon(outcome, results, connection, str(index))
        await got_two.wait()
        await anyio.wait_all_tasks_blocked()
        assert connection.in_flight == 4
        assert not network.ends[0].outgoing.data
        go_on.set()
    assert sorted(results) == [(str(index), index) for index in range(4)]


async def test_a_cancelled_caller_leaves_the_connection_healthy() -> None:
    got_first = anyio.Event()

    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(SyncGroupRequest)
        got_first.set()
        second, _ = await peer.expect(HeartbeatRequest)
        await peer.reply(header, SyncGroupResponse(assignment=b"late" * 20_000))
        await peer.reply(second, HeartbeatResponse(throttle_time_ms=5))
        await answer_heartbeats(peer)

    async with opened(serve) as (connection, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.request, SyncGroupRequest(group_id="g"))
            await got_first.wait()
            tasks.cancel_scope.cancel()
        assert connection.in_flight == 1
        assert (await heartbeat(connection)).throttle_time_ms == 5
        assert (await heartbeat(connection, "6")).throttle_time_ms == 6
        assert connection.in_flight == 0


async def test_a_request_cancelled_before_it_was_sent_never_is() -> None:
    seen = []
    got_first, go_on = anyio.Event(), anyio.Event()

    async def serve(peer: Peer) -> None:
        while (exchange := await peer.receive()) is not None:
            header, request = exchange
            assert isinstance(request, HeartbeatRequest)
            seen.append(request.group_id)
            got_first.set()
            await go_on.wait()
            await peer.reply(header, HeartbeatResponse())

    async with (
        opened(serve, max_in_flight=1) as (connection, _),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(heartbeat, connection, "first")
        await got_first.wait()
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(heartbeat, connection, "cancelled")
            await anyio.wait_all_tasks_blocked()
            cancelled.cancel_scope.cancel()
        assert connection.in_flight == 1
        go_on.set()
        await heartbeat(connection, "wanted")
    assert seen == ["first", "wanted"]


async def test_request_timeout_closes_the_connection_for_all_requests() -> None:
    async def serve(peer: Peer) -> None:
        while await peer.receive() is not None:
            pass

    results: list[Any] = []
    async with opened(serve) as (connection, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, results, connection, "patient")
            with pytest.raises(
                KafkaTimeoutError, match="b:9092 did not respond to HeartbeatRequest"
            ):
                await connection.request(HeartbeatRequest(group_id="g"), timeout=0.05)
        ((_, error),) = results
        assert isinstance(error, KafkaConnectionError)
        assert isinstance(error.__cause__, KafkaTimeoutError)
        assert isinstance(connection.failure, KafkaTimeoutError)
        with pytest.raises(KafkaConnectionError, match=r"closed.*did not respond"):
            await heartbeat(connection)


async def test_a_request_that_cannot_be_sent_in_time_fails_alone() -> None:
    async def serve(peer: Peer) -> None:
        first = await peer.expect(HeartbeatRequest)
        await released.wait()
        await peer.reply(first[0], HeartbeatResponse(throttle_time_ms=1))
        await peer.receive()

    released = anyio.Event()
    results: list[Any] = []
    async with opened(serve, max_in_flight=1) as (connection, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, results, connection, "first")
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(KafkaTimeoutError, match="could not be sent"):
                await connection.request(HeartbeatRequest(), timeout=0.05)
            released.set()
        assert results == [("first", 1)]
        assert connection.failure is None


async def test_an_abandoned_request_still_has_its_deadline() -> None:
    async def serve(peer: Peer) -> None:
        while await peer.receive() is not None:
            received.set()

    async def request() -> None:
        with scope, suppress(KafkaTimeoutError):  # it may end before a slow cancellation
            await connection.request(HeartbeatRequest(), timeout=0.5)

    received, scope = anyio.Event(), anyio.CancelScope()
    async with opened(serve) as (connection, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            await received.wait()
            scope.cancel()
        with pytest.raises(KafkaConnectionError):
            await heartbeat(connection)
        assert isinstance(connection.failure, KafkaTimeoutError)


async def test_a_broker_that_closes_fails_what_is_in_flight() -> None:
    async def serve(peer: Peer) -> None:
        await peer.expect(HeartbeatRequest)

    async with opened(serve) as (connection, _):
        with pytest.raises(KafkaConnectionError, match="b:9092: closed by the broker"):
            await heartbeat(connection)
        assert connection.lost_requests == 1


async def test_a_reset_fails_what_is_in_flight() -> None:
    async def serve(peer: Peer) -> None:
        await peer.expect(HeartbeatRequest)
        peer.reset()

    async with opened(serve) as (connection, _):
        with pytest.raises(KafkaConnectionError, match=r"reset by (the )?peer"):
            await heartbeat(connection)


async def test_half_an_answer_and_the_end_is_a_lost_connection() -> None:
    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(HeartbeatRequest)
        await peer.send(answer_bytes(header, HeartbeatResponse())[:7])

    async with opened(serve) as (connection, _):
        with pytest.raises(KafkaConnectionError, match="closed inside a frame"):
            await heartbeat(connection)


@pytest.mark.parametrize("is_answer", [True, False])
async def test_large_answer_over_the_bound_keeps_its_first_bytes(is_answer: bool) -> None:
    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(HeartbeatRequest)
        number = header.correlation_id if is_answer else header.correlation_id + 1
        head = number.to_bytes(4, "big") + b"head"
        await peer.send((1 << 21).to_bytes(4, "big") + head + bytes(1 << 16))
        await peer.receive()

    async with opened(serve, max_frame=1 << 20) as (connection, _):
        with pytest.raises(FrameTooLargeError) as caught:
            await connection.request_leased(HeartbeatRequest(group_id="g"), timeout=60)
        error = caught.value
        assert isinstance(error, OversizedFrameError) is is_answer
        assert connection.closed_by_us is is_answer
        assert ("plaintext" in str(error)) is not is_answer
        if isinstance(error, OversizedFrameError):
            assert (error.size, error.limit) == (1 << 21, 1 << 20)
            assert error.head[4:8] == b"head"
            assert len(error.head) <= 1 << 15
            assert error.version >= 0
            assert "receive_message_max_bytes=1048576" in str(error)


async def test_oversized_nonsense_fails_a_leased_request_at_once() -> None:
    async def serve(peer: Peer) -> None:
        await peer.expect(HeartbeatRequest)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n")
        await peer.receive()

    async with opened(serve) as (connection, _):
        with anyio.fail_after(60), pytest.raises(FrameTooLargeError, match="HTTP") as caught:
            await connection.request_leased(HeartbeatRequest(group_id="g"), timeout=60)
        assert not isinstance(caught.value, OversizedFrameError)


@pytest.mark.parametrize("size", [9, 40_000, 1 << 19])
@pytest.mark.parametrize("leased", [True, False])
async def test_request_fails_at_once_when_nonsense_is_cut_short(size: int, leased: bool) -> None:
    async def serve(peer: Peer) -> None:
        await peer.expect(HeartbeatRequest)
        await peer.send(size.to_bytes(4, "big") + b"SIP/")
        await peer.receive()

    async with opened(serve, max_frame=1 << 20) as (connection, _):
        request = connection.request_leased if leased else connection.request
        with anyio.fail_after(60), pytest.raises(CorrelationIdError, match="b:9092"):
            await request(HeartbeatRequest(group_id="g"), timeout=60)


async def raised_by_answer(answer: bytes) -> KafkaError:
    """Return the error of a request with this response. It closes the connection."""

    async def serve(peer: Peer) -> None:
        await peer.expect(HeartbeatRequest)
        await peer.send(answer)
        await peer.receive()

    results: list[Any] = []
    async with opened(serve, max_frame=1 << 20) as (connection, _):
        await outcome(results, connection, "g")
        assert connection.failure is not None
        assert "b:9092" in str(connection.failure)
    ((_, error),) = results
    assert isinstance(error, KafkaError)
    return error


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", FrameTooLargeError, "TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", FrameTooLargeError, "HTTP"),
        (b"\xff\xff\xff\xff", FrameTooLargeError, "-1 bytes"),
        (b"\x00\x10\x00\x01", FrameTooLargeError, "1048577 bytes"),
        (b"\x00\x00\x00\x00", MessageDecodeError, "too short"),
        (b"\x00\x00\x00\x03abc", MessageDecodeError, "too short"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63abcd", CorrelationIdError, "id 99"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", MessageDecodeError, "HeartbeatResponse"),
    ],
)
async def test_garbage_is_an_error_that_names_the_broker(
    answer: bytes, kind: type[ProtocolError], text: str
) -> None:
    error = await raised_by_answer(answer)
    assert type(error) is kind
    assert text in str(error)
    assert "b:9092" in str(error)
    assert not error.retriable


async def test_undecodable_response_fails_its_own_request() -> None:
    async def serve(peer: Peer) -> None:
        first, _ = await peer.expect(HeartbeatRequest)
        await peer.expect(HeartbeatRequest)
        await peer.send(b"\x00\x00\x00\x06" + first.correlation_id.to_bytes(4, "big") + b"\0\0")
        await peer.receive()

    results: list[Any] = []
    async with opened(serve) as (connection, _), anyio.create_task_group() as tasks:
        tasks.start_soon(outcome, results, connection, "1")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(outcome, results, connection, "2")
    errors = dict(results)
    assert type(errors["1"]) is MessageDecodeError
    assert type(errors["2"]) is KafkaConnectionError
    assert isinstance(errors["2"].__cause__, MessageDecodeError)


async def test_an_answer_that_nobody_asked_for_closes_the_connection() -> None:
    async def serve(peer: Peer) -> None:
        header, _ = await peer.expect(HeartbeatRequest)
        await peer.send(2 * answer_bytes(header, HeartbeatResponse()))
        await peer.receive()

    async with opened(serve) as (connection, _):
        await heartbeat(connection)
        with pytest.raises(KafkaConnectionError, match="a response came without a request"):
            await heartbeat(connection)
        assert isinstance(connection.failure, ProtocolError)


async def test_closing_fails_what_is_in_flight_and_is_idempotent() -> None:
    got_it = anyio.Event()

    async def serve(peer: Peer) -> None:
        await peer.expect(HeartbeatRequest)
        got_it.set()
        await peer.receive()

    results: list[Any] = []
    async with opened(serve) as (connection, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, results, connection, "g")
            await got_it.wait()
            await connection.aclose()
            await connection.aclose()
        assert connection.closed_by_us
    ((_, error),) = results
    assert type(error) is KafkaConnectionError
    assert "closed by this client" in str(error)


async def test_cancelling_its_task_fails_what_is_in_flight() -> None:
    got_it = anyio.Event()
    results: list[Any] = []

    async def serve(peer: Peer) -> None:
        await peer.shake_hands()
        await peer.expect(HeartbeatRequest)
        got_it.set()
        await peer.receive()

    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        network.listen("b", 9092, serve)
        connection = await BrokerConnection.open(network.connect, "b", 9092)
        async with anyio.create_task_group() as callers, anyio.create_task_group() as runner:
            runner.start_soon(connection.run)
            callers.start_soon(outcome, results, connection, "g")
            await got_it.wait()
            runner.cancel_scope.cancel()
        assert network.open_ends == 0
    assert isinstance(results[0][1], KafkaConnectionError)


async def test_message_that_cannot_be_encoded_keeps_the_connection() -> None:
    async with opened(answer_heartbeats) as (connection, _):
        with pytest.raises(MessageEncodeError):
            await connection.request(
                HeartbeatRequest(group_id="1", group_instance_id="x"), max_version=2
            )
        assert (await heartbeat(connection, "1")).throttle_time_ms == 1


async def test_versions_can_be_narrowed_and_error_names_both_ranges() -> None:
    async def serve(peer: Peer) -> None:
        await peer.shake_hands(api_versions({int(ApiKey.FETCH): (4, 11)}))
        await peer.receive()

    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        network.listen("b", 9092, serve)
        connection = await BrokerConnection.open(network.connect, "b", 9092)
        assert connection.version_for(FetchRequest) == 11
        assert connection.version_for(FetchRequest, max_version=7) == 7
        for narrowed in ({"min_version": 12}, {"max_version": 3}):
            with pytest.raises(UnsupportedVersionError, match=r"Fetch needs.*b:9092 serves.*4-11"):
                connection.version_for(FetchRequest, **narrowed)
        await connection.aclose()


async def test_large_responses_are_leased_and_unchanged_until_released() -> None:
    records = [bytes([index]) * 300_000 for index in range(4)]

    async def serve(peer: Peer) -> None:
        for each in records:
            header, _ = await peer.expect(FetchRequest)
            partition = FetchResponse.PartitionData(records=each)
            topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
            await peer.reply(header, FetchResponse(responses=[topic]))
        await peer.receive()

    def body(response: FetchResponse) -> bytes:
        data = response.responses[0].partitions[0].records
        assert data is not None
        return bytes(data)

    async with opened(serve) as (connection, _):
        first = await connection.request_leased(FetchRequest(), max_version=12)
        second = await connection.request_leased(FetchRequest(), max_version=12)
        assert body(first.response) == records[0]
        first.release()
        first.release()
        with pytest.raises(ValueError, match="released"):
            body(first.response)
        third = await connection.request_leased(FetchRequest(), max_version=12)
        assert body(second.response) == records[1]
        assert body(third.response) == records[2]
        kept = await connection.request(FetchRequest(), max_version=12)
        assert body(kept) == records[3]


async def test_last_used_moves_with_requests_and_answers() -> None:
    async with opened(answer_heartbeats) as (connection, _):
        before = connection.last_used
        await heartbeat(connection, "1")
        assert connection.last_used > before


async def test_answers_of_any_size_are_received() -> None:
    sizes = [0, 32_740, 32_760, 40_000, 1 << 20, 3_000_000]

    async def serve(peer: Peer) -> None:
        for size in sizes:
            header, _ = await peer.expect(SyncGroupRequest)
            await peer.reply(header, SyncGroupResponse(assignment=b"x" * size))
        await peer.receive()

    async with opened(serve) as (connection, _):
        for size in sizes:
            response: Response = await connection.request(SyncGroupRequest())
            assert isinstance(response, SyncGroupResponse)
            assert len(response.assignment) == size


async def test_nothing_is_allowed_after_a_failed_request_but_errors() -> None:
    async def serve(peer: Peer) -> None:
        await peer.receive()

    async with opened(serve) as (connection, _):
        for _ in range(3):
            with pytest.raises(KafkaConnectionError):
                await connection.request(MetadataRequest(), timeout=60)
