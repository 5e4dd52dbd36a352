"""TablePlan: rows of several partitions, decoded into one table of Arrow's layout.

One pass fills a table, without the interpreter's lock. It checks each record and copies it into the
columns while the record is in the processor's cache. SizeHistory estimates the room from the last
table. A batch that does not fit leaves no rows. Then the table grows, and the batch comes again.

The pass also decompresses LZ4 and zstd, batch by batch (``_unpack.h``). It calls C functions by
their addresses. That of LZ4 is in a compiled module of ``codecs``. Those of zstd are in the
system's libzstd, because cramjam exports none. Python decompresses other codecs and frames that
producers do not write. It also does so if a function is missing.

Record objects use the function of LZ4, too. They do not use that of zstd, because its versions
differ in the broken frames that they refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kohort.errors import CorruptBatchError
from kohort.records._record_batch import RecordBatch
from kohort.records.codecs._lz4 import decompressor_address
from kohort.records.codecs._scratch import Output, Scratch
from kohort.records.codecs._zstd import decompressor_addresses
from kohort.records.tables._table_decoder_choice import (
    ALL_FIT,
    NO_ROOM,
    WRONG,
    Columns,
    MissingRoom,
    capsules,
    extent_of,
    filled_bytes,
    take_body,
    take_plain,
    use_codecs,
)
from kohort.types import NamedTuple

MAX_BYTES = 1 << 30
"""Most bytes of keys, values and headers in a table, whose offsets have 31 bits."""
MAX_ROWS = 1 << 22
"""Most rows of a table, so that topic names of any length fit."""

Buffer: TypeAlias = memoryview
Allocate: TypeAlias = Callable[[int], memoryview]
"""Function that returns writable bytes of at least this size."""
_Run: TypeAlias = tuple[bytes, int, int]
"""Topic, partition, and the row after the last one."""


def allocate_in_python(size: int) -> memoryview:
    """Allocate memory of the interpreter, of any content."""
    return memoryview(bytearray(size) if capsules is None else capsules.unset_bytes(size))


class Table(NamedTuple):
    """The buffers of the columns by name, with the number of their rows and headers."""

    rows: int
    headers: int
    buffers: dict[str, Buffer]


class Extent(NamedTuple):
    """Sizes of the separately growing parts of a table, filled or with room."""

    rows: int
    topic: int
    key: int
    value: int
    headers: int
    header_name: int
    header_value: int

    @property
    def strings(self) -> int:
        """Bytes of keys, values and headers."""
        return self.key + self.value + self.header_name + self.header_value

    def scaled(self, factor: float) -> Extent:
        return Extent(*(int(size * factor) for size in self))

    def at_least(self, other: Extent) -> Extent:
        return Extent(*map(max, self, other))


_NOTHING = Extent(0, 0, 0, 0, 0, 0, 0)
_ROWS, _TOPIC, _KEY, _VALUE, _HEADERS, _NAME, _CONTENT = range(7)
_LAYOUT: tuple[tuple[str, int, int, int], ...] = (
    ("offset", _ROWS, 64, 0),
    ("timestamp", _ROWS, 64, 0),
    ("timestamp_valid", _ROWS, 1, 0),
    ("timestamp_type", _ROWS, 32, 0),
    ("partition", _ROWS, 32, 0),
    ("topic_ends", _ROWS, 32, 4),
    ("topic", _TOPIC, 8, 0),
    ("key_ends", _ROWS, 32, 4),
    ("key", _KEY, 8, 0),
    ("key_valid", _ROWS, 1, 0),
    ("value_ends", _ROWS, 32, 4),
    ("value", _VALUE, 8, 0),
    ("value_valid", _ROWS, 1, 0),
    ("header_ends", _ROWS, 32, 4),
    ("header_name_ends", _HEADERS, 32, 4),
    ("header_name", _NAME, 8, 0),
    ("header_value_ends", _HEADERS, 32, 4),
    ("header_value", _CONTENT, 8, 0),
    ("header_value_valid", _HEADERS, 1, 0),
)
"""Name, part of an Extent that counts the entries, bits of an entry, and additional bytes.

