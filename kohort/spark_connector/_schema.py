"""Columns of the source: those of Spark's own Kafka source, or the user's choice of them."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.errors import InvalidOptionError

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"
ERRORS = "error struct<reason: string, next_offset: bigint, raw: binary>"

_ERROR_TYPE = StructType(
    [
        StructField("reason", StringType()),
        StructField("next_offset", LongType()),
        StructField("raw", BinaryType()),
    ]
)
_HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestamptype": (IntegerType(),),
    "headers": (_HEADERS_TYPE,),
    "error": (_ERROR_TYPE,),
}
_MAY_BE_NULL = {"key", "value", "headers", "error"}


def default_schema(include_headers: bool, include_errors: bool = False) -> str:
    """Return all columns as DDL. ``headers`` and ``error`` are included on request."""
    more = [HEADERS] * include_headers + [ERRORS] * include_errors
    return ", ".join([COLUMNS, *more])


def has_errors(schema: StructType) -> bool:
    """True if the rows have a column for data that is skipped."""
    return any(column.name.lower() == "error" for column in schema.fields)


def check_schema(schema: StructType) -> None:
    """Raise InvalidOptionError unless every column is one of the source's, with its type."""
    seen: set[str] = set()
    for column in schema.fields:
        name = column.name.lower()
        if name not in _TYPES:
            raise InvalidOptionError(
                f"schema: column {column.name!r} does not exist. Columns: "
                f"{default_schema(True, True)}"
            )
        if name in seen:
            raise InvalidOptionError(f"schema: column {column.name!r} occurs twice")
        seen.add(name)
        types = _TYPES[name]
        if column.dataType not in types:
            right = " or ".join(each.simpleString() for each in types)
            raise InvalidOptionError(
                f"schema: column {column.name!r} has to be {right}, "
                f"not {column.dataType.simpleString()}"
            )
        if name in _MAY_BE_NULL and not column.nullable:
            raise InvalidOptionError(f"schema: column {column.name!r} has to be nullable")
    if not seen:
        raise InvalidOptionError("schema: at least one column is required")
