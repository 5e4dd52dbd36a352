"""Deadlines, back-off and idle connections, on trio's virtual clock."""

from __future__ import annotations

import itertools
import logging
from functools import partial
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from kohort.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from kohort.protocol import Request, Response
from kohort.protocol.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
)
from tests.transport.peer import Answer, Peer
from tests.transport.running import running

pytestmark = pytest.mark.anyio
NOBODY = (("down", 1),)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A trio event loop with a clock that jumps to the next deadline when all tasks wait."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def accept_only(peer: Peer) -> None:
    await anyio.sleep_forever()


def pauses(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


async def test_unreachable_servers_raise_at_the_bootstrap_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = (("down", 1), ("also-down", 2))
    async with running(bootstrap=servers, bootstrap_timeout_ms=30_000) as (client, _):
        start = anyio.current_time()
        with pytest.raises(NoBrokersAvailable) as caught:
            await client.wait_bootstrapped()
        assert anyio.current_time() - start == pytest.approx(30)
        for each in ("30000 ms", "down:1: Connection refused", "also-down:2: Connection refused"):
            assert each in str(caught.value)
        with pytest.raises(NoBrokersAvailable):
            await client.request(HeartbeatRequest(), timeout_ms=100_000)
        assert anyio.current_time() - start == pytest.approx(60)
        with pytest.raises(NoBrokersAvailable):
            await client.fetch_topics(["t"])
        assert anyio.current_time() - start == pytest.approx(90)
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "down:1, also-down:2" in warnings[0]
    assert "Connection refused" in warnings[0]


async def test_timeout_of_zero_ends_when_each_server_failed_once() -> None:
    servers = (("down", 1), ("also-down", 2))
    async with running(bootstrap=servers, bootstrap_timeout_ms=0) as (client, cluster):
        with pytest.raises(NoBrokersAvailable) as caught, anyio.fail_after(1):
            await client.wait_bootstrapped()
        assert sorted(attempt[1:] for attempt in cluster.network.attempts) == sorted(servers)
        text = str(caught.value)
        assert text.count(": Connection refused") == 2 and " ms" not in text
        with pytest.raises(NoBrokersAvailable), anyio.fail_after(1):
            await client.wait_bootstrapped()


async def test_each_server_is_tried_once_before_a_second_try() -> None:
    holes = tuple((f"hole{number}", 1) for number in range(5))
    async with running(bootstrap=holes, bootstrap_timeout_ms=0) as (client, cluster):
        for hole in holes:
            cluster.network.listen(*hole, accept_only)
        with pytest.raises(NoBrokersAvailable):
            await client.wait_bootstrapped()
        attempts = [attempt[1:] for attempt in cluster.network.attempts]
        assert sorted(attempts[: len(holes)]) == sorted(holes)
        assert anyio.current_time() < 13  # side by side: 10 s for each of them


async def test_sixty_silent_servers_hardly_delay_the_live_one() -> None:
    holes = tuple((f"hole{number}", 1) for number in range(60))
    bootstrap = (*holes, ("b1", 9092))
    async with running(bootstrap=bootstrap, bootstrap_timeout_ms=600_000) as (client, cluster):
        for hole in holes:
            cluster.network.listen(*hole, accept_only)
        await client.wait_bootstrapped()
        assert anyio.current_time() < 40  # one by one they took 600 s
        assert len(cluster.network.attempts) <= 60 + 1 + 20
        await anyio.sleep(1)
        assert cluster.network.open_ends <= 1  # the other attempts ended


@pytest.mark.parametrize("node", [None, 1])
async def test_silent_connection_is_replaced_within_a_request(node: int | None) -> None:
    async with running(metadata_max_age_ms=10_000_000) as (client, cluster):
        (broker,) = cluster.brokers
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)
        attempts = len(cluster.network.attempts)
        broker.answer = lambda *_: None  # on the open connection only
        await anyio.sleep(250)
        started = anyio.current_time()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(partial(client.request, HeartbeatRequest(), node=node))
            await anyio.sleep(1)
            broker.answer = None
        assert anyio.current_time() - started < 6
        assert len(cluster.network.attempts) == attempts + 1
        assert broker.count(ApiVersionsRequest) == 1
        assert broker.count(HeartbeatRequest) == 1 + 3  # none was sent twice