The order is that of the parameters of Columns.
"""
_NAMES = tuple(name for name, *_ in _LAYOUT)
_BLOCKS = tuple(
    (
        part,
        sum(bits for _, each, bits, _ in _LAYOUT if each == part),
        tuple((name, bits, more) for name, each, bits, more in _LAYOUT if each == part),
    )
    for part in range(7)
)
"""Columns that share a block of memory, after their part and the bits of one entry of all."""
_ALIGNMENT = 64
_GAP = _ALIGNMENT + 8
"""Most bytes of a column in its block besides its entries."""
_SLACK = 1.03
_SMALL = 1024


class SizeHistory:
    """Size of the last table of a consumer, from which the room of the next one is estimated."""

    def __init__(self) -> None:
        self._extent = _NOTHING
        self._fetched = 0

    def expect(self, fetched: int, max_rows: int, max_bytes: int) -> Extent:
        """Return the likely size of ``fetched`` bytes of batches, within the maximums."""
        extent = self._extent
        if not self._fetched or not extent.rows:
            return _NOTHING
        factor = min(fetched / self._fetched, max_rows / extent.rows)
        return extent.scaled(_SLACK * min(factor, max_bytes / max(1, extent.strings)))

    def note(self, extent: Extent, fetched: int) -> None:
        """Store the size of a full table and of its batches."""
        self._extent, self._fetched = extent, fetched


class TablePlan:
    """A table under construction, of at most ``max_rows`` rows and about ``max_bytes``.

    Added batches are decoded at once into memory of ``allocate``.
    """

    def __init__(
        self,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        *,
        allocate: Allocate = allocate_in_python,
        history: SizeHistory | None = None,
    ) -> None:
        self.max_rows: int = min(max_rows, MAX_ROWS)
        self._max_bytes = min(max_bytes, MAX_BYTES)
        self._allocate = allocate
        self._history = history or SizeHistory()
        self._fetched = 0
        self._full = False
        self._runs: list[_Run] = []
        self._room: Extent = _NOTHING
        self._buffers: dict[str, memoryview] = {}
        self._columns: Columns = _NO_COLUMNS

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._columns.rows

    @property
    def has_room(self) -> bool:
        """True if more rows may be added."""
        return not self._full and self._columns.rows < self.max_rows

    def expect(self, fetched: int) -> None:
        """Make room for ``fetched`` bytes of batches, estimated by the last table."""
        self._grow(self._history.expect(fetched, self.max_rows, self._max_bytes))

    def add_plain(
        self,
        data: memoryview,
        pos: int,
        end: int,
        start_offset: int,
        check_crcs: bool,
        topic: bytes,
        partition: int,
        scratch: Scratch,
        budget: int,
    ) -> tuple[int, int]:
        """Add plain batches as take_plain() does, with as much room and scratch as needed."""
        use_codecs(decompressor_address(), *decompressor_addresses())
        self._begin()
        begin, passed, room = pos, start_offset, scratch.kept_view()[:budget]
        while True:
            missing_room = MissingRoom()
            before = self._columns.rows
            pos, passed = take_plain(
                data,
                pos,
                end,
                passed,
                self.max_rows,
                self._max_bytes,
                check_crcs,
                topic,
                partition,
                self._columns,
                room,
                missing_room,
            )
            self._note_rows(topic, partition, before)
            if missing_room.rows:
                self._make_room(missing_room, topic)
            elif len(room) < missing_room.scratch <= budget:
                size = RecordBatch.at(data, pos).header.size
                if scratch.plausible(size, missing_room.scratch) < missing_room.scratch:
                    break
                room = memoryview(b"")  # frees the former buffer before the next one is created
                room = Output(scratch, budget).reserve(missing_room.scratch)
            else:
                break
        self._fetched += pos - begin
        if pos < end and self._columns.rows:
            size = RecordBatch.at(data, pos).header.size
            self._full = self._bytes() + size > self._max_bytes
        return pos, passed

    def add_batch(
        self,
        batch: RecordBatch,
        start_offset: int,
        budget: int,
        scratch: Scratch | None,
        topic: bytes,
        partition: int,
    ) -> int | None:
        """Add a batch that is not plain. Return None if all of it fits.

        Otherwise return the offset to continue from. Raises CorruptBatchError.
        """
        self._begin()
        body = batch.body(budget, scratch)
        before = self._columns.rows
        if before and self._bytes() + len(body) > self._max_bytes:
            self._full = True
            return start_offset
        cut = NO_ROOM
        while cut == NO_ROOM:
            missing_room = MissingRoom()
            cut = take_body(
                body,
                batch.header,
                start_offset,
                self.max_rows,
                topic,
                partition,
                self._columns,
                missing_room,
            )
            if cut == NO_ROOM:
                self._make_room(missing_room, topic)
        if cut == WRONG:
            batch.records(budget)  # this raises the exact error
            raise batch.located(CorruptBatchError("its records are invalid"))
        self._note_rows(topic, partition, before)
        self._fetched += batch.header.size
        return None if cut == ALL_FIT else cut + 1

    def build(self) -> Table:
        """Return the table. No rows may be added after that."""
        self._begin()
        extent = self._extent()
        self._history.note(extent, self._fetched)
        buffers = {
            name: self._buffers[name][: _size(extent[part], bits, more)]
            for name, part, bits, more in _LAYOUT
        }
        for name in ("timestamp_valid", "key_valid", "value_valid", "header_value_valid"):
            bits = extent.headers if name == "header_value_valid" else extent.rows
            if bits & 7:  # an abandoned batch may have left some
                buffers[name][-1] &= (1 << (bits & 7)) - 1
        return Table(extent.rows, extent.headers, buffers)

    def runs(self) -> list[tuple[str, int, range]]:
        """Return the topic, partition and rows of each run, in order."""
        runs: list[tuple[str, int, range]] = []
        start = 0
        for topic, partition, stop in self._runs:
            runs.append((topic.decode(), partition, range(start, stop)))
            start = stop
        return runs

    def _note_rows(self, topic: bytes, partition: int, before: int) -> None:
        rows = self._columns.rows
        if rows == before:
            return
        if self._runs and self._runs[-1][:2] == (topic, partition):
            self._runs.pop()
        self._runs.append((topic, partition, rows))

    def _bytes(self) -> int:
        return filled_bytes(self._columns)

    def _extent(self) -> Extent:
        return Extent._make(extent_of(self._columns))

    def _make_room(self, missing_room: MissingRoom, topic: bytes) -> None:
        """Make room for rows that had none. A part that was too small grows by half at least."""
        missing = Extent(
            missing_room.rows,
            missing_room.rows * len(topic),
            missing_room.key_bytes,
            missing_room.value_bytes,
            missing_room.headers,
            missing_room.name_bytes,
            missing_room.header_value_bytes,
        )
        needed = [have + more for have, more in zip(self._extent(), missing, strict=True)]
        self._grow(
            Extent(
                *(
                    room if need <= room else max(need, room + room // 2)
                    for need, room in zip(needed, self._room, strict=True)
                )
            )
        )

    def _begin(self) -> None:
        """Create the columns, unless they exist."""
        if not self._buffers:
            self._columns = self._with_room(_NOTHING)

    def _grow(self, wanted: Extent) -> None:
        room = wanted.at_least(self._room)
        if room != self._room:
            self._columns = self._with_room(room)

    def _with_room(self, room: Extent) -> Columns:
        """Return columns with this room and the rows of the former ones."""
        before = self._buffers
        filled = self._extent() if before else _NOTHING
        buffers = dict(before)
        for part, all_bits, columns in _BLOCKS:
            count = room[part]
            if before and self._room[part] >= count:
                continue
            size = (count * all_bits >> 3) + len(columns) * _GAP
            block = (allocate_in_python if size < _SMALL else self._allocate)(size)
            end = 0
            for name, bits, more in columns:
                at = end + _ALIGNMENT - 1 & -_ALIGNMENT
                end = at + (count * bits + 7 >> 3) + more
                buffers[name] = view = block[at:end]
                if before:
                    kept = _size(filled[part], bits, more)
                    view[:kept] = before[name][:kept]
        rows, headers = self._columns.rows, self._columns.headers
        self._buffers, self._room = buffers, room
        return Columns(rows, headers, *map(buffers.__getitem__, _NAMES))


def _size(count: int, bits: int, more: int) -> int:
    """Return the bytes of a column."""
    return (count * bits + 7 >> 3) + more


_NO_COLUMNS = Columns(0, 0, *(memoryview(bytearray(8)) for _ in _LAYOUT))
"""Columns of an empty table, which are never filled."""
