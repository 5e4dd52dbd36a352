"""Rows of poll_arrow() and poll_batches() on both APIs, without an object for each record."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import anyio
import pyarrow as pa
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, RecordColumns, TopicPartition
from kohort.consumer.driver import _tables
from kohort.errors import CorruptBatchError
from kohort.records import Compression, arrow_schema
from kohort.testing import Cluster, ProducerRecord
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import PATIENCE, poll_until, read

Row = tuple[Any, ...]


def rows_of(table: Any) -> list[Row]:
    """Return the rows of either result."""
    if isinstance(table, pa.RecordBatch):
        table.validate(full=True)
        assert table.schema == arrow_schema()
        return [
            (
                row["topic"],
                row["partition"],
                row["offset"],
                None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
                row["timestampType"],
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"]),
            )
            for row in table.to_pylist()
        ]
    return [
        (
            record.topic,
            record.partition,
            record.offset,
            None if record.timestamp == -1 else record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        for columns in table
        for record in columns
    ]


WAYS = pytest.mark.parametrize("way", ["poll_arrow", "poll_batches"])


def collect(consumer: KafkaConsumer, way: str, count: int, **options: Any) -> list[Row]:
    """Poll until this many rows arrived."""
    rows: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while len(rows) < count:
        assert time.monotonic() < deadline, f"not in time; read {rows}"
        rows += rows_of(getattr(consumer, way)(timeout_ms=200, **options))
    return rows


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row[1], row[2]) for row in rows]


EVERYTHING: list[Any] = [
    ProducerRecord(b"value", b"key", timestamp=1_700_000_000_123),
    ProducerRecord(None, None, timestamp=-1, headers=[("", b""), ("ü", None), ("h", b"\xff")]),
    ProducerRecord(b"", b"", timestamp=0),
]


@WAYS
@pytest.mark.parametrize("codec", Compression)
def test_rows_are_the_records_that_poll_gives(
    cluster: Cluster, topic: str, make: MakeConsumer, way: str, codec: Compression
) -> None:
    for partition in (0, 1):
        cluster.produce(topic, EVERYTHING, partition=partition, compression=codec)
    consumer = make(topic, group_id=None)
    rows = collect(consumer, way, 6)
    consumer.seek_to_beginning()
    expected = [
        (
            record.topic,
            record.partition,
            record.offset,
            None if record.timestamp == -1 else record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        for record in read(consumer, 6)
    ]
    assert sorted(rows, key=lambda row: row[1:3]) == sorted(expected, key=lambda row: row[1:3])


@WAYS
def test_nothing_there_is_no_rows(topic: str, make: MakeConsumer, way: str) -> None:
    empty = getattr(make(topic, group_id=None), way)()
    assert rows_of(empty) == []
    assert len(empty) == 0


@WAYS
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_max_records_cuts_batches_and_commits_returned_rows_only(
    cluster: Cluster,
    topic: str,
    group: str,
    make: MakeConsumer,
    way: str,
    codec: Compression,
) -> None:
    tp = TopicPartition(topic, 0)
    for start in range(0, 40, 20):
        values = [b"%d" % n for n in range(start, start + 20)]
        cluster.produce(topic, values, partition=0, compression=codec)
    first = make(topic, group_id=group)
    assert places(collect(first, way, 7, max_records=7)) == [(0, n) for n in range(7)]
    assert first.position(tp) == 7
    first.commit()
    assert places(collect(first, way, 7, max_records=7)) == [(0, n) for n in range(7, 14)]
    first.close(autocommit=False)
    second = make(topic, group_id=group)
    assert places(collect(second, way, 33)) == [(0, n) for n in range(7, 40)]


def test_rows_of_many_partitions_come_at_once(cluster: Cluster, make: MakeConsumer) -> None:
    cluster.create_topic("wide", 50)
    for partition in range(50):
        cluster.produce("wide", [b"%d" % n for n in range(3)], partition=partition)
    consumer = make("wide", group_id=None)
    found: list[RecordColumns] = []
    deadline = time.monotonic() + PATIENCE
    while sum(map(len, found)) < 150:
        assert time.monotonic() < deadline
        found += consumer.poll_batches(200)
    assert sorted(each.partition for each in found) == list(range(50))
    assert all(list(each.offset) == [0, 1, 2] for each in found)


@WAYS
def test_every_way_of_reading_goes_on_where_another_stopped(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, way: str
) -> None:
    for first in range(0, 400, 25):
        cluster.produce(topic, [b"%d" % n for n in range(first, first + 25)], partition=0)
    consumer = make(topic, group_id=group, max_poll_records=10)
    seen: list[int] = []
    while len(seen) < 400:
        seen += [row[2] for row in rows_of(getattr(consumer, way)(5000, max_records=9))]
        if len(seen) < 300:
            seen += [next(consumer).offset, next(consumer).offset]
        if len(seen) % 2:
            for records in consumer.poll(5000).values():
                seen += [record.offset for record in records]
    assert seen == list(range(400))
    assert consumer.position(TopicPartition(topic, 0)) == 400


@WAYS
@pytest.mark.parametrize("on_error", ["raise", "skip", "pause"])
def test_a_corrupt_batch_is_up_to_on_error(
    cluster: Cluster, topic: str, make: MakeConsumer, way: str, on_error: str
) -> None:
    bad = TopicPartition(topic, 0)
    for value in (b"a", b"b", b"c"):
        cluster.produce(topic, [value], partition=0)
    cluster.produce(topic, [b"x", b"y"], partition=1)
    cluster.corrupt(bad, 1)
    consumer = make(topic, group_id=None, on_error=on_error)
    if on_error == "skip":
        assert sorted(places(collect(consumer, way, 4))) == [(0, 0), (0, 2), (1, 0), (1, 1)]
        return
    assert sorted(places(collect(consumer, way, 3))) == [(0, 0), (1, 0), (1, 1)]
    if on_error == "pause":
        poll_until(consumer, consumer.paused)
        assert (consumer.paused(), consumer.position(bad)) == ({bad}, 1)
        return
    with pytest.raises(CorruptBatchError) as raised:
        getattr(consumer, way)(20_000)
    assert (raised.value.topic_partition, raised.value.offset) == (bad, 1)
    cluster.produce(topic, [b"z"], partition=1)
    rows: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while not rows:
        assert time.monotonic() < deadline
        try:
            rows = rows_of(getattr(consumer, way)(200))
        except CorruptBatchError:
            pass
    assert places(rows) == [(1, 2)]
    consumer.seek(bad, 2)
    assert places(collect(consumer, way, 1)) == [(0, 2)]


@WAYS
def test_gaps_of_compaction_and_the_times_of_the_log(
    cluster: Cluster, make: MakeConsumer, way: str
) -> None:
    name = f"compacted-{way}"
    configs = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    cluster.create_topic(name, 1, configs=configs)
    for n in range(6):
        cluster.produce(name, [(b"same", b"%d" % n), (b"%d" % n, b"x")])
    cluster.compact(name)
    rows = collect(make(name, group_id=None), way, 8)
    assert [row[2] for row in rows] == [1, 3, 5, 7, 8, 9, 10, 11]
    assert {row[4] for row in rows} == {1}
    assert all(row[3] > 1_600_000_000_000 for row in rows)


def test_without_pyarrow_poll_arrow_says_what_to_do(
    topic: str, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make(topic, group_id=None)
    monkeypatch.setattr(_tables, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"kohort\[arrow\].*poll_batches"):
        consumer.poll_arrow()
    assert consumer.poll_batches() == []


@pytest.mark.anyio
@WAYS
async def test_the_other_face(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any], way: str
) -> None:
    for partition in (0, 1):
        for first in (0, 5):
            values = [b"%d" % n for n in range(first, first + 5)]
            cluster.produce(topic, values, partition=partition, compression=Compression.ZSTD)
    one = TopicPartition(topic, 1)
    async with AsyncKafkaConsumer(topic, group_id=group, **options) as consumer:
        poll: Callable[..., Any] = getattr(consumer, way)
        rows: list[Row] = []
        with anyio.fail_after(PATIENCE):
            while len(rows) < 7:
                rows += rows_of(await poll(partitions=[one], timeout_ms=200, max_records=7))
            assert places(rows) == [(1, n) for n in range(7)]
            assert await consumer.position(one) == 7
            rows += [
                (None, r.partition, r.offset)
                for r in [(await consumer.poll(10_000, 1, partitions=[one]))[one][0] for _ in "ab"]
            ]
            with anyio.move_on_after(0):
                await poll(timeout_ms=1000)
                raise AssertionError("it was cancelled")
            while len(rows) < 20:
                rows += rows_of(await poll(timeout_ms=200))
    assert sorted(places(rows)) == [(p, n) for p in (0, 1) for n in range(10)]
    assert cluster.committed(group)[one].offset == 10


WITHOUT_PANDAS = """
import sys

from kohort import KafkaConsumer

with KafkaConsumer({topic!r}, bootstrap_servers={servers!r}, auto_offset_reset="earliest") as one:
    one.poll(0)
    table = one.poll_arrow(timeout_ms=0, max_records=1)
    count = table.num_rows
    while count < 2:
        table = one.poll_arrow(timeout_ms=500)
        count += table.num_rows
    assert one.poll_arrow(timeout_ms=0).num_rows == 0
names = table.column("headers").to_pylist()[-1]
print(names, "pandas" in sys.modules)
"""


def test_poll_arrow_does_not_import_pandas(cluster: Cluster, topic: str) -> None:
    pytest.importorskip("pandas")
    named = ProducerRecord(b"b", headers=[("n\u00e4me", b"v")])
    cluster.produce(topic, [b"a", named], partition=0)
    program = WITHOUT_PANDAS.format(topic=topic, servers=cluster.bootstrap_servers)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False
    )
    assert ended.stdout == "[{'key': 'n\u00e4me', 'value': b'v'}] False\n", ended.stderr