async def test_used_connection_is_not_checked() -> None:
    async with running(metadata_max_age_ms=10_000_000) as (client, cluster):
        (broker,) = cluster.brokers
        await client.wait_bootstrapped()
        for _ in range(10):
            await client.request(HeartbeatRequest(), node=1)
            await anyio.sleep(14)
        assert broker.count(ApiVersionsRequest) == 0
        await anyio.sleep(2)
        await client.request(HeartbeatRequest(), node=1)
        assert broker.count(ApiVersionsRequest) == 1


async def test_failures_of_a_server_end_with_its_response() -> None:
    """After the loss of all brokers it must not come after servers that never responded."""
    async with running(bootstrap=(("b1", 9092),)) as (client, cluster):
        (broker,) = cluster.brokers
        broker.down()
        with anyio.move_on_after(5):
            await client.wait_bootstrapped()
        (node,) = client._nodes.bootstrap.values()
        assert node.failures > 1
        broker.up()
        with anyio.fail_after(30):
            await client.wait_bootstrapped()
        await anyio.sleep(1)
        assert node.failures == 0


async def test_timeout_of_zero_gives_each_server_its_time() -> None:
    holes = (("hole", 1), ("another", 2))
    async with running(bootstrap=holes, bootstrap_timeout_ms=0) as (client, cluster):
        for hole in holes:
            cluster.network.listen(*hole, accept_only)
        start = anyio.current_time()
        with pytest.raises(NoBrokersAvailable):
            await client.wait_bootstrapped()
        assert 10 <= anyio.current_time() - start < 15  # the time of a connection
    async with running(
        bootstrap=(*holes, ("b1", 9092)), bootstrap_timeout_ms=0, request_timeout_ms=20_000
    ) as (client, cluster):
        for hole in holes:
            cluster.network.listen(*hole, accept_only)
        await client.wait_bootstrapped()


async def test_a_bootstrap_server_that_comes_up_late_is_found() -> None:
    async with running() as (client, cluster):
        (broker,) = cluster.brokers
        broker.down()
        with anyio.move_on_after(10):
            await client.wait_bootstrapped()
        assert not client.bootstrapped
        broker.up()
        with anyio.fail_after(1.5):
            await client.wait_bootstrapped()


async def test_black_holes_before_the_good_one_do_not_use_up_the_time() -> None:
    async def shake_hands_only(peer: Peer) -> None:
        await peer.shake_hands()
        await anyio.sleep_forever()

    servers = (("hole", 1), ("half", 2), ("b1", 9092))
    async with running(bootstrap=servers) as (client, cluster):
        cluster.network.listen("hole", 1, accept_only)
        cluster.network.listen("half", 2, shake_hands_only)
        with anyio.fail_after(25):
            await client.wait_bootstrapped()


async def test_a_refused_connection_is_tried_again_ever_more_slowly() -> None:
    async with running(bootstrap=NOBODY) as (client, cluster):
        with anyio.move_on_after(6):
            await client.wait_bootstrapped()
        times = [attempt[0] for attempt in cluster.network.attempts]
        waits = pauses(times)
        for wait, middle in zip(waits, [0.05, 0.1, 0.2, 0.4, 0.8], strict=False):
            assert 0.8 * middle <= wait <= 1.2 * middle
        assert all(0.8 <= wait <= 1.0 for wait in waits[5:])
        assert 9 <= len(times) <= 13


async def test_back_off_is_by_node_and_shared_by_its_purposes() -> None:
    async with running(brokers=2) as (client, cluster):
        await client.wait_bootstrapped()
        cluster.brokers[1].down()
        attempts = cluster.network.attempts
        del attempts[:]

        async def ask(purpose: str) -> None:
            for _ in range(4):
                with pytest.raises(KafkaConnectionError):
                    await client.request(HeartbeatRequest(), node=2, purpose=purpose)

        async with anyio.create_task_group() as tasks:
            for purpose in ("a", "b", "c"):
                tasks.start_soon(ask, purpose)
        times = sorted({attempt[0] for attempt in attempts if attempt[1] == "b2"})
        assert len(times) == 4
        assert pauses(times) == pytest.approx([0.05, 0.1, 0.2], rel=0.2)
        start = anyio.current_time()
        await client.request(HeartbeatRequest(), node=1)
        assert anyio.current_time() == start


