"""The contents of a consumer's fetch requests, and the handling of the responses."""

from __future__ import annotations

import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode
from kohort.protocol.messages import FetchRequest
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

T0 = TopicPartition("t", 0)


def fetches(cluster: MemoryCluster, since: int = 0) -> list[tuple[int, FetchRequest]]:
    """Return the fetch requests after the first ``since``, with their versions."""
    found = []
    for request in cluster.requests:
        if request.api == "Fetch":
            assert isinstance(request.message, FetchRequest)
            found.append((request.version, request.message))
    return found[since:]


def named(request: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def test_topics_are_told_by_their_ids_and_only_once() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2, "u": 6}) as cluster:
            async with MemoryConsumer(
                cluster, "t", "u", group_id=None, fetch_pace_ms=0
            ) as consumer:
                for round in range(20):
                    cluster.produce("t", [b"%d" % round], partition=round % 2)
                    assert await values(consumer, 1) == [b"%d" % round]
            sent = fetches(cluster)
            assert {version for version, _ in sent} == {18}
            assert all(any(topic.topic_id) for _, each in sent for topic in each.topics)
            full = [each for _, each in sent if each.session_epoch == 0]
            assert 1 <= len(full) <= 2, "one full fetch per connection"
            later = [each for _, each in sent if each.session_epoch > 0]
            assert len(later) >= 20
            assert sum(map(named, later)) <= 2 * len(later)

    run_virtual(main)


def test_without_sessions_each_fetch_has_everything() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"u": 6}) as cluster:
            async with MemoryConsumer(
                cluster, "u", group_id=None, enable_incremental_fetch_sessions=False
            ) as consumer:
                await consumer.poll(timeout_ms=3_000)
            assert {(each.session_epoch, named(each)) for _, each in fetches(cluster)} == {(-1, 6)}

    run_virtual(main)


def test_partitions_with_nothing_new_are_well() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a"], partition=0)
            async with MemoryConsumer(
                cluster, "t", group_id=None, fetch_max_wait_ms=500
            ) as consumer:
                await values(consumer, 1)
                with cluster.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1):
                    await consumer.poll(timeout_ms=5_000)
                await consumer.poll(timeout_ms=5_000)
                facts = consumer.explain().as_dict()["partitions"]
                for name, end in (("t-0", 1), ("t-1", 0)):
                    assert facts[name]["last_error"] is None
                    assert facts[name]["high_watermark"] == end
                    assert (facts[name]["last_fetch_seconds_ago"] or 0) < 1
                consumer.seek(T0, 0)
                assert await values(consumer, 1) == [b"a"]

    run_virtual(main)


def test_restarted_broker_gets_a_full_fetch_in_a_new_session() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                await consumer.poll(timeout_ms=3_000)
                since = len(fetches(cluster))
                cluster.kill_broker(1)
                cluster.start_broker(1)
                cluster.produce("t", ["a"], partition=1)
                assert await values(consumer, 1) == [b"a"]
                _, first = fetches(cluster, since)[0]
                assert (first.session_epoch, named(first)) == (0, 2)

    run_virtual(main)


def test_a_session_that_the_broker_dropped_costs_one_answer() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(
                cluster, "t", group_id=None, fetch_max_wait_ms=500
            ) as consumer:
                await consumer.poll(timeout_ms=3_000)
                for code in ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"):
                    since = len(fetches(cluster))
                    with cluster.fail("Fetch", ErrorCode[code], times=1) as fault:
                        await consumer.poll(timeout_ms=2_000)
                        assert fault.hits == 1
                    epochs = [each.session_epoch for _, each in fetches(cluster, since)]
                    assert epochs.count(0) == 1
                    assert epochs[-1] > 0

    run_virtual(main)


@pytest.mark.parametrize("group", [None, "g"])
def test_closing_ends_the_sessions(group: str | None) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=3, topics={"t": 6}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=group) as consumer:
                for round in range(4):
                    for partition in range(6):
                        cluster.produce("t", [b"%d" % round], partition=partition)
                    await values(consumer, 6)
                    await consumer.poll(timeout_ms=100)
                assert sessions(cluster) >= 3
            assert sessions(cluster) == 0

    run_virtual(main)


def sessions(cluster: MemoryCluster) -> int:
    """Return the number of sessions that the brokers keep."""
    assert cluster._server is not None
    return sum(len(broker.fetch_sessions) for broker in cluster._server.brokers.values())


def test_a_topic_that_is_made_anew_is_read_under_its_new_id() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            async with MemoryConsumer(
                cluster, "t", group_id=None, metadata_max_age_ms=3_600_000
            ) as consumer:
                assert await values(consumer, 2) == [b"a", b"b"]
                cluster.delete_topic("t")
                cluster.create_topic("t", 1)
                cluster.produce("t", ["c"])
                # Offset 2 is out of range in the new topic.
                assert await values(consumer, 1) == [b"c"]
                assert await poll_for(consumer, lambda: consumer.highwater(T0) == 1) == []

    run_virtual(main)
