"""The client of a cluster: first contact, metadata, connections, choice of a broker."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import anyio
import pytest

from kohort.config import ClientConfig
from kohort.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kohort.protocol import ApiKey, Request, Response
from kohort.protocol.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
)
from kohort.transport import ClusterClient, ClusterMetadata, Leader
from kohort.transport.cluster._metadata_refresh import unreached
from kohort.types import TopicPartition
from tests.transport.peer import Broker, FakeCluster, api_versions, topic_answer
from tests.transport.running import running, start_client

pytestmark = pytest.mark.anyio


def never(kind: type[Request[Any]], broker: Broker) -> Callable[..., Response | None]:
    """Return a script that responds to all requests except one type."""

    def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
        if isinstance(request, kind):
            return None
        if isinstance(request, MetadataRequest):
            return broker.cluster.describe(request)
        return type(request).response()

    return answer


async def until(condition: Callable[[], bool]) -> None:
    """Let the other tasks run until the condition holds, for at most five seconds."""
    with anyio.fail_after(60):
        while not condition():
            await anyio.wait_all_tasks_blocked()


async def test_the_first_contact_brings_the_brokers() -> None:
    async with running(brokers=3) as (client, cluster):
        assert not client.bootstrapped
        await client.wait_bootstrapped()
        assert client.bootstrapped
        assert sorted(client.metadata.brokers) == [1, 2, 3]
        assert client.metadata.cluster_id == "c"
        assert cluster.asked == [[]]


async def test_unreachable_bootstrap_server_is_passed_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    servers = (("no1", 1), ("no2", 2), ("b1", 9092))
    async with running(bootstrap=servers) as (client, _):
        with anyio.fail_after(60):
            await client.wait_bootstrapped()
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    for each in warnings[:1]:
        assert "no1:1, no2:2, b1:9092" in each.getMessage()
        assert "Connection refused" in each.getMessage()
    assert len(warnings) <= 1


async def test_unreached_servers_end_a_sentence_once() -> None:
    config = ClientConfig(bootstrap_servers=(("a", 1),))
    for error, end in (("is this the port of a broker?", "broker? "), ("refused", "refused. ")):
        node = Mock(peer="a:1", error=OSError(error))
        nodes = Mock(bootstrap={1: node}, credentials_obstacle=lambda _: None)
        assert f"{end}Check bootstrap_servers" in str(unreached(nodes, config))


async def test_wanted_topics_are_in_the_metadata() -> None:
    async with running(brokers=2) as (client, cluster):
        cluster.add_topic("t", [1, 2], epoch=3)
        client.want_topics({"t"})
        await client.wait_refreshed()
        assert client.metadata.partitions_for("t") == (0, 1)
        assert client.metadata.leader(TopicPartition("t", 1)) == Leader(2, 3)


async def test_all_topics_can_be_wanted() -> None:
    async with running() as (client, cluster):
        cluster.add_topic("t", [1])
        cluster.add_topic("u", [1])
        client.want_topics(None)
        await client.wait_refreshed()
        assert set(client.metadata.topics) == {"t", "u"}
        assert cluster.asked[-1] is None


async def test_unwanted_topics_disappear_with_the_next_refresh() -> None:
    async with running() as (client, cluster):
        cluster.add_topic("t", [1])
        cluster.add_topic("u", [1])
        client.want_topics({"t", "u"})
        await client.wait_refreshed()
        client.want_topics({"u"})
        await client.wait_refreshed()
        assert set(client.metadata.topics) == {"u"}


async def test_wanting_what_is_known_asks_nobody() -> None:
    async with running() as (client, cluster):
        cluster.add_topic("t", [1])
        client.want_topics({"t"})
        await client.wait_refreshed()
        asked = len(cluster.asked)
        client.want_topics({"t"})
        client.want_topics(set())
        await anyio.wait_all_tasks_blocked()
        assert len(cluster.asked) == asked


async def test_one_refresh_serves_all_who_asked_before_it() -> None:
    async with running() as (client, cluster):
        await client.wait_bootstrapped()
        asked = len(cluster.asked)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                client.request_refresh()
                tasks.start_soon(client.wait_refreshed)
        assert len(cluster.asked) == asked + 1


async def test_call_during_a_refresh_waits_for_the_next_refresh() -> None:
    async with running() as (client, cluster):
        (broker,) = cluster.brokers
        waited = []

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            assert isinstance(request, MetadataRequest)
            if len(cluster.asked) == 1:
                # The client's request is in flight, and the topic is created only now.
                client.want_topics({"t"})
                waited.append(True)
            response = cluster.describe(request)
            cluster.add_topic("t", [1])
            return response

        broker.answer = answer
        await client.wait_bootstrapped()
        await client.wait_refreshed()
        await client.wait_refreshed()
        assert waited
        assert client.metadata.partitions_for("t") == (0,)


async def test_the_errors_of_topics_are_in_the_metadata() -> None:
    async with running() as (client, cluster):
        code = TopicAuthorizationFailedError.code
        cluster.topics["secret"] = topic_answer("secret", [], error=code)
        client.want_topics({"secret"})
        await client.wait_refreshed()
        assert client.metadata.topics["secret"].error == code


async def test_topic_created_late_is_found_without_another_call() -> None:
    async with running(retry_backoff_ms=10, retry_backoff_max_ms=20) as (client, cluster):
        client.want_topics({"t"})
        await client.wait_refreshed()
        assert client.metadata.topics["t"].error == 3
        cluster.add_topic("t", [1])
        with anyio.fail_after(60):
            changed = anyio.Event()
            client.on_metadata_change(
                lambda old, new: changed.set() if new.partitions_for("t") else None
            )
            await changed.wait()


async def test_listeners_hear_of_each_answer_with_old_and_new() -> None:
    async with running() as (client, cluster):
        seen: list[tuple[ClusterMetadata, ClusterMetadata]] = []

        def broken(old: ClusterMetadata, new: ClusterMetadata) -> None:
            raise RuntimeError("a bug")

        client.on_metadata_change(broken)
        client.on_metadata_change(lambda old, new: seen.append((old, new)))
        cluster.add_topic("t", [1])
        client.want_topics({"t"})
        await client.wait_refreshed()
        assert seen[-1][1] is client.metadata
        assert all(new is next_old for (_, new), (next_old, _) in itertools.pairwise(seen))


async def test_single_topics_can_be_asked_for() -> None:
    async with running() as (client, cluster):
        cluster.add_topic("t", [1])
        cluster.add_topic("u", [1])
        client.want_topics({"u"})
        await client.wait_refreshed()
        answered = await client.fetch_topics({"t", "nope"})
        assert answered.topics["nope"].error == 3
        assert answered.partitions_for("t") == (0,)
        assert client.metadata.partitions_for("t") == (0,)
        assert client.metadata.partitions_for("u") == (0,)
        assert "nope" not in client.metadata.topics
        everything = await client.fetch_topics(None)
        assert set(everything.topics) == {"t", "u"}


@pytest.mark.parametrize("allowed", [True, False])
async def test_topics_are_created_only_if_that_is_allowed(allowed: bool) -> None:
    async with running(allow_auto_create_topics=allowed) as (client, cluster):
        await client.fetch_topics(["t"])
        requests = [
            each for each in cluster.brokers[0].requests if isinstance(each, MetadataRequest)
        ]
        assert requests[-1].allow_auto_topic_creation is allowed


async def test_metadata_without_brokers_is_not_taken() -> None:
    async with running(retry_backoff_ms=10, retry_backoff_max_ms=10) as (client, cluster):
        (broker,) = cluster.brokers
        answers = [MetadataResponse(), MetadataResponse(error_code=-1)]

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            assert isinstance(request, MetadataRequest)
            return answers.pop() if answers else cluster.describe(request)

        broker.answer = answer
        with anyio.fail_after(60):
            await client.wait_bootstrapped()
        assert not answers
        assert set(client.metadata.brokers) == {1}


async def test_a_broker_that_asks_for_it_is_started_again_from() -> None:
    async with running(brokers=2, retry_backoff_ms=10) as (client, cluster):
        await client.wait_bootstrapped()
        answers = [MetadataResponse(error_code=129), MetadataResponse(error_code=129)]

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            assert isinstance(request, MetadataRequest)
            return answers.pop() if answers else cluster.describe(request)

        for broker in cluster.brokers:
            broker.answer = answer
        connected = len(cluster.network.attempts)
        await client.wait_refreshed()
        assert not answers
        assert ("b1", 9092) in [attempt[1:] for attempt in cluster.network.attempts[connected:]]
        assert set(client.metadata.brokers) == {1, 2}


async def test_requests_go_to_the_node_that_is_named() -> None:
    async with running(brokers=3) as (client, cluster):
        await client.wait_bootstrapped()
        for node in (3, 1, 3):
            await client.request(HeartbeatRequest(group_id="g"), node=node)
        assert [broker.count(HeartbeatRequest) for broker in cluster.brokers] == [1, 0, 2]


async def test_each_purpose_has_a_connection_of_its_own() -> None:
    async with running() as (client, cluster):
        await client.wait_bootstrapped()
        cluster.brokers[0].answer = never(FetchRequest, cluster.brokers[0])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.request(FetchRequest(), node=1, purpose="fetch"))
            await until(lambda: cluster.brokers[0].count(FetchRequest) == 1)
            before = len(cluster.network.attempts)
            with anyio.fail_after(60):
                for _ in range(3):
                    await client.request(HeartbeatRequest(), node=1, purpose="coordinator")
            assert len(cluster.network.attempts) == before + 1
            tasks.cancel_scope.cancel()


async def test_many_who_need_a_connection_open_one() -> None:
    async with running(brokers=2) as (client, cluster):
        await client.wait_bootstrapped()
        before = len(cluster.network.attempts)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(lambda: client.request(HeartbeatRequest(), node=2, purpose="x"))
        assert len(cluster.network.attempts) == before + 1


async def test_the_one_who_opens_may_be_cancelled_and_the_others_go_on() -> None:
    async with running(brokers=2) as (client, _):
        await client.wait_bootstrapped()
        done = []

        async def ask() -> None:
            done.append(await client.request(HeartbeatRequest(), node=2))

        async with anyio.create_task_group() as tasks, anyio.create_task_group() as first:
            first.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(ask)
            first.cancel_scope.cancel()
        assert HeartbeatResponse() in done


async def test_unknown_node_raises_and_refreshes_the_metadata() -> None:
    async with running(retry_backoff_ms=10) as (client, cluster):
        await client.wait_bootstrapped()
        asked = len(cluster.asked)
        with pytest.raises(KafkaConnectionError, match="broker 7 is not among"):
            await client.request(HeartbeatRequest(), node=7)
        await client.wait_refreshed()
        assert len(cluster.asked) == asked + 1


async def test_a_coordinator_is_known_by_the_answer_that_names_it() -> None:
    async with running(brokers=2) as (client, cluster):
        first, second = cluster.brokers
        cluster.brokers = [first]

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            if isinstance(request, FindCoordinatorRequest):
                found = FindCoordinatorResponse.Coordinator(
                    key="g", node_id=2, host="b2", port=9092
                )
                return FindCoordinatorResponse(coordinators=[found])
            assert isinstance(request, MetadataRequest)
            return cluster.describe(request)

        first.answer = answer
        await client.request(FindCoordinatorRequest(coordinator_keys=["g"]), min_version=4)
        await client.request(HeartbeatRequest(), node=2)
        assert second.count(HeartbeatRequest) == 1


async def test_lookup_follows_first_request_and_waits_for_brokers() -> None:
    """The first response to Metadata names no brokers, so it is not the first contact."""
    async with running(retry_backoff_ms=10) as (client, cluster):
        (broker,) = cluster.brokers

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            if isinstance(request, FindCoordinatorRequest):
                return FindCoordinatorResponse(node_id=2, host="b2", port=9092)
            assert isinstance(request, MetadataRequest)
            is_first = broker.count(MetadataRequest) == 1
            return MetadataResponse() if is_first else cluster.describe(request)

        broker.answer = answer
        await client.request(FindCoordinatorRequest(key="g"), max_version=3)
        assert client.bootstrapped
        kinds = [MetadataRequest, FindCoordinatorRequest, MetadataRequest]
        assert [type(each) for each in broker.requests] == kinds
        await client.request(FindCoordinatorRequest(key="g"), max_version=3)
        assert len(broker.requests) == 4


async def test_only_lookups_of_coordinators_precede_the_first_contact() -> None:
    async with running() as (client, cluster):
        (broker,) = cluster.brokers
        broker.answer = lambda *_: None
        with pytest.raises(KafkaTimeoutError):
            await client.request(HeartbeatRequest(), timeout_ms=100)
        with pytest.raises(KafkaTimeoutError):
            await client.request(FindCoordinatorRequest(key="g"), max_version=3, timeout_ms=100)
        assert [type(each) for each in broker.requests] == [MetadataRequest, FindCoordinatorRequest]


async def test_unsupported_version_fails_only_its_request() -> None:
    async with running() as (client, cluster):
        cluster.versions = api_versions({int(ApiKey.FIND_COORDINATOR): (0, 3)})
        with pytest.raises(UnsupportedVersionError, match="b1:9092 serves"):
            await client.request(FindCoordinatorRequest(coordinator_keys=["g"]), min_version=4)
        await client.request(FindCoordinatorRequest(key="g"), max_version=3)


async def test_the_least_loaded_node_has_the_fewest_requests_in_flight() -> None:
    async with running(brokers=3) as (client, cluster):
        await client.wait_bootstrapped()
        for broker in cluster.brokers:
            broker.answer = never(HeartbeatRequest, broker)

        async def ask(node: int, purpose: str) -> None:
            await client.request(HeartbeatRequest(), node=node, purpose=purpose)

        async with anyio.create_task_group() as tasks:
            for node, count in ((1, 2), (2, 1), (3, 3)):
                for index in range(count):
                    tasks.start_soon(ask, node, str(index))
            await until(lambda: [b.count(HeartbeatRequest) for b in cluster.brokers] == [2, 1, 3])
            assert client.least_loaded_node() == 2
            tasks.cancel_scope.cancel()


async def test_of_equally_loaded_nodes_the_one_idle_longest_is_asked() -> None:
    async with running(brokers=3) as (client, _):
        await client.wait_bootstrapped()
        for node in (2, 3, 1):
            await client.request(HeartbeatRequest(), node=node)
        order = []
        for _ in range(6):
            chosen = client.least_loaded_node()
            assert chosen is not None
            order.append(chosen)
            await client.request(HeartbeatRequest(), node=chosen)
        assert order == [2, 3, 1, 2, 3, 1]


async def test_of_equally_loaded_nodes_a_connected_one_is_asked() -> None:
    async with running(brokers=3) as (client, _):
        await client.wait_bootstrapped()
        assert [client.least_loaded_node() for _ in range(9)] == [1] * 9
        await client.request(HeartbeatRequest(), node=2, purpose="other")
        await client.request(HeartbeatRequest(), node=1)
        assert [client.least_loaded_node() for _ in range(9)] == [1] * 9


async def test_a_node_in_back_off_is_never_chosen() -> None:
    async with running(brokers=3, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as (
        client,
        cluster,
    ):
        await client.wait_bootstrapped()
        for broker in (cluster.brokers[0], cluster.brokers[2]):
            broker.down()
            with pytest.raises((KafkaConnectionError, KafkaTimeoutError)):
                await client.request(
                    HeartbeatRequest(), node=broker.node_id, purpose="new", timeout_ms=100
                )
        for _ in range(5):
            assert client.least_loaded_node() == 2
            await client.request(HeartbeatRequest())
        cluster.brokers[1].down()
        await until(lambda: client.least_loaded_node() is None)


async def test_bootstrap_servers_are_used_again_without_any_broker() -> None:
    servers = (("b1", 9092), ("spare", 9092))
    async with running(bootstrap=servers, retry_backoff_ms=10) as (client, cluster):
        (broker,) = cluster.brokers
        await client.wait_bootstrapped()
        broker.down()
        broker.host = "spare"
        broker.up()
        with anyio.fail_after(60):
            await client.wait_refreshed()
        assert client.metadata.brokers[1].host == "spare"
        await client.request(HeartbeatRequest(), node=1)


async def test_a_broker_that_moved_is_connected_to_where_it_is_now() -> None:
    async with running(brokers=2) as (client, cluster):
        await client.wait_bootstrapped()
        moved = cluster.brokers[1]
        await client.request(HeartbeatRequest(), node=2)
        moved.host = "elsewhere"
        moved.up()
        await client.wait_refreshed()
        await client.request(HeartbeatRequest(), node=2)
        assert ("elsewhere", 9092) in [attempt[1:] for attempt in cluster.network.attempts]


async def test_a_lost_connection_is_opened_again() -> None:
    async with running(reconnect_backoff_ms=10) as (client, cluster):
        await client.wait_bootstrapped()
        (broker,) = cluster.brokers
        for _ in range(3):
            await client.request(HeartbeatRequest(), node=1, timeout_ms=5000)
            for peer in broker.peers:
                peer.reset()
            await anyio.wait_all_tasks_blocked()
        await client.request(HeartbeatRequest(), node=1, timeout_ms=5000)
        assert broker.count(HeartbeatRequest) == 4


async def test_request_without_response_times_out_and_next_reconnects() -> None:
    async with running() as (client, cluster):
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)  # so that no time goes into connecting
        (broker,) = cluster.brokers
        broker.answer = never(HeartbeatRequest, broker)
        with pytest.raises(KafkaTimeoutError, match="b1:9092 did not respond to HeartbeatRequest"):
            await client.request(HeartbeatRequest(), node=1, timeout_ms=50)
        broker.answer = None
        await client.request(HeartbeatRequest(), node=1)


async def test_bootstrap_connections_close_when_the_brokers_are_known() -> None:
    async with running(bootstrap=(("other", 9092),)) as (client, cluster):
        cluster.network.listen("other", 9092, cluster.brokers[0]._serve)
        await client.wait_bootstrapped()
        await until(lambda: cluster.network.open_ends == 0)
        await client.request(HeartbeatRequest())
        assert cluster.network.open_ends == 1


async def test_bootstrap_connection_becomes_that_of_its_broker() -> None:
    async with running(brokers=2, reconnect_backoff_ms=10) as (client, cluster):
        await client.wait_bootstrapped()
        (broker, _) = cluster.brokers
        await client.request(HeartbeatRequest(), node=1)
        assert [host for _, host, _ in cluster.network.attempts] == ["b1"]
        line = client.line(1)
        assert line is not None
        for peer in broker.peers:
            peer.reset()
        await anyio.wait_all_tasks_blocked()
        assert client.last_error is not None  # of the broker, whose back-off has begun
        await client.request(HeartbeatRequest(), node=1, timeout_ms=5000)
        assert [host for _, host, _ in cluster.network.attempts] == ["b1", "b1"]
        assert broker.count(HeartbeatRequest) == 2


async def test_prepared_connection_is_open_before_the_first_request() -> None:
    async with running() as (client, cluster):
        await client.wait_bootstrapped()
        for _ in range(2):
            client.prepare(1, "fetch")
            client.prepare(9, "fetch")  # an unknown broker
        await until(lambda: cluster.network.open_ends == 2)
        await client.request(HeartbeatRequest(), node=1, purpose="fetch")
        assert cluster.network.open_ends == 2


async def test_closing_ends_everything_and_says_so_to_all_who_wait() -> None:
    raised: list[Exception] = []

    async def note(call: Callable[[], Any]) -> None:
        try:
            await call()
        except (IllegalStateError, KafkaConnectionError) as error:
            raised.append(error)

    async with running() as (client, cluster):
        await client.wait_bootstrapped()
        (broker,) = cluster.brokers
        broker.answer = lambda header, request: None
        calls: list[Callable[[], Any]] = [
            lambda: client.request(HeartbeatRequest(), node=1),
            lambda: client.request(HeartbeatRequest(), node=1, purpose="other"),
            lambda: client.request(HeartbeatRequest()),
            client.wait_refreshed,
            lambda: client.fetch_topics(["t"]),
        ]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(note, call)
                await until(lambda: broker.count(HeartbeatRequest) == 3)
                await client.aclose()
                await client.aclose()
        assert len(raised) == len(calls)
        for call in calls:
            with pytest.raises(IllegalStateError):
                await call()


async def test_cancelling_run_closes_every_connection() -> None:
    async with running(brokers=2) as (client, cluster):
        async with anyio.create_task_group() as tasks:
            other = ClusterClient(client._config, connect=cluster.network.connect)
            await start_client(tasks, other)
            await other.wait_bootstrapped()
            await other.request(HeartbeatRequest(), node=2, purpose="x")
            tasks.cancel_scope.cancel()
        with pytest.raises(IllegalStateError):
            await other.request(HeartbeatRequest(), node=1)
        with pytest.raises(IllegalStateError, match="runs once"):
            await other.run()
        await other.aclose()
        await client.wait_bootstrapped()


async def test_before_it_runs_and_closed_before_it_ran_it_says_so() -> None:
    async with running() as (client, _):
        other = ClusterClient(client._config)
        with pytest.raises(IllegalStateError):
            await other.request(HeartbeatRequest(), node=-1)
        await other.aclose()
        with pytest.raises(IllegalStateError):
            await other.run()


async def test_names_from_the_network_cannot_forge_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running() as (client, cluster):
        (broker,) = cluster.brokers
        evil = "b\n2026 INFO fine\x1b[31m"

        def answer(header: RequestHeader, request: Request[Response]) -> Response | None:
            assert isinstance(request, MetadataRequest)
            response = cluster.describe(request)
            response.cluster_id = f"{evil}{len(cluster.asked)}"
            response.brokers.append(
                MetadataResponse.MetadataResponseBroker(node_id=2, host=evil, port=1)
            )
            return response

        broker.answer = answer
        await client.wait_refreshed()
        await client.wait_refreshed()
        with pytest.raises(KafkaConnectionError):
            await client.request(HeartbeatRequest(), node=2)
    messages = [record.getMessage() for record in caplog.records if "kohort" in record.name]
    assert any("2026 INFO" in message for message in messages)
    assert all(message.isprintable() for message in messages)


async def test_connections_that_fail_together_are_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(brokers=2) as (client, cluster):
        await client.wait_bootstrapped()
        cluster.brokers[1].down()

        async def ask(purpose: str) -> None:
            with pytest.raises(KafkaConnectionError):
                await client.request(HeartbeatRequest(), node=2, purpose=purpose)

        async with anyio.create_task_group() as tasks:
            for purpose in ("a", "b"):
                tasks.start_soon(ask, purpose)
    assert [each.levelno for each in caplog.records].count(logging.WARNING) == 1


async def test_known_broker_is_named_when_connecting() -> None:
    async with running(brokers=2) as (client, cluster):
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=2)
        names = [(each.cluster_id, each.node_id) for each in cluster.brokers[1].greetings]
        assert names == [("c", 2)]
        assert cluster.brokers[0].greetings[0].cluster_id is None  # the bootstrap server


@pytest.mark.parametrize(
    "options",
    [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}],
)
async def test_broker_is_not_named_without_the_check(options: dict[str, Any]) -> None:
    async with running(**options) as (client, cluster):
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)
        assert {each.cluster_id for each in cluster.brokers[0].greetings} == {None}


async def test_broker_is_not_named_to_an_older_cluster() -> None:
    async with running() as (client, cluster):
        cluster.versions = api_versions({int(ApiKey.API_VERSIONS): (0, 4)})
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)
        assert {each.cluster_id for each in cluster.brokers[0].greetings} == {None}


async def test_address_moved_to_another_cluster_rebootstraps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running(brokers=2, bootstrap=(("boot", 1),)) as (client, cluster):
        other = FakeCluster(cluster.network, 2)
        other.cluster_id = "d"
        for broker, port in zip(other.brokers, (1, 2), strict=True):
            broker.host, broker.port = "d", port
        first, second = cluster.brokers
        cluster.network.listen("boot", 1, first._serve)
        first.up()
        second.up()
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=1)
        # The addresses of the brokers and of the bootstrap server get brokers of another cluster.
        first.down()
        second.down()
        for place, broker in zip(
            (("boot", 1), ("b1", 9092), ("b2", 9092)),
            (*other.brokers, other.brokers[0]),
            strict=True,
        ):
            cluster.network.listen(*place, broker._serve)
        for broker in other.brokers:
            broker.up()
        with pytest.raises(KafkaConnectionError, match="b2:9092 is not broker 2 of cluster c"):
            with anyio.fail_after(60):
                await client.request(HeartbeatRequest(), node=2)
        await until(lambda: client.metadata.cluster_id == "d")
        assert {each.host for each in client.metadata.brokers.values()} == {"d"}
        await client.request(HeartbeatRequest(), node=2)
        assert other.brokers[1].greetings[-1].cluster_id == "d"
    texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert sum("starting again from the bootstrap servers" in each for each in texts) == 1