async def test_back_off_applies_to_a_broker_that_accepts_and_hangs_up() -> None:
    async def hang_up(peer: Peer) -> None:
        await peer.shake_hands()
        await peer.receive()

    async with running(bootstrap=(("rude", 1),)) as (client, cluster):
        cluster.network.listen("rude", 1, hang_up)
        with anyio.move_on_after(6):
            await client.wait_bootstrapped()
        assert len(cluster.network.attempts) <= 13


async def test_back_off_starts_anew_after_a_connection_that_worked() -> None:
    async with running() as (client, cluster):
        await client.wait_bootstrapped()
        (broker,) = cluster.brokers
        broker.down()
        for _ in range(6):
            with pytest.raises(KafkaConnectionError):
                await client.request(HeartbeatRequest(), node=1)
        broker.up()
        await client.request(HeartbeatRequest(), node=1)
        broker.down()
        await anyio.sleep(0.01)
        broker.up()
        start = anyio.current_time()
        await client.request(HeartbeatRequest(), node=1)
        assert anyio.current_time() - start <= 0.06


async def test_after_first_contact_an_outage_is_waited_out_for_ever() -> None:
    async with running() as (client, cluster):
        cluster.add_topic("t", [1])
        await client.wait_bootstrapped()
        (broker,) = cluster.brokers
        broker.down()
        with anyio.move_on_after(600):
            await client.fetch_topics(["t"])
        broker.up()
        with anyio.fail_after(3):
            assert (await client.fetch_topics(["t"])).partitions_for("t") == (0,)


async def test_a_request_ends_with_its_time_whatever_it_waits_for() -> None:
    async with running(reconnect_backoff_ms=90_000, reconnect_backoff_max_ms=90_000) as (
        client,
        cluster,
    ):
        await client.wait_bootstrapped()
        (broker,) = cluster.brokers
        broker.answer = lambda header, request: None
        start = anyio.current_time()
        with pytest.raises(KafkaTimeoutError, match="did not respond"):
            await client.request(HeartbeatRequest(), node=1, timeout_ms=700)
        assert anyio.current_time() - start == pytest.approx(0.7)
        with pytest.raises(KafkaTimeoutError, match=r"no connection to broker 1.*did not respond"):
            await client.request(HeartbeatRequest(), node=1, timeout_ms=300)
        with pytest.raises(KafkaTimeoutError, match=r"no connection to any broker within 0\.3 s"):
            await client.request(HeartbeatRequest(), timeout_ms=300)
        assert anyio.current_time() - start == pytest.approx(1.3)
        with pytest.raises(KafkaTimeoutError):
            await client.request(HeartbeatRequest())
        assert anyio.current_time() - start == pytest.approx(31.3)


async def test_metadata_is_refreshed_when_it_is_old() -> None:
    async with running(metadata_max_age_ms=60_000) as (client, cluster):
        await client.wait_bootstrapped()
        await anyio.sleep(59)
        assert len(cluster.asked) == 1
        await anyio.sleep(2)
        assert len(cluster.asked) == 2
        await anyio.sleep(600)
        assert len(cluster.asked) == 12


async def test_stale_metadata_is_refreshed_at_a_bounded_rate() -> None:
    async with running(retry_backoff_ms=100) as (client, cluster):
        await client.wait_bootstrapped()
        for _ in range(1000):
            client.request_refresh()
            await anyio.sleep(0.001)
        assert 9 <= len(cluster.asked) <= 14


async def test_a_topic_nobody_knows_is_asked_for_ever_more_slowly() -> None:
    async with running() as (client, cluster):
        client.want_topics({"t"})
        await anyio.sleep(60)
        assert 60 <= len(cluster.asked) <= 70


async def test_a_topic_without_a_leader_is_asked_for_until_it_has_one() -> None:
    async with running() as (client, cluster):
        cluster.add_topic("t", [-1])
        client.want_topics({"t"})
        await anyio.sleep(5)
        cluster.add_topic("t", [1], epoch=1)
        await anyio.sleep(1.1)
        assert client.metadata.topics["t"].is_complete
        asked = len(cluster.asked)
        await anyio.sleep(100)
        assert len(cluster.asked) == asked


async def test_failed_metadata_request_is_retried_with_back_off() -> None:
    async with running(brokers=2, request_timeout_ms=1000) as (client, cluster):
        await client.wait_bootstrapped()
        for broker in cluster.brokers:
            broker.answer = lambda header, request: None
        with anyio.move_on_after(20):
            await client.wait_refreshed()
        counts = [broker.count(MetadataRequest) for broker in cluster.brokers]
        assert 10 <= sum(counts) <= 22
        assert min(counts) >= 4


