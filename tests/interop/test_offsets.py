"""Positions and committed offsets of kohort on both clusters."""

from __future__ import annotations

from collections.abc import Callable

import kafka
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

import kohort
from kohort import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from tests.interop.brokers import QUIET, TIMEOUT_S, Broker
from tests.interop.reading import consumer, idle, join, read
from tests.interop.waiting import wait_until

Unique = Callable[[str], str]
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def ten(broker: Broker, unique: Unique) -> TopicPartition:
    """Partition of ten records, "0" to "9", a second apart."""
    topic = broker.create_topic(unique("ten"))
    for n in range(10):
        broker.write(topic, b"%d" % n, timestamp=FIRST_MS + 1000 * n)
    return TopicPartition(topic, 0)


def test_seek_moves_the_position_both_ways(broker: Broker, ten: TopicPartition) -> None:
    with consumer(broker.bootstrap_servers) as reader:
        reader.assign([ten])
        assert [r.value for r in read(reader, 10)] == [b"%d" % n for n in range(10)]
        reader.seek(ten, 3)
        assert reader.position(ten) == 3
        assert [r.offset for r in read(reader, 7)] == [3, 4, 5, 6, 7, 8, 9]
        reader.seek_to_beginning()
        assert read(reader, 10)[0].offset == 0
        reader.seek_to_end(ten)
        assert reader.position(ten) == 10
        broker.write(ten.topic, b"ten")
        assert [r.value for r in read(reader, 1)] == [b"ten"]


def test_max_poll_records_bounds_a_poll(broker: Broker, ten: TopicPartition) -> None:
    with consumer(broker.bootstrap_servers, max_poll_records=4) as reader:
        reader.assign([ten])
        sizes: list[int] = []
        while sum(sizes) < 10:
            sizes += [len(some) for some in reader.poll(timeout_ms=1000).values()]
        assert sizes == [4, 4, 2]


def test_a_partition_is_paused_and_resumed(broker: Broker, ten: TopicPartition) -> None:
    with consumer(broker.bootstrap_servers, max_poll_records=1) as reader:
        reader.assign([ten])
        read(reader, 1)
        reader.pause(ten)
        assert reader.poll(timeout_ms=200) == {}
        reader.resume(ten)
        assert [r.offset for r in read(reader, 1)] == [1]


def test_ends_and_times_are_looked_up(broker: Broker, ten: TopicPartition) -> None:
    with consumer(broker.bootstrap_servers) as reader:
        assert reader.beginning_offsets([ten]) == {ten: 0}
        assert reader.end_offsets([ten]) == {ten: 10}
        assert reader.topics() >= {ten.topic}
        assert reader.partitions_for_topic(ten.topic) == {0}
        for at, offset in ((FIRST_MS, 0), (FIRST_MS + 1, 1), (FIRST_MS + 4000, 4)):
            found = reader.offsets_for_times({ten: at})[ten]
            assert found == OffsetAndTimestamp(offset, FIRST_MS + 1000 * offset, 0)
        assert reader.offsets_for_times({ten: FIRST_MS + 9001}) == {ten: None}


def test_deleted_records_move_the_beginning(broker: Broker, ten: TopicPartition) -> None:
    broker.delete_records(ten.topic, 0, before=6)
    with consumer(broker.bootstrap_servers) as reader:
        assert reader.beginning_offsets([ten]) == {ten: 6}
        reader.assign([ten])
        assert [r.offset for r in read(reader, 4)] == [6, 7, 8, 9]
        reader.seek(ten, 2)  # out of range, so reset to the earliest
        assert [r.offset for r in read(reader, 4)] == [6, 7, 8, 9]
    with consumer(broker.bootstrap_servers, auto_offset_reset="latest") as reader:
        reader.assign([ten])
        reader.seek(ten, 2)
        assert reader.poll(timeout_ms=200) == {}
        assert reader.position(ten) == 10


def test_missing_offset_without_reset_raises_and_seek_continues(
    broker: Broker, ten: TopicPartition, unique: Unique
) -> None:
    broker.delete_records(ten.topic, 0, before=6)
    options = {"auto_offset_reset": "none", "group_id": unique("none")}
    with consumer(broker.bootstrap_servers, **options) as reader:
        reader.assign([ten])
        with pytest.raises(NoOffsetForPartitionError) as caught:
            reader.poll(timeout_ms=5000)
        assert caught.value.topic_partition == ten
        reader.seek(ten, 2)
        with pytest.raises(OffsetOutOfRangeError, match=f"{ten.topic}-0 at offset 2"):
            reader.poll(timeout_ms=5000)
        reader.seek(ten, 8)
        assert [r.offset for r in read(reader, 2)] == [8, 9]


