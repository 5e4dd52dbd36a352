"""Look-ups of offsets by timestamp."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kohort.config import FetchConfig
from kohort.errors import (
    ErrorCode,
    KafkaConnectionError,
    KafkaTimeoutError,
    OffsetsTimeoutError,
    TopicAuthorizationFailedError,
)
from kohort.fetcher import EARLIEST, LATEST, OffsetLookup
from kohort.protocol.messages import ListOffsetsResponse
from kohort.transport import Leader, TopicMetadata
from kohort.types import OffsetAndTimestamp
from tests.fetcher.fake import QUICK, FakeCluster
from tests.fetcher.making import T0, T1, T2

pytestmark = pytest.mark.anyio


def cluster_of_two() -> FakeCluster:
    """Return t-0 and t-2 on broker 1, t-1 on broker 2, with offsets 3 to 50."""
    cluster = FakeCluster()
    for tp, node in ((T0, 1), (T1, 2), (T2, 1)):
        log = cluster.add(tp, node)
        log.start, log.end, log.stable = 3, 50, 40
    return cluster


def looking(cluster: FakeCluster, **options: Any) -> OffsetLookup:
    return OffsetLookup(cluster, FetchConfig(**{**QUICK, **options}), rng=random.Random(1))


async def test_the_leaders_are_asked_once_each() -> None:
    cluster = cluster_of_two()
    wanted = {T0: EARLIEST, T1: LATEST, T2: 1007}
    found = await looking(cluster).list_offsets(wanted, timeout=5)
    assert found == {
        T0: OffsetAndTimestamp(3, -1, 5),
        T1: OffsetAndTimestamp(50, -1, 5),
        T2: OffsetAndTimestamp(7, 1007, 5),
    }
    assert sorted(node for node, _ in cluster.lookups) == [1, 2]
    request = cluster.lookups[0][1]
    assert request.replica_id == -1
    assert request.topics[0].partitions[0].current_leader_epoch == 5


async def test_a_timestamp_behind_the_last_record_has_no_offset() -> None:
    assert await looking(cluster_of_two()).list_offsets({T0: 9999}, timeout=5) == {T0: None}


async def test_nothing_asked_is_nothing_sent() -> None:
    cluster = cluster_of_two()
    assert await looking(cluster).list_offsets({}, timeout=5) == {}
    assert cluster.lookups == []


async def test_read_committed_asks_for_the_last_stable_offset() -> None:
    lookup = looking(cluster_of_two(), isolation_level="read_committed")
    found = await lookup.list_offsets({T0: LATEST}, timeout=5)
    assert found == {T0: OffsetAndTimestamp(40, -1, 5)}


async def test_errors_that_pass_are_retried_for_their_partitions_alone() -> None:
    cluster = cluster_of_two()
    cluster.logs[T0].codes.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
    found = await looking(cluster).list_offsets({T0: LATEST, T2: LATEST}, timeout=5)
    assert found.keys() == {T0, T2}
    assert cluster.refreshes == 2
    asked = [len(request.topics[0].partitions) for _, request in cluster.lookups]
    assert asked == [2, 1, 1]


async def test_a_partition_that_moves_is_asked_for_at_its_new_leader() -> None:
    cluster = cluster_of_two()

    def move() -> None:
        cluster.leaders[T0] = Leader(2, 6)

    cluster.on_refresh = move
    cluster.scripts.append(lambda node, request: KafkaConnectionError("gone"))
    found = await looking(cluster).list_offsets({T0: LATEST}, timeout=5)
    assert found == {T0: OffsetAndTimestamp(50, -1, 5)}
    assert [node for node, _ in cluster.lookups] == [1, 2]


async def test_metadata_of_unknown_topics_is_asked_for() -> None:
    cluster = cluster_of_two()
    leader = cluster.leaders.pop(T0)
    cluster.on_refresh = lambda: cluster.leaders.update({T0: leader})
    assert (await looking(cluster).list_offsets({T0: LATEST}, timeout=5)).keys() == {T0}
    assert cluster.known_topics_asked == [frozenset({"t"})]


async def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    cluster = cluster_of_two()
    cluster.logs[T0].codes.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
        await looking(cluster).list_offsets({T0: LATEST, T1: LATEST}, timeout=5)


async def test_the_time_is_kept_and_the_last_error_told() -> None:
    cluster = cluster_of_two()
    cluster.logs[T0].codes.extend([ErrorCode.LEADER_NOT_AVAILABLE] * 1000)
    start = anyio.current_time()
    with pytest.raises(KafkaTimeoutError, match=r"t-0.*LEADER_NOT_AVAILABLE"):
        await looking(cluster).list_offsets({T0: LATEST, T1: LATEST}, timeout=0.2)
    assert anyio.current_time() - start >= 0.2
    assert len(cluster.lookups) <= 20


async def test_what_came_in_time_is_in_the_error() -> None:
    cluster = cluster_of_two()
    cluster.logs[T0].codes.extend([ErrorCode.LEADER_NOT_AVAILABLE] * 1000)
    with pytest.raises(OffsetsTimeoutError) as caught:
        await looking(cluster).list_offsets({T0: LATEST, T1: LATEST}, timeout=0.2)
    assert caught.value.found == {T1: OffsetAndTimestamp(50, -1, 5)}


async def test_timeout_error_has_found_offsets_when_a_broker_is_silent() -> None:
    cluster = cluster_of_two()
    cluster.silent.add(1)
    with pytest.raises(OffsetsTimeoutError, match="t-0, t-2") as caught:
        await looking(cluster).list_offsets({T0: LATEST, T1: LATEST, T2: LATEST}, timeout=0.2)
    assert caught.value.found == {T1: OffsetAndTimestamp(50, -1, 5)}


async def test_an_answer_that_leaves_a_partition_out_is_asked_again() -> None:
    cluster = cluster_of_two()
    cluster.scripts.append(lambda node, request: ListOffsetsResponse())
    assert (await looking(cluster).list_offsets({T0: LATEST}, timeout=5)).keys() == {T0}
    assert len(cluster.lookups) == 2


async def test_response_that_always_leaves_a_partition_out_is_named() -> None:
    cluster = cluster_of_two()
    cluster.scripts.extend([lambda node, request: ListOffsetsResponse()] * 1000)
    with pytest.raises(OffsetsTimeoutError, match="the response to ListOffsets leaves out t-0"):
        await looking(cluster).list_offsets({T0: LATEST}, timeout=0.2)


async def test_a_topic_that_may_not_be_used_is_told_at_once() -> None:
    cluster = cluster_of_two()
    cluster.leaders.clear()
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.topics["t"] = TopicMetadata("t", error=code)
    with pytest.raises(TopicAuthorizationFailedError):
        await looking(cluster).list_offsets({T0: LATEST}, timeout=5)


async def test_a_topic_that_does_not_exist_is_waited_for_and_named() -> None:
    cluster = cluster_of_two()
    cluster.leaders.clear()
    cluster.topics["t"] = TopicMetadata("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await looking(cluster).list_offsets({T0: LATEST}, timeout=0.05)