@pytest.mark.parametrize("down", [False, True], ids=["silent", "down"])
async def test_silent_brokers_are_dropped_for_the_bootstrap_servers(
    caplog: pytest.LogCaptureFixture, down: bool
) -> None:
    servers = (("b1", 9092), ("spare", 9092))
    async with running(brokers=2, bootstrap=servers, request_timeout_ms=1000) as (client, cluster):
        await client.wait_bootstrapped()
        for broker in cluster.brokers:
            broker.answer = lambda header, request: None
            if down:
                broker.down()
        with anyio.move_on_after(299):
            await client.wait_refreshed()
        assert client.metadata.brokers
        assert not any("starting again" in each for each in caplog.messages)
        with anyio.move_on_after(10):
            await client.wait_refreshed()
        assert not client.metadata.brokers
        assert [each for each in caplog.messages if "starting again" in each]
        cluster.brokers[0].answer = None
        if down:
            cluster.brokers[0].up()
        with anyio.fail_after(10):
            await client.wait_refreshed()
        assert client.metadata.brokers


async def test_brokers_are_never_given_up_where_that_is_not_wanted() -> None:
    servers = (("b1", 9092), ("spare", 9092))
    async with running(
        brokers=2, bootstrap=servers, metadata_recovery_strategy="none", request_timeout_ms=1000
    ) as (client, cluster):
        await client.wait_bootstrapped()
        for broker in cluster.brokers:
            broker.down()
        del cluster.network.attempts[:]
        with anyio.move_on_after(1000):
            await client.wait_refreshed()
        assert set(client.metadata.brokers) == {1, 2}
        assert {attempt[1] for attempt in cluster.network.attempts} == {"b1", "b2"}
        asked = [MetadataResponse(error_code=129)] * 3

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            assert isinstance(request, MetadataRequest)
            return asked.pop() if asked else cluster.describe(request)

        for broker in cluster.brokers:
            broker.answer = answer
            broker.up()
        with anyio.fail_after(20):
            await client.wait_refreshed()
        assert not asked
        assert "spare" not in {attempt[1] for attempt in cluster.network.attempts}


async def test_idle_connections_are_closed_and_used_ones_stay() -> None:
    async with running(brokers=2, connections_max_idle_ms=10_000, metadata_max_age_ms=10**9) as (
        client,
        cluster,
    ):
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)
        await client.request(HeartbeatRequest(), node=2)
        for _ in range(10):
            await anyio.sleep(3)
            await client.request(HeartbeatRequest(), node=1)
        assert cluster.network.open_ends == 1
        attempts = len(cluster.network.attempts)
        await client.request(HeartbeatRequest(), node=2)
        assert len(cluster.network.attempts) == attempts + 1
        await anyio.sleep(21)
        assert cluster.network.open_ends == 0


async def test_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    async with running(connections_max_idle_ms=1_000) as (client, cluster):
        await client.wait_bootstrapped()
        (broker,) = cluster.brokers

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            return (
                None
                if isinstance(request, HeartbeatRequest)
                else cluster.describe(
                    request  # type: ignore[arg-type]  # nothing else is asked
                )
            )

        broker.answer = answer
        start = anyio.current_time()
        with pytest.raises(KafkaTimeoutError, match="did not respond"):
            await client.request(HeartbeatRequest(), node=1, timeout_ms=20_000)
        assert anyio.current_time() - start == pytest.approx(20)


async def test_connection_for_a_purpose_is_closed_unless_it_is_used() -> None:
    async with running(metadata_max_age_ms=10**9) as (client, cluster):
        await client.wait_bootstrapped()
        for purpose in ("a", "b"):
            await client.request(HeartbeatRequest(), node=1, purpose=purpose)
        await anyio.sleep(1)
        before = cluster.network.open_ends
        client.close_connection(1, "a")
        client.close_connection(1, "unknown")
        client.close_connection(77, "a")
        await anyio.sleep(1)
        assert cluster.network.open_ends == before - 1
        await client.request(HeartbeatRequest(), node=1, purpose="a")
        assert cluster.network.open_ends == before
        (broker,) = cluster.brokers
        answer, broker.answer = broker.answer, lambda header, request: None
        async with anyio.create_task_group() as tasks:

            async def request() -> None:
                with pytest.raises(KafkaTimeoutError, match="did not respond"):
                    await client.request(HeartbeatRequest(), node=1, purpose="b", timeout_ms=9_000)

            tasks.start_soon(request)
            await anyio.sleep(1)
            client.close_connection(1, "b")
        broker.answer = answer


