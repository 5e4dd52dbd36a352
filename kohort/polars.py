"""A range of a topic as a LazyFrame of polars, which reads only what a query needs."""

from __future__ import annotations

import io
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from kohort.admin import KafkaAdminClient
from kohort.consumer import KafkaConsumer
from kohort.reading import READER_OPTIONS, TIMEOUT_MS, Bounds, Place, find_bounds, read_bounds
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    import polars as pl

    from kohort import _options
else:
    pl, _options = LazyModule("polars"), LazyModule("kohort._options")

__all__ = ["scan_kafka"]

_MIRRORED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq"}
_PLACES = ("partition", "offset", "timestamp")


def scan_kafka(
    topic: str,
    *,
    since: Place = "earliest",
    until: Place = "latest",
    partitions: Iterable[int] | None = None,
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    timeout_ms: float = TIMEOUT_MS,
    **options: Unpack[_options.AdminOptions],
) -> pl.LazyFrame:
    """Return the records of a topic as a LazyFrame. They are read when it is collected.

    ``scan_kafka("orders", bootstrap_servers="localhost:9092").filter(pl.col("partition") == 3)``

    The arguments are those of :func:`kohort.read`, and the columns those of a ``RecordTable``. A
    filter by ``partition``, by ``offset``, or by the least ``timestamp`` reads only that part of
    the logs. ``head()`` reads only as many records. Other filters are applied to each part of
    about 4 MiB. A filter by an end of timestamps reads to ``until``, because later records may have
    earlier timestamps.

    Raises ImportError without polars. ``collect()`` raises the errors of :func:`kohort.read`.
    """
    if find_spec("polars") is None:
        raise ImportError("kohort.polars needs polars: pip install polars")
    from polars.io.plugins import register_io_source

    wanted = None if partitions is None else list(partitions)
    reader: dict[str, Any] = {**READER_OPTIONS, "isolation_level": isolation_level, **options}

    def frames(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        with KafkaConsumer(**reader) as consumer:
            with KafkaAdminClient(**options) as admin:
                bounds = find_bounds(
                    admin,
                    topic,
                    since,
                    until,
                    wanted,
                    committed=isolation_level == "read_committed",
                    timeout_ms=timeout_ms,
                )
                # polars takes the first rows before it filters them, if it gives both.
                if predicate is not None and rows is None:
                    bounds = _narrowed(admin, topic, bounds, _conditions(predicate), timeout_ms)
            with closing(read_bounds(consumer, bounds, timeout_ms=timeout_ms)) as parts:
                for part in parts:
                    frame = pl.DataFrame(part)
                    if rows is not None:
                        frame = frame.head(rows)
                        rows -= frame.height
                    if columns is not None:
                        frame = frame.select(columns)
                    yield frame if predicate is None else frame.filter(predicate)
                    if rows == 0:
                        return

    return register_io_source(frames, schema=_schema(), explain_name=f"kafka {topic}")


def _schema() -> dict[str, Any]:
    header = pl.Struct({"key": pl.String, "value": pl.Binary})
    return {
        "key": pl.Binary,
        "value": pl.Binary,
        "topic": pl.String,
        "partition": pl.Int32,
        "offset": pl.Int64,
        "timestamp": pl.Datetime("ms", "UTC"),
        "timestampType": pl.Int32,
        "headers": pl.List(header),
    }


class Condition(NamedTuple):
    """A comparison that each record of a result fulfils."""

    column: str
    comparison: str
    """``Eq``, ``Lt``, ``LtEq``, ``Gt``, ``GtEq`` or ``In``."""
    value: Any


def _conditions(predicate: pl.Expr) -> list[Condition]:
    """Return the comparisons of a place with a constant that a predicate demands.

    The format of expressions may change with polars. What is not understood is left out, because
    polars' own filter follows.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
        return list(_found(tree))
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        return []


def _found(tree: Any) -> Iterator[Condition]:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _found(left)
            yield from _found(right)
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": value}}:
            yield from _condition(name, op, value)
        case {"BinaryExpr": {"left": value, "op": op, "right": {"Column": name}}}:
            yield from _condition(name, _MIRRORED.get(op, ""), value)
        case {"Function": {"input": [{"Column": name}, low, high], "function": function}}:
            match function:
                case {"Boolean": {"IsBetween": {"closed": closed}}}:
                    yield from _condition(name, "GtEq" if closed in ("Both", "Left") else "Gt", low)
                    yield from _condition(
                        name, "LtEq" if closed in ("Both", "Right") else "Lt", high
                    )
        case {
            "Function": {
                "input": [{"Column": name}, value],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            yield from _condition(name, "In", value)


def _condition(name: str, comparison: str, value: Any) -> Iterator[Condition]:
    text = json.dumps(value)
    if name in _PLACES and comparison in (*_MIRRORED, "In") and '"Column"' not in text:
        constant = pl.select(pl.Expr.deserialize(io.StringIO(text), format="json")).item()
        if constant is not None:
            yield Condition(name, comparison, constant)


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "Eq": operator.eq,
    "Lt": operator.lt,
    "LtEq": operator.le,
    "Gt": operator.gt,
    "GtEq": operator.ge,
    "In": lambda value, many: value in list(many),
}


def _narrowed(
    admin: KafkaAdminClient,
    topic: str,
    bounds: Mapping[TopicPartition, Bounds],
    conditions: Iterable[Condition],
    timeout_ms: float,
) -> dict[TopicPartition, Bounds]:
    """Return the bounds of the records that fulfil the conditions. They may have others, too."""
    found = dict(bounds)
    for column, comparison, value in conditions:
        if column == "partition":
            found = {
                tp: each for tp, each in found.items() if _COMPARE[comparison](tp.partition, value)
            }
        elif column == "offset" and comparison != "In":
            low, high = _offsets(comparison, value)
            found = {
                tp: Bounds(max(each.start, low), min(each.end, high)) for tp, each in found.items()
            }
        elif column == "timestamp" and comparison in ("Eq", "Gt", "GtEq"):
            # All records before the first one at or after a time are earlier.
            firsts = admin.find_offsets(_in_utc(value), topic, timeout_ms)
            found = {
                tp: each._replace(start=max(each.start, firsts.get(tp, each.start)))
                for tp, each in found.items()
            }
    return {tp: each for tp, each in found.items() if each.start < each.end}


def _offsets(comparison: str, value: int) -> tuple[int, int]:
    """Return the first offset, and the one after the last, that fulfil a comparison."""
    low = {"Eq": value, "GtEq": value, "Gt": value + 1}.get(comparison, 0)
    high = {"Eq": value + 1, "LtEq": value + 1, "Lt": value}.get(comparison, 1 << 63)
    return low, high


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value
