"""New topics and partitions: consumers read them from the beginning and miss nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest

from kohort import TopicPartition
from kohort.config import ConsumerConfig
from kohort.consumer.engine._positions import FirstPositionRules, TopicBaseline
from kohort.errors import ErrorCode, NoOffsetForPartitionError
from kohort.protocol import Response
from kohort.subscription import NO_ID, OffsetReset, SubscriptionState
from kohort.testing import Call, MemoryCluster
from kohort.transport import ClusterMetadata, PartitionMetadata, TopicMetadata
from kohort.types import OffsetAndMetadata
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LATEST: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 1000}
NEW = [b"new0", b"new1"]
GROUPS = pytest.mark.parametrize("group_id", [None, "g"])


def on_cluster(
    script: Callable[[MemoryCluster], Awaitable[None]], auto_create: bool = False, **topics: int
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics=topics, auto_create_topics=auto_create) as cluster:
            await script(cluster)

    run_virtual(main)


# --- start() ------------------------------------------------------------------------------------


@GROUPS
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("by_hand", [True, False])
def test_nothing_is_missed_after_start(group_id: str | None, exists: bool, by_hand: bool) -> None:
    """The topic exists, or the consumer's request creates it."""

    async def script(cluster: MemoryCluster) -> None:
        if exists:
            cluster.produce("t", ["before"], partition=0)
        one = MemoryConsumer(cluster, group_id=group_id, **LATEST)
        if by_hand:
            one.assign([T0])
        else:
            one.subscribe(["t"])
        async with one:
            assert one.positions() == {T0: 1 if exists else 0}
            cluster.produce("t", NEW, partition=0)
            assert await values(one, 2) == NEW

    on_cluster(script, auto_create=True, **({"t": 1} if exists else {}))


@GROUPS
def test_start_waits_for_a_leader_as_long_as_a_request(group_id: str | None) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async def leaderless(call: Call) -> Response | None:
            response: Any = await call.proceed()
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_id = -1
                    partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            return cast(Response, response)

        rule = cluster.on("Metadata", leaderless, keep=True)
        began = anyio.current_time()
        options = {**LATEST, "request_timeout_ms": 7000}
        async with MemoryConsumer(cluster, "t", group_id=group_id, **options) as one:
            assert 7 <= anyio.current_time() - began < 8
            assert one.positions() == {}
            rule.stop()
            await poll_for(one, one.positions)

    on_cluster(script, t=1)


def test_start_does_not_wait_for_a_topic_that_is_not_created() -> None:
    async def script(cluster: MemoryCluster) -> None:
        began = anyio.current_time()
        async with MemoryConsumer(cluster, "t", allow_auto_create_topics=False, **LATEST):
            assert anyio.current_time() - began < 1

    on_cluster(script, u=1)


def test_start_returns_when_no_position_can_be_found() -> None:
    async def script(cluster: MemoryCluster) -> None:
        began = anyio.current_time()
        async with MemoryConsumer(cluster, "t", auto_offset_reset="none") as one:
            assert anyio.current_time() - began < 1
            with pytest.raises(NoOffsetForPartitionError):
                await one.poll(timeout_ms=100)

    on_cluster(script, t=1)


# --- what appears later -------------------------------------------------------------------------