def test_latest_starts_behind_what_is_there(
    broker: Broker, ten: TopicPartition, unique: Unique
) -> None:
    options = {"auto_offset_reset": "latest", "group_id": unique("latest")}
    with consumer(broker.bootstrap_servers, ten.topic, **options) as reader:
        join(reader, sizes=(1,))
        assert reader.position(ten) == 10
        broker.write(ten.topic, b"new")
        assert [r.value for r in read(reader, 1)] == [b"new"]


def test_a_duration_starts_at_what_is_young_enough_or_behind_all(
    broker: Broker, ten: TopicPartition
) -> None:
    """The timestamps of the ten records are in 2023."""
    with consumer(broker.bootstrap_servers, auto_offset_reset="by_duration:P36500D") as reader:
        reader.assign([ten])
        assert [r.offset for r in read(reader, 10)] == list(range(10))
    with consumer(broker.bootstrap_servers, auto_offset_reset="by_duration:P1D") as reader:
        reader.assign([ten])
        assert reader.position(ten) == 10
        broker.write(ten.topic, b"new")
        assert [r.value for r in read(reader, 1)] == [b"new"]


def test_what_is_committed_is_seen_by_another_client_and_back(
    broker: Broker, ten: TopicPartition, unique: Unique
) -> None:
    group = unique("committed")
    with consumer(broker.bootstrap_servers, group_id=group, max_poll_records=4) as reader:
        reader.assign([ten])
        assert reader.committed(ten) is None
        read(reader, 4)
        reader.commit()
        assert reader.committed(ten) == 4
        reader.commit({ten: OffsetAndMetadata(5, "half way", 0)})
        assert reader.committed(ten, metadata=True) == OffsetAndMetadata(5, "half way", 0)

        theirs = kafka.TopicPartition(*ten)
        with kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=group, enable_auto_commit=False
        ) as other:
            other.assign([theirs])
            assert other.committed(theirs, metadata=True) == (5, "half way", 0)
            other.commit({theirs: kafka.OffsetAndMetadata(7, "further", -1)})
        assert reader.committed(ten, metadata=True) == OffsetAndMetadata(7, "further", -1)
    with consumer(broker.bootstrap_servers, ten.topic, group_id=group) as reader:
        assert [r.offset for r in read(reader, 3)] == [7, 8, 9]


@pytest.mark.parametrize("commit", ["by itself", "told not to", "after an error"])
def test_closing_commits_what_was_returned_unless_it_should_not(
    broker: Broker, ten: TopicPartition, unique: Unique, commit: str
) -> None:
    group = unique("closing")
    options = {"group_id": group, "enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
    reader = consumer(broker.bootstrap_servers, ten.topic, max_poll_records=4, **options)
    if commit == "after an error":
        with pytest.raises(ZeroDivisionError), reader:
            read(reader, 4)
            raise ZeroDivisionError
    else:
        read(reader, 4)
        reader.close(autocommit=commit == "by itself")
    # After an error the start position may be committed: everything before it was processed.
    allowed = {"by itself": [{tuple(ten): 4}], "after an error": [{}, {tuple(ten): 0}]}
    assert broker.committed(group) in allowed.get(commit, [{}])


def test_commits_happen_on_the_way(broker: Broker, ten: TopicPartition, unique: Unique) -> None:
    group = unique("on-the-way")
    options = {"group_id": group, "enable_auto_commit": True, "auto_commit_interval_ms": 50}
    with consumer(broker.bootstrap_servers, ten.topic, max_poll_records=6, **options) as reader:
        read(reader, 6)
        read(reader, 4)
        # Only a poll marks the records returned before as processed.
        wait_until(lambda: broker.committed(group) == {tuple(ten): 10}, idle(reader))


def test_a_commit_that_is_not_waited_for_calls_back(
    broker: Broker, ten: TopicPartition, unique: Unique
) -> None:
    group, heard = unique("callback"), []
    with consumer(broker.bootstrap_servers, ten.topic, group_id=group) as reader:
        read(reader, 10)
        offsets = {ten: OffsetAndMetadata(10, "", 0)}
        future = reader.commit_async(callback=lambda *what: heard.append(what))
        wait_until(lambda: heard, idle(reader))
        assert future.result() is None
    assert heard == [(offsets, None)]
    assert broker.committed(group) == {tuple(ten): 10}


def test_iteration_ends_when_nothing_comes(
    broker: Broker, ten: TopicPartition, unique: Unique
) -> None:
    group = unique("iterated")
    options = {"group_id": group, "enable_auto_commit": True, "consumer_timeout_ms": 5_000}
    with consumer(broker.bootstrap_servers, ten.topic, **options) as reader:
        for record in reader:
            if record.offset == 3:
                break
    assert broker.committed(group) == {tuple(ten): 4}
    with consumer(broker.bootstrap_servers, ten.topic, **options) as reader:
        assert [record.offset for record in reader] == [4, 5, 6, 7, 8, 9]
    assert broker.committed(group) == {tuple(ten): 10}


def test_a_record_larger_than_the_fetch_is_read(broker: Broker, unique: Unique) -> None:
    topic = broker.create_topic(unique("large"))
    large = bytes(range(256)) * 1024
    for value in (b"small", large, b"after"):
        broker.write(topic, value)
    limits = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000}
    with consumer(broker.bootstrap_servers, **limits) as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert [r.value for r in read(reader, 3)] == [b"small", large, b"after"]


