"""Commits of KafkaConsumer: automatic ones, asynchronous ones, and their limits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from kohort import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.errors import CommitFailedError, KafkaTimeoutError
from kohort.testing import Cluster
from tests.consumer.conftest import CLASSIC, MakeConsumer
from tests.consumer.kit import committed, poll_until, read


@pytest.fixture
def tp(cluster: Cluster, topic: str) -> TopicPartition:
    cluster.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    return TopicPartition(topic, 0)


def test_automatic_commits_follow_at_their_interval(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    consumer = make(tp.topic, group_id=group, auto_commit_interval_ms=20, max_poll_records=4)
    read(consumer, 4)
    poll_until(consumer, lambda: committed(cluster, group, tp) == 10)


def test_records_of_the_latest_poll_are_not_auto_committed(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    consumer = make(tp.topic, group_id=group, auto_commit_interval_ms=10, max_poll_records=4)
    assert len(read(consumer, 4)) == 4
    before = heartbeats(cluster)
    cluster.wait_until(lambda: heartbeats(cluster) > before + 1)
    assert committed(cluster, group, tp) in (None, 0)
    assert len(consumer.poll(1_000)[tp]) == 4
    cluster.wait_until(lambda: committed(cluster, group, tp) == 4)


def heartbeats(cluster: Cluster) -> int:
    return sum(request.api == "ConsumerGroupHeartbeat" for request in cluster.requests)


def test_close_commits_what_was_returned(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    consumer = make(tp.topic, group_id=group)
    read(consumer, 10)
    consumer.close()
    assert committed(cluster, group, tp) == 10


def test_block_that_raises_commits_nothing_without_auto_commit(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        make(tp.topic, group_id=group, enable_auto_commit=False) as consumer,
    ):
        for record in consumer:
            if record.offset == 7:
                raise ZeroDivisionError
    assert committed(cluster, group, tp) is None


def test_a_commit_without_waiting_is_done_by_close(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    called: list[Any] = []
    consumer = make(tp.topic, group_id=group, enable_auto_commit=False)
    read(consumer, 10)
    future = consumer.commit_async(callback=lambda *arguments: called.append(arguments))
    assert isinstance(future, Future)
    consumer.close()
    assert future.result(0) is None
    assert called == [({tp: OffsetAndMetadata(10, "", 0), TopicPartition(tp.topic, 1): ANY}, None)]
    assert committed(cluster, group, tp) == 10


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANY: Any = _Any()


def test_commit_callbacks_run_in_callers_thread_at_next_call(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    called: list[tuple[int, Any, threading.Thread]] = []

    def note(offsets: Any, error: Any) -> None:  # the leader epoch may be known by then
        called.append((offsets[tp].offset, error, threading.current_thread()))
        raise ValueError("it goes to the log, and no further")

    consumer = make(group_id=group, default_offset_commit_callback=note)
    consumer.assign([tp])
    consumer.commit_async({tp: 3}).result(60)
    assert called == []
    consumer.poll()
    assert called == [(3, None, threading.current_thread())]
    consumer.commit_async({tp: 4}).result(60)
    consumer.commit({tp: 5})
    assert len(called) == 2
    mine: list[Any] = []
    consumer.commit_async({tp: 6}, lambda *arguments: mine.append(arguments)).result(60)
    consumer.poll()
    assert [(offsets[tp].offset, error) for offsets, error in mine] == [(6, None)]
    assert len(called) == 2


def test_a_failed_commit_is_told_to_the_callback(
    tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    called: list[Any] = []
    consumer = make(tp.topic, group_id=group)
    poll_until(consumer, consumer.assignment)
    foreign = TopicPartition("elsewhere", 0)
    future = consumer.commit_async({foreign: 1}, lambda *arguments: called.append(arguments))
    assert isinstance(future.exception(10), CommitFailedError)
    consumer.poll()
    ((offsets, error),) = called
    assert offsets == {foreign: OffsetAndMetadata(1)}
    assert isinstance(error, CommitFailedError)


def test_a_cancelled_commit_calls_nobody(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    called: list[Any] = []
    consumer = make(group_id=group)
    consumer.assign([tp])
    consumer.topics()
    for _ in range(20):
        future = consumer.commit_async({tp: 1}, lambda *arguments: called.append(arguments))
        if not future.cancel():
            assert future.exception(10) is None
            called.pop() if called else consumer.poll()
            called.clear()
    consumer.poll()
    assert called == []


def test_a_commit_is_bounded(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    consumer = make(group_id=group)
    consumer.assign([tp])
    consumer.commit({tp: 1})
    with cluster.network_partition(), pytest.raises(KafkaTimeoutError):
        consumer.commit({tp: 2}, timeout_ms=50)


def test_offsets_of_a_partition_that_came_back_are_not_set_back(
    cluster: Cluster, tp: TopicPartition, group: str, make: MakeConsumer
) -> None:
    """Revoked at 4, moved to 10 by others, reassigned and revoked again within one poll()."""
    options = {**CLASSIC, "auto_commit_interval_ms": 10, "max_poll_records": 4}
    consumer = make(tp.topic, group_id=group, **options)
    read(consumer, 4)
    consumer.pause(tp, TopicPartition(tp.topic, 1))
    consumer.poll()

    class MoveOn(ConsumerRebalanceListener):
        times = 0

        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            self.times += 1
            if self.times == 1:
                consumer.commit({tp: 10})
                rejoin(consumer)

    listener = MoveOn()
    consumer.subscribe([tp.topic], listener=listener)
    rejoin(consumer)
    poll_until(consumer, lambda: listener.times == 2)
    assert committed(cluster, group, tp) == 10
    assert consumer.position(tp) == 10


def rejoin(consumer: KafkaConsumer) -> None:
    """Start a rebalance without waiting for it."""

    async def request() -> None:
        assert consumer._driver.engine.coordinator is not None
        consumer._driver.engine.coordinator.request_rejoin("a test requests it")

    consumer._driver.call_engine(request, 10.0)
