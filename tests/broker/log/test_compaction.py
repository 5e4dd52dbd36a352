"""Compaction: the records that stay, and the batches that hold them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio
from trio.testing import MockClock

from kohort.broker.log import Marker, PartitionLog
from kohort.errors import IllegalStateError
from kohort.records import (
    Compression,
    ControlType,
    NewRecord,
    RecordBatch,
    control_type,
    encode_batch,
    split_batches,
)
from kohort.testing import Cluster, MemoryCluster
from tests.broker.partition_requests import fetch
from tests.broker.raw import Raw, join

RETENTION = 1_000


def record(key: str | None, value: str | None = "v", timestamp: int = 1) -> NewRecord:
    encoded = None if value is None else value.encode()
    return NewRecord(timestamp, None if key is None else key.encode(), encoded)


def append(log: PartitionLog, *records: NewRecord, **header: Any) -> None:
    log.append(RecordBatch.of(encode_batch(records, **header)), 0, None)


def shown(log: PartitionLog) -> list[tuple[int, int, list[tuple[int, bytes | None]]]]:
    """Return base offset, last offset and the pairs of offset and key of each batch."""
    for batch in log.batches():
        batch.check_crc()
    return [
        (b.header.base_offset, b.header.last_offset, [(r.offset, r.key) for r in b.records()])
        for b in log.batches()
    ]


def test_compaction_keeps_last_record_of_a_key_and_batch_offsets() -> None:
    log = PartitionLog()
    append(log, record("a"), record("b"), record("c"))
    append(log, record("a"), record("d"))
    append(log, record("e"), record("d"))
    append(log, record("e"))
    log.compact(0, RETENTION)
    assert shown(log) == [
        (0, 2, [(1, b"b"), (2, b"c")]),
        (3, 4, [(3, b"a")]),
        (5, 6, [(5, b"e"), (6, b"d")]),
        (7, 7, [(7, b"e")]),
    ], "the last batch is not looked at yet"
    append(log, record("b"))
    append(log, record("b"))
    log.compact(0, RETENTION)
    assert shown(log) == [
        (0, 2, [(2, b"c")]),
        (3, 4, [(3, b"a")]),
        (5, 6, [(6, b"d")]),
        (7, 7, [(7, b"e")]),
        (8, 8, [(8, b"b")]),
        (9, 9, [(9, b"b")]),
    ]
    assert (log.start_offset, log.end_offset) == (0, 10)


def test_compaction_removes_empty_batches_except_the_last() -> None:
    log = PartitionLog()
    for key in ("a", "b", "a", "b", "a"):
        append(log, record(key))
    append(log, record("b"), record("a"))
    append(log, record("b"), record("a"))
    log.compact(0, RETENTION)
    assert shown(log) == [
        (5, 6, [(5, b"b"), (6, b"a")]),
        (7, 8, [(7, b"b"), (8, b"a")]),
    ]
    append(log, record("c"))
    log.compact(0, RETENTION)
    append(log, record("b"), record("a"))
    append(log, record("x"))
    log.compact(0, RETENTION)
    assert shown(log)[0] == (9, 9, [(9, b"c")])
    assert [
        (r.offset)
        for b in split_batches(log.read(0, 1 << 20, at_least_one=True))
        for r in b.records()
    ] == [9, 10, 11, 12]


def test_the_last_batch_that_was_cleaned_is_left_empty() -> None:
    log = PartitionLog()
    append(log, record("a"))
    append(log, record(None))
    append(log, record("b"))
    log.compact(0, RETENTION)
    assert shown(log) == [(0, 0, [(0, b"a")]), (1, 1, []), (2, 2, [(2, b"b")])]
    empty = list(log.batches())[1].header
    assert (empty.count, empty.base_timestamp, empty.max_timestamp) == (0, -1, 1)


def test_compaction_keeps_sequence_in_producers_empty_last_batch() -> None:
    log = PartitionLog()
    for sequence in (0, 1):
        header = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        append(log, record("a"), **header)
    append(log, record("a"))
    append(log, record("b"))
    log.compact(0, RETENTION)
    assert shown(log) == [(1, 1, []), (2, 2, [(2, b"a")]), (3, 3, [(3, b"b")])]
    empty = next(log.batches()).header
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (5, 0, 1)


def test_tombstones_go_when_their_time_has_come() -> None:
    log = PartitionLog()
    append(log, record("a", timestamp=10), record("b", timestamp=20), record("z", timestamp=30))
    append(log, record("a", None, timestamp=40), record("b", timestamp=50))
    append(log, record("c"))
    log.compact(100, RETENTION)
    first, second, _ = log.batches()
    assert not first.header.has_delete_horizon
    assert second.header.has_delete_horizon
    assert second.header.base_timestamp == 1100, "when it may go"
    assert [(r.timestamp, r.key, r.value) for r in second.records()] == [
        (40, b"a", None),
        (50, b"b", b"v"),
    ]
    log.compact(1099, RETENTION)
    assert shown(log)[1] == (3, 4, [(3, b"a"), (4, b"b")])
    assert list(log.batches())[1].header.base_timestamp == 1100, "the time does not move on"
    log.compact(1100, RETENTION)
    assert shown(log)[1] == (3, 4, [(4, b"b")])


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_what_is_left_is_compressed_as_it_was(codec: Compression) -> None:
    log = PartitionLog()
    append(log, record("a"), record("b", timestamp=7), compression=codec)
    append(log, record("a"))
    append(log, record("c"))
    log.compact(0, RETENTION)
    header = next(log.batches()).header
    assert (header.compression, header.count, header.base_timestamp) == (codec, 1, 7)
    assert shown(log)[0] == (0, 1, [(1, b"b")])


def test_young_batches_are_left_alone() -> None:
    log = PartitionLog()
    for timestamp in (100, 200, 300, 400):
        append(log, record("a", timestamp=timestamp))
    log.compact(350, RETENTION, min_lag_ms=100)
    assert [base for base, _, _ in shown(log)] == [1, 2, 3]
    log.compact(1000, RETENTION)
    assert [base for base, _, _ in shown(log)] == [2, 3]


def transactional(log: PartitionLog, producer_id: int, *keys: str, sequence: int = 0) -> None:
    records = [record(key) for key in keys]
    header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    append(log, *records, transactional=True, **header)


def markers(log: PartitionLog) -> list[tuple[int, int]]:
    """Return offset and type of the markers that are left."""
    return [
        (record.offset, control_type(record.key))
        for batch in log.batches()
        if batch.header.is_control
        for record in batch.records()
    ]


def test_compaction_drops_aborted_records_before_their_marker() -> None:
    log = PartitionLog()
    append(log, record("a"))
    transactional(log, 1, "a", "b")
    log.append_marker(Marker(1, 0, committed=False, coordinator_epoch=0), 0, 1)
    transactional(log, 1, "d", sequence=2)
    log.append_marker(Marker(1, 0, committed=True, coordinator_epoch=0), 0, 1)
    append(log, record("c"))
    log.compact(0, RETENTION)
    assert shown(log)[0] == (0, 0, [(0, b"a")]), "aborted records do not count"
    assert markers(log) == [(3, ControlType.ABORT), (5, ControlType.COMMIT)]
    assert [one.producer_id for one in log.aborted_from(0)] == [1]
    append(log, record("c"))
    log.compact(10, RETENTION)
    assert log.aborted_from(0) == []
    marker = next(b for b in log.batches() if b.header.is_control)
    assert marker.header.base_timestamp == 10 + RETENTION
    append(log, record("c"))
    log.compact(10 + RETENTION, RETENTION)
    assert markers(log) == [(5, ControlType.COMMIT)], "its record is there still"


def test_what_is_not_stable_is_left_alone() -> None:
    log = PartitionLog()
    append(log, record("a"))
    append(log, record("a"))
    transactional(log, 1, "a")
    append(log, record("a"))
    log.compact(0, RETENTION)
    assert [base for base, _, _ in shown(log)] == [1, 2, 3]


def test_a_compacted_topic_is_read_over_its_holes() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", 1, {"cleanup.policy": "compact"})
        for _ in range(3):
            cluster.produce("t", [("a", "1"), ("b", "2")])
        cluster.produce("t", [("c", "3")])
        cluster.compact("t")
        assert [(r.offset, r.key) for r in cluster.records("t")] == [
            (4, b"a"),
            (5, b"b"),
            (6, b"c"),
        ]
        data = fetch(cluster, cluster.leader("t"), 0)
        assert (data.error_code, data.log_start_offset, data.high_watermark) == (0, 0, 7)
        assert [b.header.base_offset for b in split_batches(data.records or b"")] == [4, 6]
        cluster.move_leader("t")
        cluster.produce("t", [("a", None)])
        assert cluster.records("t")[-1].offset == 7


def test_a_topic_that_is_not_compacted_says_so() -> None:
    with Cluster(topics={"t": 1}) as cluster, pytest.raises(IllegalStateError, match="not compac"):
        cluster.compact("t")


def test_groups_are_there_after_their_offsets_were_compacted() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        with Raw(cluster) as raw:
            joined = join(raw)
        cluster.move_coordinator("g")
        before = cluster.group("g")
        cluster.compact("__consumer_offsets")
        cluster.move_coordinator("g")
        assert cluster.group("g") == before
        assert joined.generation_id == 1


def test_tombstones_wait_for_the_clusters_clock() -> None:
    async def main() -> list[int]:
        async with MemoryCluster() as cluster:
            cluster.create_topic(
                "t", 1, {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
            )
            cluster.produce("t", [("a", "1")])
            cluster.produce("t", [("a", None)])
            cluster.produce("t", [("b", "1")])
            cluster.compact("t")
            await anyio.sleep(86399)
            cluster.compact("t")
            before = len(cluster.records("t"))
            await anyio.sleep(1)
            cluster.compact("t")
            return [before, len(cluster.records("t"))]

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == [2, 1]