async def test_none_keeps_idle_connections() -> None:
    async with running(connections_max_idle_ms=None, metadata_max_age_ms=10**9) as (
        client,
        cluster,
    ):
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)
        await anyio.sleep(10**5)
        assert cluster.network.open_ends == 1


async def test_the_same_seed_makes_the_same_attempts() -> None:
    runs = []
    for _ in range(2):
        servers = (("down", 1), ("down", 2), ("down", 3))
        async with running(bootstrap=servers) as (client, cluster):
            start = anyio.current_time()
            with anyio.move_on_after(5):
                await client.wait_bootstrapped()
            runs.append(
                [(round(at - start, 6), host, port) for at, host, port in cluster.network.attempts]
            )
    assert runs[0] == runs[1]


def throttling(milliseconds: int, received: list[float]) -> Answer:
    """Return the script of a broker that throttles with the first heartbeat."""

    def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
        received.append(anyio.current_time())
        return HeartbeatResponse(throttle_time_ms=milliseconds if len(received) == 1 else 0)

    return answer


@pytest.mark.parametrize(("version", "pause"), [(4, 5), (2, 5), (1, 0)])
async def test_throttle_time_delays_next_requests_of_connection(version: int, pause: int) -> None:
    async with running(metadata_max_age_ms=10_000_000) as (client, cluster):
        await client.wait_bootstrapped()
        received: list[float] = []
        cluster.brokers[0].answer = throttling(5_000, received)
        request = partial(client.request, HeartbeatRequest(), node=1, max_version=version)
        await request()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            tasks.start_soon(request)
            tasks.start_soon(partial(request, purpose="other"))
        times = [each - received[0] for each in received[1:]]
        assert times == pytest.approx([0, pause, pause], abs=0.01)


async def test_throttle_time_takes_half_the_time_of_a_heartbeat() -> None:
    async with running(metadata_max_age_ms=10_000_000) as (client, cluster):
        await client.wait_bootstrapped()
        received: list[float] = []
        cluster.brokers[0].answer = throttling(60_000, received)
        await client.request(HeartbeatRequest(), node=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.request, HeartbeatRequest(), node=1))
            await client.request(HeartbeatRequest(), node=1, timeout_ms=9_000)
        assert [each - received[0] for each in received] == pytest.approx([0, 4.5, 4.5], abs=0.01)


async def test_frozen_broker_is_reported_once_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running(metadata_max_age_ms=10_000_000) as (client, cluster):
        (broker,) = cluster.brokers
        await client.wait_bootstrapped()
        headers: list[RequestHeader] = []

        def freeze(header: RequestHeader, request: Request[Response]) -> Response | None:
            headers.append(header)
            return None

        broker.answer = freeze
        async with anyio.create_task_group() as tasks:
            for purpose in ("", "other"):
                request = partial(client.request, HeartbeatRequest(), node=1, purpose=purpose)
                tasks.start_soon(request)
            await anyio.sleep(14)
            assert not [each for each in caplog.records if "sent nothing" in each.getMessage()]
            await anyio.sleep(5)
            for peer, header in zip(broker.peers[-2:], headers, strict=True):
                await peer.reply(header, HeartbeatResponse())
        texts = [each.getMessage() for each in caplog.records if "broker 1 at" in each.getMessage()]
        assert texts == [
            "broker 1 at b1:9092 has sent nothing for 15 s, and HeartbeatRequest waits: it may be "
            "frozen or cut off",
            "broker 1 at b1:9092 responds again",
        ]


async def test_wait_for_members_is_no_silence(caplog: pytest.LogCaptureFixture) -> None:
    async with running(metadata_max_age_ms=10_000_000) as (client, cluster):
        await client.wait_bootstrapped()
        cluster.brokers[0].answer = lambda *_: None
        with pytest.raises(KafkaTimeoutError):
            await client.request(JoinGroupRequest(), node=1, timeout_ms=300_000)
        assert not [each for each in caplog.records if "sent nothing" in each.getMessage()]
