"""Columns: the schema of Spark's own Kafka source or a part of it, as Arrow batches."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
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

from kohort import ConsumerRecord
from kohort.errors import DataError, InvalidOptionError
from kohort.spark_connector._arrow import BatchBuilder
from kohort.spark_connector._reading import split
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


def record(offset: int = 7, **values: Any) -> ConsumerRecord[bytes, bytes]:
    given: dict[str, Any] = {"key": b"k", "value": b"v", "timestamp": 1_700_000_000_123} | values
    return ConsumerRecord("orders", 2, offset=offset, **given)


def built(schema: StructType, *records: ConsumerRecord[bytes, bytes]) -> list[dict[str, Any]]:
    check_schema(schema)
    batch = BatchBuilder(schema).build(records)
    batch.validate(full=False)
    # This is the comparison that Spark makes.
    assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def test_all_columns() -> None:
    (row,) = built(columns(*TYPES), record(headers=(("h", b"1"), ("h", None))))
    when = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": when,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert list(row) == list(TYPES)


def test_the_default_schema_is_that_of_sparks_own_source() -> None:
    names = [column.split(" ")[0] for column in default_schema(False).split(", ")]
    assert names == list(TYPES)[:-1]
    assert default_schema(True).endswith("headers array<struct<key: string, value: binary>>")


def test_any_choice_of_columns_in_any_order_and_case() -> None:
    assert built(columns("offset", "key"), record()) == [{"offset": 7, "key": b"k"}]
    spelled = StructType([StructField("TIMESTAMPTYPE", IntegerType())])
    assert built(spelled, record(timestamp_type=1)) == [{"TIMESTAMPTYPE": 1}]


def test_key_and_value_as_text() -> None:
    schema = columns("key", "value", key=StringType(), value=StringType())
    text = "grün"
    (row,) = built(schema, record(key=None, value=text.encode()))
    assert row == {"key": None, "value": text}


def test_text_that_is_not_utf8_keeps_its_bytes() -> None:
    """As CAST(value AS STRING) does."""
    schema = columns("value", value=StringType())
    array = BatchBuilder(schema).build([record(value=b"\xff\xfe")]).column(0)
    assert array.type == pa.string()
    assert array.view(pa.binary()).to_pylist() == [b"\xff\xfe"]


def test_null_and_empty_stay_apart() -> None:
    rows = built(columns("key", "value"), record(key=None, value=b""), record(key=b"", value=None))
    assert rows == [{"key": None, "value": b""}, {"key": b"", "value": None}]


def test_headers_are_null_for_a_record_without() -> None:
    rows = built(
        columns("headers"),
        record(headers=(("a", b"1"),)),
        record(),
        record(headers=(("b", None), ("c", b"3"))),
        record(),
    )
    assert [row["headers"] for row in rows] == [
        [{"key": "a", "value": b"1"}],
        None,
        [{"key": "b", "value": None}, {"key": "c", "value": b"3"}],
        None,
    ]


def test_a_timestamp_beyond_sparks_range_is_an_error_that_says_where() -> None:
    schema = columns("timestamp")
    with pytest.raises(DataError, match=r"orders-2, offset 8: Spark cannot hold") as caught:
        built(schema, record(), record(offset=8, timestamp=1 << 62))
    assert (caught.value.offset, caught.value.next_offset) == (8, 9)
    assert built(columns("timestampType"), record(timestamp=1 << 62)) == [{"timestampType": 0}]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType([]), "at least one column"),
        (StructType([StructField("body", BinaryType())]), "no column 'body'"),
        (columns("offset", offset=IntegerType()), "'offset' is bigint, not int"),
        (columns("value", value=LongType()), "'value' is binary or string, not bigint"),
        (columns("headers", headers=BinaryType()), "'headers' is array<struct<"),
        (StructType([StructField("key", BinaryType()), StructField("KEY", BinaryType())]), "twice"),
        (StructType([StructField("value", BinaryType(), nullable=False)]), "may be null"),
    ],
)
def test_any_other_schema_is_refused(schema: StructType, said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        check_schema(schema)
    assert said in str(caught.value)


def test_records_are_split_by_their_bytes() -> None:
    sizes = (4, 4, 4, 20, 1)
    records = [
        record(offset=at, serialized_key_size=0, serialized_value_size=size)
        for at, size in enumerate(sizes)
    ]
    parts = [[each.offset for each in part] for part in split(records, 10)]
    assert parts == [[0, 1], [2], [3], [4]]
    assert list(split(records, 1000)) == [records]
    assert list(split([], 10)) == []
