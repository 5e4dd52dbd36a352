"""Keys and values of a table as columns of their schemas.

Rows are grouped by the id of their schema, decoded group by group, and put back in their order.
Null stays null. The types of several schemas become one by name (``_unified``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from kohort import RecordDeserializationError, TopicPartition
from kohort.errors import InvalidOptionError
from kohort.schemas._blocks import LONGEST
from kohort.schemas._deserializer import Failure, SchemaDeserializer
from kohort.schemas._errors import (
    FramingError,
    SchemaError,
    SchemaMismatchError,
    UnknownSchemaError,
)
from kohort.schemas._framing import V0_LENGTH, V1, V1_LENGTH, SchemaId, id_of
from kohort.schemas._needs import LateModule, check_installed

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LateModule("pyarrow")
    pc = LateModule("pyarrow.compute")

OnRowError = str | Callable[[RecordDeserializationError], Any]
ACTIONS = ("raise", "skip", "null")


def columns(
    table: Any,
    *,
    key: SchemaDeserializer | None = None,
    value: SchemaDeserializer | None = None,
    on_error: OnRowError = "raise",
) -> pa.Table:
    """Return a table of records with keys or values as their schemas say, as a pyarrow.Table.

    ``table`` is the result of ``poll_arrow()``, a RecordTable, or anything with Arrow's stream
    interface that has the same columns. A record of Avro becomes a struct. Order and other columns
    stay.

    It loads schemas that are not in the cache, which blocks once for each. In a coroutine await
    :func:`columns_async`. Raises RegistryUnavailableError and RegistryRefusedError. ``table`` stays
    as it is, so the call can be repeated.

    ``on_error`` says what becomes of a row that cannot be decoded: ``"raise"`` a
    RecordDeserializationError, ``"skip"`` the row, or make it ``"null"``. A function gets the error
    and returns one of these words.
    """
    check_installed("columns()", "pyarrow", "polars")
    if not callable(on_error) and on_error not in ACTIONS:
        raise InvalidOptionError(
            f'on_error={on_error!r}: must be "raise", "skip", "null" or a function'
        )
    raw = found = table if isinstance(table, pa.Table) else pa.table(table)
    skipped: set[int] = set()
    for name, deserializer in (("key", key), ("value", value)):
        if deserializer is not None:
            decoded, failures = _Column(found, name, deserializer).decode()
            skipped |= _decided(raw, name, failures, on_error)
            found = found.set_column(found.column_names.index(name), name, decoded)
    if skipped:
        found = found.filter(pa.array(row not in skipped for row in range(found.num_rows)))
    return found


async def columns_async(
    table: Any,
    *,
    key: SchemaDeserializer | None = None,
    value: SchemaDeserializer | None = None,
    on_error: OnRowError = "raise",
) -> pa.Table:
    """Return what :func:`columns` returns, from a worker thread. ``on_error`` is called in it."""
    return await anyio.to_thread.run_sync(
        lambda: columns(table, key=key, value=value, on_error=on_error), abandon_on_cancel=True
    )


_Group = tuple[SchemaId, "bytes | None", Any, Any]
"""Id of a schema, bytes after an id in a header, rows and data."""


class _Column:
    """One column of framed bytes, and the rows of each schema."""

    def __init__(self, table: pa.Table, name: str, deserializer: SchemaDeserializer) -> None:
        self._deserializer = deserializer
        # The cast comes first, because bytes beyond 2 GiB have no offsets of 32 bits.
        self._data = table.column(name).cast(pa.large_binary()).combine_chunks()
        self._headers = table.column("headers") if "headers" in table.column_names else None
        self._failures: list[Failure] = []

    def decode(self) -> tuple[pa.Array, list[Failure]]:
        """Return the values, null for bad rows, and the bad rows with their errors."""
        groups = self._groups()
        registry = self._deserializer.registry
        if self._deserializer.needs_schema or self._deserializer.column_type() is None:
            try:
                registry.prepare(schema_id for schema_id, _, _, _ in groups)
            except UnknownSchemaError:
                pass  # an error of its rows
        order, parts = [], []
        for schema_id, tail, all_rows, all_bodies in groups:
            messages, failures = self._deserializer.messages(tail, all_bodies)
            self._fail(all_rows, failures)
            for message, places, bodies in messages:
                rows = all_rows if places is None else all_rows.take(places)
                try:
                    values, failures = self._deserializer.column(schema_id, message, bodies)
                except (FramingError, UnknownSchemaError, SchemaMismatchError) as error:
                    self._failures += [(row, error) for row in rows.to_pylist()]
                    continue
                self._fail(rows, failures)
                order.append(rows)
                parts.append((schema_id, values))
        size = len(self._data)
        if not parts:
            return pa.nulls(size, self._deserializer.column_type()), self._failures
        kind = self._deserializer.column_type() or _unified(
            [values.type for _, values in sorted(parts, key=_newest_first)]
        )
        values = pa.concat_arrays([values.cast(kind) for _, values in parts])
        if len(parts) == 1 and len(values) == size:
            return values, self._failures
        # Where each row of the table is in the values. Rows that are nowhere become null.
        places = pa.concat_arrays(order)
        by_row = pc.array_sort_indices(places)
        rows = places.take(by_row)
        found = pc.index_in(_numbers(size), value_set=rows)
        return values.take(by_row.take(found)), self._failures

    def _fail(self, rows: pa.Array, failures: list[Failure]) -> None:
        if failures:
            numbers = rows.to_pylist()
            self._failures += [(numbers[row], error) for row, error in failures]

    def _groups(self) -> list[_Group]:
        """Return the rows of each schema. Rows without an id are failures."""
        data = self._data
        size = len(data)
        in_header, frames = self._framed_by_header()
        groups = []
        if in_header is not None:
            groups += self._split(frames, in_header, data.take(in_header), has_frame=False)
            others = pc.invert(pc.is_in(_numbers(size), value_set=in_header))
            rows = pc.indices_nonzero(pc.and_(others, data.is_valid()))
        elif data.null_count:
            rows = pc.indices_nonzero(data.is_valid())
        else:
            rows = _numbers(size)
        rows = rows.cast(pa.int64())
        bodies = data if len(rows) == size else data.take(rows)
        if not size:
            return groups
        is_v1 = pc.equal(pc.binary_slice(bodies, 0, 1), pa.scalar(bytes([V1]), pa.large_binary()))
        for flag, length in ((False, V0_LENGTH), (True, V1_LENGTH)):
            chosen = pc.equal(is_v1, flag)
            if pc.any(chosen).as_py():
                is_all = pc.all(chosen).as_py()
                some = bodies if is_all else bodies.filter(chosen)
                places = rows if is_all else rows.filter(chosen)
                groups += self._split(
                    pc.binary_slice(some, 0, length), places, some, has_frame=True
                )
        return groups

    def _framed_by_header(self) -> tuple[pa.Array | None, Any]:
        """Return the rows whose header has the id, and these headers. None: there are none."""
        if self._headers is None:
            return None, None
        headers = self._headers.combine_chunks()
        items = headers.flatten()
        is_id = pc.and_(
            pc.equal(items.field("key"), self._deserializer.header), items.field("value").is_valid()
        )
        if not pc.any(is_id).as_py():
            return None, None
        rows = pc.list_parent_indices(headers).filter(is_id).cast(pa.int64())
        values = items.field("value").filter(is_id).cast(pa.large_binary())
        before = pa.concat_arrays([pa.array([-1], pa.int64()), rows.slice(0, len(rows) - 1)])
        first = pc.and_(pc.not_equal(rows, before), self._data.is_valid().take(rows))
        return rows.filter(first), values.filter(first)

    def _split(
        self, frames: pa.Array, rows: pa.Array, data: pa.Array, *, has_frame: bool
    ) -> list[_Group]:
        """Return the rows of each schema by the frames of the rows."""
        groups = []
        same = bool(len(frames)) and pc.all(pc.equal(frames, frames[0])).as_py()
        codes = None if same else frames.dictionary_encode()
        unique = frames.slice(0, 1) if codes is None else codes.dictionary
        wrong = []
        for code, frame in enumerate(unique.to_pylist()):
            try:
                schema_id, length = id_of(frame)
            except FramingError as error:
                wrong.append((code, error))
                continue
            some, bodies = rows, data
            if codes is not None:
                chosen = pc.equal(codes.indices, pa.scalar(code, codes.indices.type))
                some, bodies = rows.filter(chosen), data.filter(chosen)
            if has_frame:
                bodies = pc.binary_slice(bodies, length, LONGEST)
            groups.append((schema_id, None if has_frame else frame[length:], some, bodies))
        if wrong:
            errors = dict(wrong)
            numbers = rows.to_pylist()
            indices = [0] * len(numbers) if codes is None else codes.indices.to_pylist()
            self._failures += [
                (row, errors[code])
                for row, code in zip(numbers, indices, strict=True)
                if code in errors
            ]
        return groups


def _numbers(count: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)


def _newest_first(part: tuple[SchemaId, Any]) -> tuple[bool, int]:
    """Sort by the number of the schema, the highest first, and GUIDs after all numbers."""
    schema_id = part[0]
    return (False, -schema_id) if isinstance(schema_id, int) else (True, 0)


def _unified(kinds: list[pa.DataType]) -> pa.DataType:
    """Return one type for the values of several schemas. Fields go by name.

    The newest schema gives the order, and fields of others follow. Numbers become wider.
    """
    found = kinds[0]
    for kind in kinds[1:]:
        try:
            merged = pa.unify_schemas(
                [pa.schema([("value", found)]), pa.schema([("value", kind)])],
                promote_options="permissive",
            )
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"the table has two schemas that are no common column: {error}. Pass a reader "
                "schema to the deserializer"
            ) from error
        found = merged.field("value").type
    return found


def _decided(table: pa.Table, name: str, failures: list[Failure], on_error: OnRowError) -> set[int]:
    """Apply ``on_error`` to bad rows, in their order. Return the rows to skip."""
    skipped = set()
    for row, cause in sorted(failures, key=lambda failure: failure[0]):
        error = _row_error(table, name, row, cause)
        action = on_error(error) if callable(on_error) else on_error
        if action not in ACTIONS:
            raise InvalidOptionError(
                f'on_error returned {action!r}: expected "raise", "skip" or "null"'
            ) from error
        if action == "raise":
            raise error
        if action == "skip":
            skipped.add(row)
    return skipped


def _row_error(
    table: pa.Table, name: str, row: int, cause: Exception
) -> RecordDeserializationError:
    fields = {each: table.column(each)[row] for each in table.column_names}
    tp = TopicPartition(fields["topic"].as_py(), fields["partition"].as_py())
    offset, raw = fields["offset"].as_py(), fields[name].as_py()
    reason = cause if isinstance(cause, SchemaError) else f"{type(cause).__name__}: {cause}"
    error = RecordDeserializationError(
        f"the {name} of {tp.topic}-{tp.partition} offset {offset} does not deserialize: {reason}. "
        'Pass on_error="skip" to leave the row out, or on_error="null" to keep it without its '
        f"{name}",
        topic_partition=tp,
        offset=offset,
        next_offset=offset + 1,
        raw=raw,
        reason=f"the {name} does not deserialize: {reason}",
    )
    error.__cause__ = cause
    error.key, error.value = fields["key"].as_py(), fields["value"].as_py()
    if "headers" in fields:
        error.headers = tuple((each["key"], each["value"]) for each in fields["headers"].as_py())
    if "timestamp" in fields and fields["timestamp"].is_valid:
        error.timestamp = fields["timestamp"].value
    return error
