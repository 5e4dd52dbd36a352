"""Share consumers under faults of the in-process cluster: leaders, coordinators, sessions."""

from __future__ import annotations

import contextlib
import logging
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from kohort import AsyncShareConsumer, TopicPartition
from kohort.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownServerError,
)
from kohort.share.machine._acquired import Acknowledgement
from kohort.testing import MemoryCluster
from tests.share.test_consumer import (
    BACKENDS,
    LOCK,
    TOPIC,
    TP,
    consumer,
    flat,
    on_cluster,
    poll,
    seen,
)


async def drained(member: AsyncShareConsumer, values: set[Any]) -> None:
    """Accept records until each value was accepted without a failure."""
    with anyio.fail_after(600):
        while values:
            records = flat(await member.poll(timeout_ms=1_000))
            member.accept(*records)
            failed = await member.commit()
            lost = {(tp, offset) for tp, offsets in failed.items() for offset in offsets}
            values -= {
                each.value
                for each in records
                if (TopicPartition(each.topic, each.partition), each.offset) not in lost
            }


@BACKENDS
def test_a_moved_leader_delivers_again_what_was_locked(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            (first, _) = await poll(member, 2)
            cluster.move_leader(TOPIC, 0)
            member.accept(first)
            assert list(await member.commit()) == [TP]
            await drained(member, {b"a", b"b"})
            assert member.held() == 0
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene, brokers=2)


