"""Columns: the schema of Spark's Kafka source or a part of it, as Arrow batches."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort import TopicPartition
from kohort.errors import DataError, InvalidOptionError
from kohort.records import arrow_schema
from kohort.spark_connector._arrow import (
    BatchShaper,
    PartitionRows,
    first_row_at,
    partition_rows,
    spark_arrow_schema,
    split_batch,
)
from kohort.spark_connector._schema import check_schema, default_schema

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def columns(*names: str, **kinds: Any) -> StructType:
    return StructType([StructField(name, kinds.get(name, TYPES[name])) for name in names])


Row = dict[str, Any]


def record(**values: Any) -> Row:
    """Return a row as poll_arrow() returns it."""
    when = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    return {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": when,
        "timestampType": 0,
        "headers": [],
    } | values


def polled(*rows: Row) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema())


def headers(**values: bytes | None) -> list[Row]:
    return [{"key": name, "value": value} for name, value in values.items()]


def built(schema: StructType, *rows: Row) -> list[Row]:
    """Return the shaped rows. Check that a slice of a batch has the same ones."""
    check_schema(schema)
    shaper = BatchShaper(schema)
    batch = shaper.shape(polled(*rows))
    sliced = shaper.shape(polled(record(headers=[{"key": "x", "value": b"y"}]), *rows).slice(1))
    for each in (batch, sliced):
        each.validate(full=True)
        # Spark makes the same comparison.
        assert spark_arrow_schema(schema).equals(each.schema)
    assert sliced.equals(batch)
    found: list[Row] = batch.to_pylist()
    return found


def test_all_columns() -> None:
    (row,) = built(columns(*TYPES), record(headers=headers(h=b"1", i=None)))
    when = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": when,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
    }
    assert list(row) == list(TYPES)


def test_the_default_schema_is_that_of_sparks_own_source() -> None:
    names = [column.split(" ")[0] for column in default_schema(False).split(", ")]
    assert names == list(TYPES)[:-1]
    assert default_schema(True).endswith("headers array<struct<key: string, value: binary>>")


def test_any_choice_of_columns_in_any_order_and_case() -> None:
    assert built(columns("offset", "key"), record()) == [{"offset": 7, "key": b"k"}]
    spelled = StructType([StructField("TIMESTAMPTYPE", IntegerType())])
    assert built(spelled, record(timestampType=1)) == [{"TIMESTAMPTYPE": 1}]


def test_key_and_value_as_text() -> None:
    schema = columns("key", "value", key=StringType(), value=StringType())
    text = "grün"
    (row,) = built(schema, record(key=None, value=text.encode()))
    assert row == {"key": None, "value": text}


def test_text_that_is_not_utf8_keeps_its_bytes() -> None:
    """CAST(value AS STRING) does the same."""
    schema = columns("value", value=StringType())
    array = BatchShaper(schema).shape(polled(record(value=b"\xff\xfe"))).column(0)
    assert array.type == pa.string()
    assert array.view(pa.binary()).to_pylist() == [b"\xff\xfe"]


def test_null_and_empty_stay_apart() -> None:
    rows = built(columns("key", "value"), record(key=None, value=b""), record(key=b"", value=None))
    assert rows == [{"key": None, "value": b""}, {"key": b"", "value": None}]


def test_headers_are_null_for_a_record_without() -> None:
    rows = built(
        columns("headers"),
        record(headers=headers(a=b"1")),
        record(),
        record(headers=headers(b=None, c=b"3")),
        record(),
    )
    assert [row["headers"] for row in rows] == [
        [{"key": "a", "value": b"1"}],
        None,
        [{"key": "b", "value": None}, {"key": "c", "value": b"3"}],
        None,
    ]


def test_no_timestamp_is_what_it_is_in_sparks_own_source() -> None:
    before_all = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    assert built(columns("timestamp"), record(timestamp=None)) == [{"timestamp": before_all}]


def test_timestamp_beyond_sparks_range_raises_with_its_offset() -> None:
    late = pa.array([0, 1 << 62], pa.timestamp("ms", "UTC"))
    batch = polled(record(), record(offset=8)).set_column(5, arrow_schema().field(5), late)
    with pytest.raises(DataError, match=r"orders-2, offset 8: Spark cannot hold") as caught:
        BatchShaper(columns("timestamp")).shape(batch)
    assert (caught.value.offset, caught.value.next_offset) == (8, 9)
    found = BatchShaper(columns("timestampType")).shape(batch)
    assert found.to_pylist() == [{"timestampType": 0}] * 2


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType([]), "at least one column"),
        (StructType([StructField("body", BinaryType())]), "column 'body' does not exist"),
        (columns("offset", offset=IntegerType()), "'offset' has to be bigint, not int"),
        (columns("value", value=LongType()), "'value' has to be binary or string, not bigint"),
        (columns("headers", headers=BinaryType()), "'headers' has to be array<struct<"),
        (StructType([StructField("key", BinaryType()), StructField("KEY", BinaryType())]), "twice"),
        (StructType([StructField("value", BinaryType(), nullable=False)]), "has to be nullable"),
    ],
)
def test_any_other_schema_is_refused(schema: StructType, said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        check_schema(schema)
    assert said in str(caught.value)


def test_batches_are_split_by_their_bytes() -> None:
    sizes = (400, 400, 400, 2000, 1)
    rows = [record(offset=at, value=bytes(size)) for at, size in enumerate(sizes)]
    batch = BatchShaper(columns("offset", "value")).shape(polled(*rows))

    def parts(most: int) -> list[list[int]]:
        return [part.column("offset").to_pylist() for part in split_batch(batch, most)]

    assert parts(1000) == [[0, 1], [2], [3], [4]]
    assert parts(1) == [[0], [1], [2], [3], [4]]
    assert parts(100_000) == [[0, 1, 2, 3, 4]]
    assert [part.num_rows for part in split_batch(batch.slice(0, 0), 10)] == [0]


def test_the_rows_of_each_partition_and_those_before_an_offset() -> None:
    places = [("b", 0, 5), ("b", 0, 9), ("a", 0, 1), ("a", 1, 1), ("a", 1, 2), ("a", 1, 3)]
    rows = [record(topic=t, partition=p, offset=offset) for t, p, offset in places]
    batch = polled(*rows)
    found = list(partition_rows(batch))
    assert found == [
        PartitionRows(TopicPartition("b", 0), 0, 2),
        PartitionRows(TopicPartition("a", 0), 2, 3),
        PartitionRows(TopicPartition("a", 1), 3, 6),
    ]
    assert [first_row_at(batch, found[0], end) for end in (5, 6, 9, 10)] == [0, 1, 1, 2]
    assert [first_row_at(batch, found[2], end) for end in (0, 3, 4)] == [3, 5, 6]
    assert list(partition_rows(batch.slice(0, 0))) == []
