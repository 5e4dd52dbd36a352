"""Filters of a batch query that become ranges of offsets."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kohort import TopicPartition
from kohort.broker.network._server_connection import SocketConnection
from kohort.errors import InvalidOptionError
from kohort.protocol import Buffer
from kohort.spark_connector._consumers import close_idle
from kohort.spark_connector._ranges import OffsetRange
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._filters import EPOCH, ReadFilters
from kohort.testing import Cluster, ProducerRecord
from tests.spark_connector.reading import batch_reader, options, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
RANGES = [OffsetRange("orders", 0, 0, 100), OffsetRange("orders", 1, 50, 60)]
TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)


def at(milliseconds: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(milliseconds=milliseconds)


def narrowed(*filters: Filter, first: dict[TopicPartition, int | None] | None = None) -> list[str]:
    """Return the ranges. ``first`` has the first offsets at the time 5 ms."""

    def first_offsets(times: Any) -> Any:
        assert first is not None, "no time was expected"
        assert set(times.values()) == {5}
        return {tp: first[tp] for tp in times}

    return [str(each) for each in ReadFilters.of(filters).narrow(RANGES, first_offsets)]


WHOLE = ["orders-0 [0, 100)", "orders-1 [50, 60)"]


@pytest.mark.cases
@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], WHOLE),
        ([EqualTo(TOPIC, "orders")], WHOLE),
        ([EqualTo(TOPIC, "returns")], []),
        ([In(TOPIC, ("returns", "orders", None))], WHOLE),
        ([EqualNullSafe(TOPIC, None)], WHOLE),
        ([EqualTo(PARTITION, 1)], WHOLE[1:]),
        ([In(PARTITION, (0, None))], WHOLE[:1]),
        ([GreaterThan(PARTITION, 0)], WHOLE[1:]),
        ([LessThanOrEqual(PARTITION, 0)], WHOLE[:1]),
        ([GreaterThan(OFFSET, 54)], ["orders-0 [55, 100)", "orders-1 [55, 60)"]),
        (
            [GreaterThanOrEqual(OFFSET, 55), LessThan(OFFSET, 58)],
            ["orders-0 [55, 58)", "orders-1 [55, 58)"],
        ),
        ([EqualTo(OFFSET, 99)], ["orders-0 [99, 100)"]),
        ([In(OFFSET, (3, 7))], ["orders-0 [3, 8)"]),
        ([LessThanOrEqual(OFFSET, -1)], []),
        ([EqualTo(("Offset",), 59)], ["orders-0 [59, 60)", "orders-1 [59, 60)"]),
        # What is not understood is left to Spark.
        ([Not(EqualTo(PARTITION, 1))], WHOLE),
        ([StringStartsWith(TOPIC, "ret")], WHOLE),
        ([IsNotNull(OFFSET), EqualTo(("headers", "key"), 1)], WHOLE),
        ([EqualTo(OFFSET, True), EqualTo(OFFSET, 5.5), In(OFFSET, (1, "x"))], WHOLE),
        ([LessThan(TIMESTAMP, at(5)), LessThanOrEqual(TIMESTAMP, at(5))], WHOLE),
        ([GreaterThan(TIMESTAMP, at(-1))], WHOLE),
        ([GreaterThan(TIMESTAMP, at(5).replace(tzinfo=None)), EqualTo(TIMESTAMP, 5)], WHOLE),
    ],
)
def test_filters_bound_the_ranges(filters: list[Filter], ranges: list[str]) -> None:
    assert narrowed(*filters) == ranges


@pytest.mark.parametrize(
    "bound",
    [
        EqualTo(TIMESTAMP, at(5)),
        GreaterThan(TIMESTAMP, at(5.9)),
        GreaterThanOrEqual(TIMESTAMP, at(5)),
    ],
    ids=["equal", "after", "from"],
)
def test_time_bounds_a_range_from_below_only(bound: Filter) -> None:
    older = GreaterThan(TIMESTAMP, at(2))
    assert narrowed(bound, older, first={ZERO: 7, ONE: 40}) == ["orders-0 [7, 100)", WHOLE[1]]
    assert narrowed(older, bound, first={ZERO: None, ONE: 60}) == []


STAMPS = st.lists(st.integers(-1, 8), max_size=12)
COMPARE: dict[type[Any], Any] = {
    EqualTo: lambda value, bound: value == bound,
    GreaterThan: lambda value, bound: value > bound,
    GreaterThanOrEqual: lambda value, bound: value >= bound,
    LessThan: lambda value, bound: value < bound,
    LessThanOrEqual: lambda value, bound: value <= bound,
}
CONDITIONS = st.lists(
    st.tuples(
        st.sampled_from([PARTITION, OFFSET, TIMESTAMP]),
        st.sampled_from(list(COMPARE)),
        st.integers(-2, 9),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(st.tuples(STAMPS, STAMPS), CONDITIONS)
def test_no_record_that_passes_is_left_out(logs: tuple[list[int], ...], conditions: Any) -> None:
    """Times may be out of order."""
    records = [
        {"partition": p, "offset": o, "timestamp": stamp}
        for p, stamps in enumerate(logs)
        for o, stamp in enumerate(stamps)
    ]

    def first_offsets(times: Any) -> Any:
        return {
            tp: next((o for o, ms in enumerate(logs[tp.partition]) if ms >= since), None)
            for tp, since in times.items()
        }

    filters = [
        kind(column, at(bound) if column == TIMESTAMP else bound)
        for column, kind, bound in conditions
    ]
    ranges = [OffsetRange("orders", p, 0, len(stamps)) for p, stamps in enumerate(logs)]
    found = ReadFilters.of(filters).narrow(ranges, first_offsets)
    read = {(each.partition, o) for each in found for o in range(each.start, each.end)}
    for record in records:
        if all(COMPARE[kind](record[column[0]], bound) for column, kind, bound in conditions):
            assert (record["partition"], record["offset"]) in read


def produce_at(cluster: Cluster, *stamps: int, partition: int = 0) -> None:
    cluster.produce(
        "orders",
        [ProducerRecord(b"%d" % ms, timestamp=ms, partition=partition) for ms in stamps],
    )


def test_reader_reads_the_tail_since_a_time(cluster: Cluster) -> None:
    produce_at(cluster, 1000, 5000, 2000, 7000)
    produce_at(cluster, 1000, 2000, partition=1)
    reader = batch_reader(options(cluster, pushdown=True))
    filters = [GreaterThanOrEqual(TIMESTAMP, at(4000))]
    assert list(reader.pushFilters(filters)) == filters  # Spark applies them, too
    found = [row["value"] for row in rows(reader, reader.partitions())]
    assert found == [b"5000", b"2000", b"7000"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what the brokers of this process send."""
    sizes: list[int] = []
    send = SocketConnection.send

    async def count(self: SocketConnection, buffers: Sequence[Buffer]) -> None:
        sizes.append(sum(len(buffer) for buffer in buffers))
        await send(self, buffers)

    monkeypatch.setattr(SocketConnection, "send", count)
    return sizes