@GROUPS
@pytest.mark.parametrize("reset", ["latest", "by_duration:PT0S"])
def test_topic_that_appears_later_is_read_from_its_beginning(
    group_id: str | None, reset: str
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        options = {**LATEST, "auto_offset_reset": reset, "group_id": group_id}
        async with MemoryConsumer(cluster, "t", **options) as one:
            cluster.create_topic("t")
            cluster.produce("t", NEW, partition=0)
            found: list[bytes] = []
            while len(found) < 2:
                errors = await poll_until_values(one, found)
                assert len(errors) <= 1  # the error for the missing topic
            assert found == NEW

    on_cluster(script, u=1)


async def poll_until_values(consumer: MemoryConsumer, found: list[bytes]) -> list[Any]:
    errors: list[Any] = []
    try:
        for part in (await consumer.poll(timeout_ms=1000)).values():
            found += [record.value or b"" for record in part]
    except Exception as error:
        errors.append(error)
    return errors


def test_topic_assigned_before_creation_is_read_from_beginning() -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with MemoryConsumer(cluster, **LATEST) as one:
            one.assign([T0])
            errors: list[Any] = []
            found: list[bytes] = []
            async with anyio.create_task_group():
                while not errors:
                    errors += await poll_until_values(one, found)
            cluster.create_topic("t")
            cluster.produce("t", NEW, partition=0)
            while len(found) < 2:
                await poll_until_values(one, found)
            assert found == NEW

    on_cluster(script, u=1)


@GROUPS
@pytest.mark.parametrize("pattern", [True, False])
def test_partitions_that_are_added_are_read_from_their_beginning(
    group_id: str | None, pattern: bool
) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", ["before"], partition=0)
        one = MemoryConsumer(cluster, group_id=group_id, **LATEST)
        one.subscribe(**({"pattern": "t.*"} if pattern else {"topics": ["t"]}))
        async with one:
            await poll_for(one, one.positions)
            cluster.add_partitions("t", 2)
            cluster.create_topic("t2")
            cluster.produce("t", NEW, partition=1)
            cluster.produce("t2", ["two"], partition=0)
            found = await values(one, 3 if pattern else 2)
            assert sorted(found) == sorted([*NEW, *([b"two"] if pattern else [])])

    on_cluster(script, t=1)


@pytest.mark.parametrize("option", ["auto_offset_reset", "latest"])
def test_option_has_new_partitions_start_as_kafka_does(option: str) -> None:
    async def script(cluster: MemoryCluster) -> None:
        options = {**LATEST, "auto_offset_reset_new_partitions": option}
        async with MemoryConsumer(cluster, "t", **options) as one:
            cluster.add_partitions("t", 2)
            cluster.produce("t", NEW, partition=1)
            await poll_for(one, lambda: len(one.positions()) == 2)
            assert one.positions() == {T0: 0, T1: 2}

    on_cluster(script, t=1)


def test_each_consumer_goes_by_what_its_metadata_saw() -> None:
    """A partition that existed when the second consumer started is not new to it."""

    async def script(cluster: MemoryCluster) -> None:
        async with MemoryConsumer(cluster, "t", group_id="a", **LATEST) as first:
            cluster.add_partitions("t", 2)
            cluster.produce("t", NEW, partition=1)
            async with MemoryConsumer(cluster, "t", group_id="b", **LATEST) as second:
                assert second.positions() == {T0: 0, T1: 2}
            assert await values(first, 2) == NEW

    on_cluster(script, t=1)


def test_committed_offset_and_seek_override_new_partition_rule() -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with MemoryConsumer(cluster, "t", enable_auto_commit=False, **LATEST) as one:
            cluster.add_partitions("t", 2)
            cluster.produce("t", NEW, partition=1)
            async with MemoryConsumer(cluster, group_id="other") as other:
                other.assign([T1])
                assert await values(other, 2) == NEW
            await poll_for(one, lambda: T1 in one.positions())
            await one.commit({T1: OffsetAndMetadata(1)})
            await one.unsubscribe()
            one.subscribe(["t"])
            assert await values(one, 1) == NEW[1:]
            one.seek(T1, 0)
            assert await values(one, 2) == NEW

    on_cluster(script, t=1)


def test_subscribing_again_begins_another_baseline() -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with MemoryConsumer(cluster, "t", **LATEST, enable_auto_commit=False) as one:
            await one.unsubscribe()
            cluster.add_partitions("t", 2)
            cluster.produce("t", NEW, partition=1)
            await anyio.sleep(2)
            one.subscribe(["u"])
            await one.poll(timeout_ms=3000)
            one.subscribe(["t"])
            await poll_for(one, lambda: len(one.positions()) == 2)
            assert one.positions() == {T0: 0, T1: 2}

    on_cluster(script, t=1, u=1)


# --- the baseline -------------------------------------------------------------------------------


def snapshot(epochs: list[int] | None, topic_id: bytes = b"a" * 16, error: int = 0) -> Any:
    partitions = {n: PartitionMetadata(1, epoch) for n, epoch in enumerate(epochs or [])}
    topic = TopicMetadata(
        "t", topic_id if partitions else NO_ID, partitions=partitions, error=error
    )
    return ClusterMetadata(topics={"t": topic})


def missing() -> ClusterMetadata:
    return cast(ClusterMetadata, snapshot(None, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


@pytest.mark.parametrize(
    ("answers", "new"),
    [
        ([snapshot([0])], False),
        ([missing(), snapshot([0])], True),
        ([missing(), snapshot([3])], False),  # a broker that does not know the topic yet
        ([missing(), missing(), missing(), snapshot([3])], True),
        ([snapshot([1]), snapshot([1], b"b" * 16)], True),
        ([snapshot(None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), snapshot([0])], False),
        ([snapshot(None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)], None),
        ([], None),
    ],
)
def test_partition_is_new_when_it_was_not_there_at_first(
    answers: list[ClusterMetadata], new: bool | None
) -> None:
    baseline = TopicBaseline()
    topic_id = NO_ID
    for answer in answers:
        baseline.observe(answer, {"t"})
        topic_id = answer.topics["t"].topic_id
    assert baseline.is_new(T0, topic_id) is new


@pytest.mark.parametrize(
    ("general", "of_new", "expected"),
    [
        ("latest", None, "earliest"),
        ("earliest", None, "earliest"),
        ("none", None, "none"),
        ("none", "earliest", "earliest"),
        ("latest", "auto_offset_reset", "latest"),
        ("latest", "none", "none"),
    ],
)
def test_rule_for_new_partitions_follows_its_option(
    general: str, of_new: str | None, expected: str
) -> None:
    config = ConsumerConfig.from_kwargs(
        auto_offset_reset=general, auto_offset_reset_new_partitions=of_new
    )
    rules = FirstPositionRules(SubscriptionState(OffsetReset.from_option(general)), config.fetch)
    rules.baseline.observe(missing(), {"t"})
    rules.baseline.observe(snapshot([0]), {"t"})
    rule = rules.rule_for(T0)
    assert rule is not None and rule.value == expected