@BACKENDS
def test_a_broker_that_leads_nothing_is_forgotten(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async with consumer(cluster) as member:
            for number in range(6):
                cluster.produce(TOPIC, [str(number)])
                await drained(member, {b"%d" % number})
                client = member._client
                assert client is not None
                await member.poll(timeout_ms=1_000)
                leader = cluster.leader(TOPIC)
                assert set(client._sessions) == set(client._leader_tasks) == {leader}
                assert client._pauses.keys() <= {leader}
                cluster.move_leader(TOPIC, 0)

    on_cluster(backend, scene, brokers=3)


@BACKENDS
def test_a_restarted_broker_delivers_what_was_not_accepted(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b", "c"])
        async with consumer(cluster) as member:
            records = await poll(member, 3)
            member.accept(records[0])
            assert await member.commit() == {}
            cluster.kill_broker(1)
            cluster.start_broker(1)
            await drained(member, {b"b", b"c"})
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene)


@BACKENDS
def test_an_absent_broker_is_logged_once(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            await poll(member, 1)
            cluster.kill_broker(1)
            assert await member.poll(timeout_ms=30_000) == {}
            assert caplog.text.count("the session at broker 1 is lost") == 1
            cluster.start_broker(1)

    with caplog.at_level(logging.INFO, "kohort.share"):
        on_cluster(backend, scene)


@BACKENDS
def test_a_moved_coordinator_keeps_the_member_and_its_locks(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            (record,) = await poll(member, 1)
            cluster.move_coordinator("workers")
            await anyio.sleep(12)  # two heartbeats
            member.accept(record)
            assert await member.commit() == {}
            cluster.produce(TOPIC, ["b"])
            await drained(member, {b"b"})

    on_cluster(backend, scene, brokers=2)


@BACKENDS
def test_a_member_that_the_coordinator_forgot_joins_again_with_its_locks(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            (record,) = await poll(member, 1)
            cluster.fail("ShareGroupHeartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
            await anyio.sleep(12)
            assert member.assignment() == {TP}
            member.accept(record)
            assert await member.commit() == {}

    on_cluster(backend, scene)


@BACKENDS
@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_NOT_FOUND],
)
def test_a_broken_session_heals(backend: str, code: ErrorCode) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            (record,) = await poll(member, 1)
            cluster.fail("ShareAcknowledge", code)
            member.accept(record)
            assert list(await member.commit()) == [TP]
            before = len(cluster.requests)
            cluster.produce(TOPIC, ["b"])
            assert seen(await poll(member, 1)) == [(b"b", 1)]
            fetches = [each.api for each in cluster.requests[before:]].count("ShareFetch")
            assert fetches <= 2

    on_cluster(backend, scene)


@BACKENDS
def test_a_deleted_topic_ends_no_consumer_and_is_not_created_again(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            (record,) = await poll(member, 1)
            cluster.delete_topic(TOPIC)
            member.accept(record)
            await member.commit()
            assert await member.poll(timeout_ms=20_000) == {}
            assert TOPIC not in cluster.topics
            cluster.create_topic(TOPIC, 1)
            cluster.produce(TOPIC, ["new"])
            await drained(member, {b"new"})

    on_cluster(backend, scene)


@BACKENDS
def test_a_refused_group_is_an_error_of_each_poll_until_it_passes(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        fault = cluster.fail(
            "ShareGroupHeartbeat", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None
        )
        async with consumer(cluster) as member:
            for _ in range(2):
                with pytest.raises(GroupAuthorizationFailedError, match="needs READ"):
                    await member.poll(timeout_ms=60_000)
            fault.stop()
            await drained(member, {b"a"})

    on_cluster(backend, scene)


@BACKENDS
def test_brokers_without_share_groups_are_an_error(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async with consumer(cluster, start=None) as member:
            with pytest.raises(KafkaError, match=r"share\.version"):
                await member.poll(timeout_ms=60_000)

    on_cluster(backend, scene, share_version=0)


@BACKENDS
def test_marks_that_are_refused_beside_records_are_sent_again_at_once(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            member.accept(*await poll(member, 2))
            client = member._client
            assert client is not None
            note, refusals = client._fetched, [ErrorCode.INVALID_RECORD_STATE]

            def refused(node: Any, session: Any, units: Any, response: Any, sent_at: float) -> None:
                for topic in response.responses:
                    for each in topic.partitions:
                        each.acknowledge_error_code = refusals.pop()
                note(node, session, units, response, sent_at)

            with patch.object(client, "_fetched", refused):
                cluster.produce(TOPIC, ["c"])
                await poll(member, 1)
                await anyio.sleep(1)
                assert member._locks.is_settled  # each half was sent on its own
                assert not refusals

    on_cluster(backend, scene)


@BACKENDS
def test_acknowledgements_that_a_response_does_not_name_have_failed(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            first, second = await poll(member, 2)
            client = member._client
            assert client is not None
            note = client._acknowledged

            def unnamed(node: Any, session: Any, units: Any, response: Any) -> None:
                response.responses.clear()
                note(node, session, units, response)

            member.accept(first)
            with patch.object(client, "_acknowledged", unnamed):
                failed = await member.commit()
            assert list(failed[TP]) == [first.offset]
            assert isinstance(failed[TP][first.offset], UnknownServerError)
            member.accept(second)
            assert await member.commit() == {}

    on_cluster(backend, scene)


@BACKENDS
def test_records_that_were_long_decoded_are_acknowledged_without_a_poll(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            member.accept(*await poll(member, 1))
            client, locks = member._client, member._locks
            assert client is not None
            await anyio.sleep(LOCK / 6 - 0.15)  # the next look at the marks comes soon
            cluster.produce(TOPIC, ["b"])
            await client.wait(0.3)
            (fetched,) = locks.take()
            await anyio.sleep(0.3)  # that look comes while another thread decodes
            locks.mark_rest(locks.hold(fetched, set()), Acknowledgement.ACCEPT)
            await anyio.sleep(LOCK / 2)
            assert locks.is_settled
            assert locks.take_failures() == {}

    on_cluster(backend, scene)


@BACKENDS
@pytest.mark.parametrize("is_known", [True, False])
def test_missing_right_names_the_topic_and_the_operation(backend: str, is_known: bool) -> None:
    async def hidden(call: Any) -> Any:
        response = await call.proceed()
        response.topics = []
        return response

    async def scene(cluster: MemoryCluster) -> None:
        async def denied(call: Any) -> Any:
            if not is_known:  # the topic leaves the metadata while the fetch is in flight
                stack.enter_context(cluster.on("Metadata", hidden))
                while engine.cluster.metadata.topic_names:
                    await engine.cluster.wait_refreshed()
            response = await call.proceed()
            for topic in response.responses:
                for partition in topic.partitions:
                    partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return response

        async with consumer(cluster) as member:
            engine = member._driver.engine
            with cluster.on("ShareFetch", denied), contextlib.ExitStack() as stack:
                with pytest.raises(TopicAuthorizationFailedError, match="needs READ") as caught:
                    await member.poll(timeout_ms=60_000)
            error = caught.value
            assert error.topics == frozenset({TOPIC} if is_known else ())
            assert error.operation == "READ"
            assert "?" not in str(error) and "other topics continue" not in str(error)

    on_cluster(backend, scene)


@BACKENDS
def test_a_silent_caller_leaves_the_group_and_keeps_its_locks(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster, max_poll_interval_ms=20_000) as member:
            records = await poll(member, 2)
            await anyio.sleep(15)
            assert member.assignment() == {TP}
            await anyio.sleep(10)
            assert member.assignment() == set()
            member.accept(*records)
            assert await member.commit() == {}
            cluster.produce(TOPIC, ["c"])
            assert seen(await poll(member, 1)) == [(b"c", 1)]
            assert member.assignment() == {TP}

    on_cluster(backend, scene)


@BACKENDS
def test_a_caller_inside_a_long_poll_is_not_silent(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async with consumer(cluster, max_poll_interval_ms=20_000) as member:
            assert await member.poll(timeout_ms=60_000) == {}
            assert member.assignment() == {TP}

    on_cluster(backend, scene)