def test_filter_by_time_fetches_the_bytes_of_the_tail(sent: list[int]) -> None:
    batches, late, in_batch = 40, 10, 40

    def read(topic: str, *filters: Filter, **given: object) -> tuple[int, int]:
        """Return the numbers of rows and of bytes that the brokers sent."""
        reader = batch_reader(options(cluster, subscribe=topic, **given))
        if filters:
            reader.pushFilters(filters)
        before = sum(sent)
        count = sum(1 for _ in rows(reader, reader.partitions()))
        return count, sum(sent) - before

    with Cluster(topics={"orders": 3, "tail": 3}) as cluster:
        for number in range(batches):
            stamps = range(number * in_batch, (number + 1) * in_batch)
            for partition in range(3):
                records = [
                    ProducerRecord(bytes(250), timestamp=ms, partition=partition) for ms in stamps
                ]
                cluster.produce("orders", records)
                if number >= batches - late:
                    cluster.produce("tail", records)
        # The filter begins in the middle of a batch, and brokers send whole batches.
        since = GreaterThanOrEqual(TIMESTAMP, at((batches - late) * in_batch + in_batch // 2))
        tail, all_of_tail = 3 * (late * in_batch - in_batch // 2), 3 * late * in_batch
        count, tail_bytes = read("tail")
        assert count == all_of_tail
        found, found_bytes = read("orders", since, pushdown=True)
        assert (found, found_bytes <= 1.1 * tail_bytes) == (tail, True), (found_bytes, tail_bytes)
        count, all_bytes = read("orders")
        assert count == 3 * batches * in_batch
        assert all_bytes > 3 * tail_bytes
        close_idle()


def test_filters_are_taken_only_if_the_option_is_set(cluster: Cluster) -> None:
    """Spark refuses a reader with its own pushFilters while its setting is off."""
    assert type(batch_reader(options(cluster))).pushFilters is DataSourceReader.pushFilters
    with pytest.raises(InvalidOptionError, match="Spark hands no filters to a stream"):
        SourceOptions.parse(options(cluster, pushdown=True), streaming=True)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_filters_of_a_query_narrow_what_its_tasks_read(
    spark: SparkSession, cluster: Cluster
) -> None:
    produce_at(cluster, 1000, 5000, 2000, 7000)
    produce_at(cluster, 1000, 2000, partition=1)
    produce_at(cluster, 6000, partition=2)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        reader = spark.read.format("kohort").options(**options(cluster, pushdown=True))
        frame = reader.option("executorCores", 3).load()
        assert frame.rdd.getNumPartitions() == 3
        late = frame.where("timestamp >= timestamp_millis(4000)").select("value")
        assert late.rdd.getNumPartitions() == 2
        assert sorted(bytes(row["value"]) for row in late.collect()) == [b"5000", b"6000", b"7000"]
        some = frame.where("partition = 0 and offset in (1, 3)").select("offset")
        assert some.rdd.getNumPartitions() == 1
        assert sorted(row["offset"] for row in some.collect()) == [1, 3]
    finally:
        spark.conf.unset(setting)
