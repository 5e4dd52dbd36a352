"""Share consumers on Apache Kafka: what is delivered again, and what is not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AsyncShareConsumer, ShareConsumer, ShareRecord, TopicPartition
from kohort.errors import IllegalStateError, RecordDeserializationError, WakeupError
from tests.interop.producers import with_confluent
from tests.support.kafka_server import KafkaServer

pytestmark = pytest.mark.real_kafka

WAIT_MS = 60_000
"""Longest wait for records that come."""
QUIET_MS = 1_500
"""Wait for records that must not come."""


class Queue:
    """A topic that is also the name of its group."""

    def __init__(self, kafka: KafkaServer, partitions: int = 1) -> None:
        self.servers = kafka.bootstrap_servers
        self.name = kafka.create_topic(f"queue-{time.time_ns()}", partitions)

    def put(self, *values: bytes, partition: int = 0) -> None:
        """Produce values, as one batch."""
        pairs = [(b"k", value) for value in values]
        with_confluent(self.servers, self.name, partition, "none", pairs, idempotent="true")

    def options(self, **options: Any) -> dict[str, Any]:
        """Return the options of a consumer of this queue from its beginning."""
        return {
            "bootstrap_servers": self.servers,
            "group_id": self.name,
            "start": "earliest",
            **options,
        }

    def consumer(self, **options: Any) -> ShareConsumer:
        """Return a sync consumer."""
        return ShareConsumer(self.name, **self.options(**options))


@pytest.fixture
def queue(kafka: KafkaServer) -> Callable[..., Queue]:
    def make(partitions: int = 1) -> Queue:
        return Queue(kafka, partitions)

    return make


def flat(
    found: dict[TopicPartition, list[ShareRecord[Any, Any]]],
) -> list[ShareRecord[Any, Any]]:
    return [record for records in found.values() for record in records]


def poll(consumer: ShareConsumer, count: int) -> list[ShareRecord[Any, Any]]:
    """Poll until ``count`` records have come. Only for explicit acknowledgement."""
    found: list[ShareRecord[Any, Any]] = []
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += flat(consumer.poll(timeout_ms=1_000))
    return found


def seen(records: list[ShareRecord[Any, Any]]) -> list[tuple[Any, int]]:
    return [(record.value, record.delivery_count) for record in records]


def test_each_acknowledgement_has_its_effect(queue: Callable[..., Queue]) -> None:
    jobs = queue()
    jobs.put(b"a", b"b", b"c", b"d")
    with jobs.consumer(acknowledgement="explicit") as consumer:
        records = poll(consumer, 4)
        assert seen(records) == [(b"a", 1), (b"b", 1), (b"c", 1), (b"d", 1)]
        assert records[0].lock_deadline - time.monotonic() == pytest.approx(30, abs=10)
        accepted, released, rejected, renewed = records
        consumer.accept(accepted)
        consumer.release(released)
        consumer.reject(rejected)
        before = renewed.lock_deadline
        consumer.renew(renewed)
        assert consumer.commit() == {}
        assert renewed.lock_deadline > before
        with pytest.raises(IllegalStateError, match="acknowledged already"):
            consumer.release(accepted)
        (again,) = poll(consumer, 1)
        assert seen([again]) == [(b"b", 2)]
        consumer.acknowledge(TopicPartition(jobs.name, 0), renewed.offset, "accept")
        consumer.accept(again)
        failures: list[Any] = []
        consumer.commit_async(lambda *result: failures.append(result)).result()
        assert consumer.commit() == {}
        assert failures == [({}, None)]
        assert consumer.held() == 0
        assert consumer.poll(timeout_ms=QUIET_MS) == {}
        assert consumer.assignment() == {TopicPartition(jobs.name, 0)}


def test_the_next_poll_accepts_and_close_releases(queue: Callable[..., Queue]) -> None:
    jobs = queue()
    jobs.put(b"a")
    with jobs.consumer() as consumer:
        assert seen(poll(consumer, 1)) == [(b"a", 1)]
        jobs.put(b"b")
        assert seen(poll(consumer, 1)) == [(b"b", 1)]
    with jobs.consumer() as consumer:
        assert seen(poll(consumer, 1)) == [(b"b", 2)]
        assert consumer.commit() == {}
    with jobs.consumer() as consumer:
        assert consumer.poll(timeout_ms=QUIET_MS) == {}


def test_two_members_share_one_partition(queue: Callable[..., Queue]) -> None:
    jobs = queue()
    jobs.put(*(b"%d" % number for number in range(10)))
    options = {"max_poll_records": 3, "acquire_mode": "record_limit"}
    with jobs.consumer(**options) as one, jobs.consumer(**options) as other:
        first = poll(one, 3)
        second = poll(other, 3)
        assert len(first) == len(second) == 3  # the limit is exact
        values = {record.value for record in first + second}
        assert len(values) == 6


def test_records_that_cannot_be_read_end_by_themselves(queue: Callable[..., Queue]) -> None:
    jobs = queue()
    jobs.put(b"1", b"{", b"3")
    with jobs.consumer(value_deserializer=json.loads, acknowledgement="explicit") as consumer:
        records = poll(consumer, 2)
        assert [record.value for record in records] == [1, 3]
        consumer.accept(*records)
        assert consumer.commit() == {}
        assert consumer.held() == 0
    jobs.put(b"[")
    with jobs.consumer(value_deserializer=json.loads, on_error="raise") as consumer:
        with pytest.raises(RecordDeserializationError, match="it comes again"):
            poll(consumer, 1)


def test_a_wakeup_ends_a_poll(queue: Callable[..., Queue]) -> None:
    jobs = queue()
    with jobs.consumer() as consumer:
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=WAIT_MS)


@pytest.mark.anyio
async def test_an_exception_in_an_iteration_releases_its_record(
    queue: Callable[..., Queue],
) -> None:
    jobs = queue(2)
    jobs.put(b"a", b"b", b"c")
    done = []
    with pytest.raises(ZeroDivisionError):
        async with AsyncShareConsumer(jobs.name, **jobs.options()) as consumer:
            async for record in consumer:
                if record.value == b"b":
                    raise ZeroDivisionError
                done.append(record.value)
    assert done == [b"a"]
    async with AsyncShareConsumer(jobs.name, **jobs.options()) as consumer:
        async for record in consumer:
            done.append(record.value)
            assert record.delivery_count == 2
            if record.value == b"c":
                assert await consumer.commit() == {}
                break
        assert await consumer.poll(timeout_ms=QUIET_MS) == {}
    assert done == [b"a", b"b", b"c"]