def test_keys_values_headers_and_times_arrive_as_they_were_sent(
    broker: Broker, unique: Unique
) -> None:
    topic = broker.create_topic(unique("whole"))
    headers = [("a", b"1"), ("a", b""), ("b", None)]
    broker.write(topic, b"value", key=b"key", headers=headers, timestamp=FIRST_MS)
    broker.write(topic, None, key=b"", timestamp=FIRST_MS + 1)
    broker.write(topic, b"", timestamp=FIRST_MS + 2)
    with consumer(broker.bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0)])
        first, second, third = read(reader, 3)
    assert (first.key, first.value, first.headers) == (b"key", b"value", tuple(headers))
    assert (first.timestamp, first.timestamp_type, first.offset) == (FIRST_MS, 0, 0)
    assert (second.key, second.value, second.headers) == (b"", None, ())
    assert (third.key, third.value) == (None, b"")


def test_a_topic_may_have_the_brokers_times(broker: Broker, unique: Unique) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    topic = broker.create_topic(unique("append-time"), 1, config)
    broker.write(topic, b"value", timestamp=FIRST_MS)
    with consumer(broker.bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0)])
        (record,) = read(reader, 1)
        assert record.timestamp_type == 1
        assert record.timestamp > FIRST_MS
        partition = TopicPartition(topic, 0)
        found = reader.offsets_for_times({partition: record.timestamp})[partition]
        assert found == OffsetAndTimestamp(0, record.timestamp, 0)


@pytest.mark.anyio
async def test_the_asynchronous_face_reads_seeks_and_commits(
    broker: Broker, ten: TopicPartition, unique: Unique
) -> None:
    async with kohort.AsyncKafkaConsumer(
        ten.topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=unique("async"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as reader:
        values = [(await anext(reader)).value for _ in range(4)]
        assert values == [b"0", b"1", b"2", b"3"]
        await reader.commit()
        assert await reader.committed(ten) == 4
        async for record in reader:
            if record.offset == 7:
                break
        assert await reader.position(ten) == 8
        assert await reader.seek_to_committed() == {ten: 4}
        assert (await anext(reader)).offset == 4
        reader.seek_to_end(ten)
        assert await reader.position(ten) == 10
        reader.seek_to_beginning()
        records = await reader.poll(5000, partitions=[ten])
        assert records[ten][0].offset == 0
        assert await reader.end_offsets([ten]) == {ten: 10}
        found = await reader.offsets_for_times({ten: FIRST_MS + 2000})
        assert found == {ten: OffsetAndTimestamp(2, FIRST_MS + 2000, 0)}


def test_offsets_are_those_that_another_client_looks_up(
    broker: Broker, ten: TopicPartition
) -> None:
    broker.delete_records(ten.topic, 0, before=3)
    partition = TheirPartition(*ten)
    other = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"} | QUIET)
    beginning, end = other.get_watermark_offsets(partition, TIMEOUT_S)
    asked = TheirPartition(*ten, FIRST_MS + 4500)
    (at_time,) = other.offsets_for_times([asked], TIMEOUT_S)
    other.close()
    with consumer(broker.bootstrap_servers) as reader:
        found = reader.offsets_for_times({ten: FIRST_MS + 4500})[ten]
        assert found is not None
        ours = [reader.beginning_offsets([ten])[ten], found.offset, reader.end_offsets([ten])[ten]]
    assert ours == [beginning, at_time.offset, end] == [3, 5, 10]
