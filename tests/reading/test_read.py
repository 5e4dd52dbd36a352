"""``kohort.read()`` on a cluster: bounds, partitions, progress and errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kohort
from kohort import ReadProgress
from kohort.errors import (
    KafkaTimeoutError,
    NoBrokersAvailable,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kohort.protocol.messages import FindCoordinatorRequest
from kohort.reading import Bounds, Place, find_bounds, read_bounds
from kohort.testing import Cluster, ProducerRecord
from kohort.types import TopicPartition
from tests.broker.raw import Raw
from tests.support.transactor import Transactor

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
COUNT = 120
"""Records in each of three partitions, one a minute."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 3, "empty": 2}) as cluster:
        for minute in range(COUNT):
            at = int((START + timedelta(minutes=minute)).timestamp() * 1000)
            cluster.produce(
                "orders",
                [
                    ProducerRecord(f"{partition}.{minute}", timestamp=at, partition=partition)
                    for partition in range(3)
                ],
            )
        yield cluster


def minutes(cluster: Cluster, **given: Any) -> dict[int, list[int]]:
    """Return the offsets that were read of each partition. An offset is a minute."""
    found: dict[int, list[int]] = {}
    for record in kohort.read("orders", bootstrap_servers=cluster.bootstrap_servers, **given):
        assert record.value == b"%d.%d" % (record.partition, record.offset)
        found.setdefault(record.partition, []).append(record.offset)
    return found


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("earliest", "latest", range(COUNT)),
        (7, 9, range(7, 9)),
        (START + timedelta(minutes=10), START + timedelta(minutes=13), range(10, 13)),
        ("2026-11-01T13:00:30+00:00", "2026-11-01T15:03:00+01:00", range(61, COUNT)),
        ("-1h", "latest", range(0)),
        (timedelta(days=365_0), 2, range(2)),
        (50, 50, range(0)),
        (60, 50, range(0)),
        (110, 10_000, range(110, COUNT)),
    ],
)
@pytest.mark.cases(9)
def test_range_has_exactly_the_records_between_its_bounds(
    cluster: Cluster, since: Place, until: Place, expected: range
) -> None:
    wanted = {partition: list(expected) for partition in range(3)} if expected else {}
    assert minutes(cluster, since=since, until=until) == wanted


def test_mapping_and_partitions_limit_what_is_read(cluster: Cluster) -> None:
    found = minutes(cluster, since={0: 118, 1: 117}, until={1: 118}, partitions=[0, 1])
    assert found == {0: [118, 119], 1: [117]}


def test_end_inside_a_batch_is_exact(cluster: Cluster) -> None:
    cluster.create_topic("batch", 1)
    cluster.produce("batch", [str(number) for number in range(50)])
    table = kohort.read("batch", since=20, until=30, bootstrap_servers=cluster.bootstrap_servers)
    assert [record.offset for record in table] == list(range(20, 30))


def test_progress_reaches_the_total_of_the_range(cluster: Cluster) -> None:
    seen: list[ReadProgress] = []
    minutes(cluster, since=100, progress=seen.append)
    assert seen[-1] == ReadProgress(60, 60, 60)
    assert [each.offsets for each in seen] == sorted(each.offsets for each in seen)


def test_records_produced_during_the_read_are_not_in_it(cluster: Cluster) -> None:
    cluster.create_topic("growing", 1)
    cluster.produce("growing", ["a", "b"])
    with kohort.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        bounds = find_bounds(admin, "growing")
    cluster.produce("growing", ["c"])
    assert bounds == {TopicPartition("growing", 0): Bounds(0, 2)}
    with kohort.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none"
    ) as consumer:
        read = [record.value for part in read_bounds(consumer, bounds) for record in part]
    assert read == [b"a", b"b"]


def test_empty_topic_is_a_table_of_no_rows(cluster: Cluster) -> None:
    table = kohort.read("empty", bootstrap_servers=cluster.bootstrap_servers)
    assert len(table) == 0


def test_committed_range_ends_before_an_open_transaction(cluster: Cluster) -> None:
    given: Any = {"bootstrap_servers": cluster.bootstrap_servers}
    cluster.create_topic("paid", 1)
    cluster.produce("paid", ["a"])
    with Raw(cluster.bootstrap_servers) as raw:
        raw.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["payments"]), 6)
        producer = Transactor(raw, "payments")
        assert producer.init().error_code == 0
        for committed in (True, False):
            producer.write("paid", b"x")
            producer.end(committed=committed)
        producer.write("paid", b"open")
        cluster.produce("paid", ["after"])
        found = {
            level: [record.value for record in kohort.read("paid", isolation_level=level, **given)]
            for level in ("read_committed", "read_uncommitted")
        }
    assert found == {
        "read_committed": [b"a", b"x"],
        "read_uncommitted": [b"a", b"x", b"x", b"open", b"after"],
    }


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"topic": "absent"}, UnknownTopicOrPartitionError, "topic 'absent' does not exist"),
        ({"partitions": [7]}, UnknownTopicOrPartitionError, "has no partition 7"),
        ({"since": {5: 1}}, UnknownTopicOrPartitionError, "has no partition 5"),
        ({"since": "+5"}, ValueError, "is a shift"),
        ({"until": "yesterday"}, ValueError, "no target"),
        ({"isolation_level": "dirty"}, ValueError, "isolation_level"),
    ],
)
@pytest.mark.cases(6)
def test_wrong_argument_is_an_error_that_names_it(
    cluster: Cluster, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    topic = given.pop("topic", "orders")
    with pytest.raises(error, match=text):
        kohort.read(topic, bootstrap_servers=cluster.bootstrap_servers, **given)


def test_deleted_records_are_an_error_and_not_a_gap(cluster: Cluster) -> None:
    cluster.create_topic("short", 1, {"retention.ms": "1000"})
    cluster.produce("short", [ProducerRecord("a", timestamp=0)])
    cluster.produce("short", ["b", "c"])
    cluster.delete_old_records("short")
    with (
        kohort.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none"
        ) as consumer,
        pytest.raises(OffsetOutOfRangeError),
    ):
        list(read_bounds(consumer, {TopicPartition("short", 0): Bounds(0, 3)}))


def test_read_without_progress_ends_with_the_reason(cluster: Cluster) -> None:
    with (
        kohort.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none"
        ) as consumer,
        pytest.raises(KafkaTimeoutError, match="orders-1 stopped at offset 120 of 121"),
    ):
        bounds = {TopicPartition("orders", 1): Bounds(119, 121)}
        list(read_bounds(consumer, bounds, timeout_ms=200))


def test_wrong_address_is_an_error_at_the_timeout() -> None:
    with pytest.raises(NoBrokersAvailable):
        kohort.read("orders", bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=0)
