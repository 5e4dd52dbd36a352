# cython: boundscheck=False
# Every read and every write is checked here. The directive must be the first line.
"""Decoder of batches to rows of a table in Arrow's layout, without an object for each record.

One pass checks each record and puts it into the columns, while they have room. The row count
changes only after the last record of a batch. So a batch that is invalid or has no room leaves no
rows. Like ``_record_decoder.py`` this is plain Python that compiles without changes, with the types
of ``_columns_c.pxd``. A compiled pass runs without the interpreter's lock.

Values that all rows of a batch or partition share are filled after the rows. Compiled columns are
pointers, so every index must be checked against a ``*_room`` first.
"""
# ruff: noqa: F403, F405 -- what is imported by * is what the compiled module has in C instead

from __future__ import annotations

from kohort.records._header import BatchHeader
from kohort.records._primitives import *
from kohort.records._record import LOG_APPEND_TIME

MIN_RECORD_SIZE = 7
_HEADER_SIZE = 61
_PLAIN = 0x48
_LZ4 = 3
_ZSTD = 4
ALL_FIT = -2
WRONG = -1
NO_ROOM = -3

prepare()


def built_from() -> int:
    """Return the state of the source, as in ``_record_decoder``."""
    return build_state()


def use_codecs(lz4: int, zstd: int, create: int, release: int) -> None:
    """Set the addresses of the C functions for LZ4 and zstd. 0 decompresses in Python."""
    use_decompressors(lz4, zstd, create, release)


class Columns:
    """Memory for the rows of a table in Arrow's layout, and the filled part of it.

    ``*_ends`` has a 0 and then the end of each string. ``*_valid`` has a set bit for each value
    that is not null. There is room for one end more than for rows or headers.
    """

    def __init__(self, rows: int, headers: int, *views: memoryview) -> None:
        """Use these buffers, of which ``rows`` and ``headers`` are filled already."""
        self.views = views  # pointers do not keep the memory alive
        self.offsets, self.timestamps = longs(views[0]), longs(views[1])
        self.timestamp_valid, self.timestamp_types = octets(views[2]), ints(views[3])
        self.partitions, self.topic_ends = ints(views[4]), ints(views[5])
        self.topics, self.key_ends = octets(views[6]), ints(views[7])
        self.keys, self.key_valid = octets(views[8]), octets(views[9])
        self.value_ends, self.values = ints(views[10]), octets(views[11])
        self.value_valid, self.header_ends = octets(views[12]), ints(views[13])
        self.name_ends, self.names = ints(views[14]), octets(views[15])
        self.header_value_ends, self.header_values = ints(views[16]), octets(views[17])
        self.header_value_valid = octets(views[18])
        self.row_room, self.topic_room = len(views[0]) // 8, len(views[6])
        self.key_room, self.value_room = len(views[8]), len(views[11])
        self.header_room, self.name_room = len(views[14]) // 4 - 1, len(views[15])
        self.header_value_room = len(views[17])
        self.rows = rows
        self.headers = headers
        if not rows:
            self.topic_ends[0] = self.key_ends[0] = self.value_ends[0] = 0
            self.header_ends[0] = self.name_ends[0] = self.header_value_ends[0] = 0


class MissingRoom:
    """Room that was missing for a batch, before which a pass stopped.

    With ``rows``, the columns had no room for these rows and for the bytes of their keys, values
    and headers. With ``scratch``, the batch needs this number of bytes to decompress.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.key_bytes = 0
        self.value_bytes = 0
        self.headers = 0
        self.name_bytes = 0
        self.header_value_bytes = 0
        self.scratch = 0


def take_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    start_offset: int,
    max_rows: int,
    max_bytes: int,
    check_crcs: bool,
    topic: bytes,
    partition: int,
    columns: Columns,
    scratch: bytearray | memoryview,
    missing_room: MissingRoom,
) -> tuple[int, int]:
    """Put the rows of plain batches from ``start_offset`` on into the columns.

    It stops at ``max_rows`` rows, which may be inside a batch. It stops before a batch that could
    exceed ``max_bytes`` in all, that is not plain or invalid, or that has no room. Returns the
    position of the batch where it stopped and the offset to continue from. The compiled module
    decompresses LZ4 and zstd to ``scratch``.
    """
    return released(
        _take_plain,
        data,
        pos,
        end,
        start_offset,
        max_rows,
        max_bytes,
        check_crcs,
        topic,
        partition,
        columns,
        scratch,
        missing_room,
    )


def take_body(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
    missing_room: MissingRoom,
) -> int:
    """Put the records of one decompressed batch into the columns.

    Return ALL_FIT, WRONG for invalid records, NO_ROOM, or the last offset that is a row.
    """
    timestamp_type = header.timestamp_type
    log_append = timestamp_type == LOG_APPEND_TIME
    return filled(
        _take_body,
        data,
        header.count,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp if log_append else header.base_timestamp,
        timestamp_type,
        start_offset,
        max_rows,
        topic,
        partition,
        columns,
        missing_room,
    )


def _take_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    start_offset: int,
    max_rows: int,
    max_bytes: int,
    check_crcs: bool,
    topic: bytes,
    partition: int,
    columns: Columns,
    scratch: bytearray | memoryview,
    missing_room: MissingRoom,
) -> tuple[int, int]:
    passed = start_offset
    first = columns.rows
    room = _row_room(columns, len(topic))
    while pos < end and columns.rows < max_rows:
        size = 12 + int32_at(data, pos + 8)
        attributes = int16_at(data, pos + 21)
        base_offset = int64_at(data, pos)
        last_offset_delta = int32_at(data, pos + 23)
        if base_offset + last_offset_delta < passed:
            pos += size
            continue
        codec = attributes & ~_PLAIN
        if codec != 0 and codec != _LZ4 and codec != _ZSTD:
            break
        if check_crcs:
            crc = uint32_at(data, pos + 17)
            if checksum(data, pos + 21, pos + size) != crc:
                break
        body_size = size - _HEADER_SIZE
        if codec != 0:
            body_size = unpack(codec, data, pos + _HEADER_SIZE, pos + size, scratch)
            if body_size < 0:
                missing_room.scratch = -1 - body_size
                break
        if columns.rows and filled_bytes(columns) + body_size > max_bytes:
            break
        log_append = attributes & 8 != 0
        last = _take(
            start_of(scratch) if codec != 0 else start_of(data),
            0 if codec != 0 else pos + _HEADER_SIZE,
            body_size if codec != 0 else pos + size,
            int32_at(data, pos + 57),
            base_offset,
            last_offset_delta,
            int64_at(data, pos + 35 if log_append else pos + 27),
            1 if log_append else 0,
            passed,
            max_rows,
            room,
            columns,
            missing_room,
        )
        if last == WRONG or last == NO_ROOM:
            break
        if last >= 0:
            passed = max(passed, last + 1)
            break
        passed = base_offset + last_offset_delta + 1
        pos += size
    _fill_shared(columns, first, topic, partition)
    return pos, passed


def _take_body(
    data: bytes | bytearray | memoryview,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    timestamp_type: int,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
    missing_room: MissingRoom,
) -> int:
    first = columns.rows
    last = _take(
        start_of(data),
        0,
        len(data),
        count,
        base_offset,
        last_offset_delta,
        base_timestamp,
        timestamp_type,
        start_offset,
        max_rows,
        _row_room(columns, len(topic)),
        columns,
        missing_room,
    )
    _fill_shared(columns, first, topic, partition)
    return last


def _row_room(columns: Columns, topic_size: int) -> int:
    """Return the number of rows with room, if new rows have this topic."""
    if topic_size == 0:
        return columns.row_room
    left = columns.topic_room - columns.topic_ends[columns.rows]
    return min(columns.row_room, columns.rows + left // topic_size)


def _fill_shared(columns: Columns, first: int, topic: bytes, partition: int) -> None:
    """Fill in the values that all rows of a partition share, from the row ``first`` on."""
    rows = columns.rows
    if rows > first:
        topic_at = columns.topic_ends[first]
        fill_ints(columns.partitions, first, rows, partition, 0)
        fill_ints(columns.topic_ends, first, rows + 1, topic_at, len(topic))
        repeat(columns.topics, topic_at, topic, rows - first)


def extent_of(columns: Columns) -> tuple[int, int, int, int, int, int, int]:
    """Return the number of rows, the bytes of their strings, and the same of headers."""
    return (
        columns.rows,
        columns.topic_ends[columns.rows],
        columns.key_ends[columns.rows],
        columns.value_ends[columns.rows],
        columns.headers,
        columns.name_ends[columns.headers],
        columns.header_value_ends[columns.headers],
    )


def filled_bytes(columns: Columns) -> int:
    """Return the bytes of keys, values and headers."""
    return (
        columns.key_ends[columns.rows]
        + columns.value_ends[columns.rows]
        + columns.name_ends[columns.headers]
        + columns.header_value_ends[columns.headers]
    )


def _take(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    timestamp_type: int,
    start_offset: int,
    max_rows: int,
    room: int,
    columns: Columns,
    missing_room: MissingRoom,
) -> int:
    """Put the rows of a batch into the columns.

    Return ALL_FIT, WRONG, NO_ROOM with the missing room, or the last offset that is a row. The
    checks are those of decode_records(), and reach the end of the batch even if only a part of it
    becomes rows.
    """
    if count < 0 or count > (end - pos) // MIN_RECORD_SIZE:
        return WRONG
    # Local, because a C compiler must assume that a store of bytes changes fields of columns.
    offsets = columns.offsets
    timestamps = columns.timestamps
    timestamp_valid = columns.timestamp_valid
    key_ends = columns.key_ends
    keys = columns.keys
    key_valid = columns.key_valid
    value_ends = columns.value_ends
    values = columns.values
    value_valid = columns.value_valid
    header_ends = columns.header_ends
    key_room = columns.key_room
    value_room = columns.value_room
    first = row = columns.rows
    header = columns.headers
    key_at = key_ends[row]
    value_at = value_ends[row]
    name_at = columns.name_ends[header]
    content_at = columns.header_value_ends[header]
    log_append = timestamp_type == 1
    most = min(first + count, room)
    set_bits(timestamp_valid, first, most)  # a null clears its bit
    set_bits(key_valid, first, most)
    set_bits(value_valid, first, most)
    start = start_offset - base_offset
    last = -1
    cut = ALL_FIT
    is_short = False
    for _ in range(count):
        stop, time, delta, key_pos, key_size, value_pos, value_size, pos, header_count = fields_at(
            data, pos, end
        )
        if stop < 0 or delta <= last:
            return WRONG
        last = delta
        taken = delta >= start
        if taken and row == max_rows:
            taken = False
            if cut == ALL_FIT:
                cut = base_offset + delta - 1
        if taken:
            # Without room, the rest of the batch is only counted.
            is_short = (
                is_short
                or row >= room
                or key_size > key_room - key_at
                or value_size > value_room - value_at
            )
            if not is_short:
                offsets[row] = base_offset + delta
                timestamp = base_timestamp if log_append else wrapped(base_timestamp, time)
                timestamps[row] = timestamp
                if timestamp == -1:
                    clear_bit(timestamp_valid, row)
                if key_size < 0:
                    clear_bit(key_valid, row)
                else:
                    copy(keys, key_at, key_room, data, key_pos, end, key_size)
                if value_size < 0:
                    clear_bit(value_valid, row)
                else:
                    copy(values, value_at, value_room, data, value_pos, end, value_size)
            key_at += max(key_size, 0)
            value_at += max(value_size, 0)
        for _header in range(header_count):
            name, name_pos = short_at(data, pos, stop)
            name_size = name >> 1
            if name_pos < 0 or name & 1 or name_size > stop - name_pos:
                return WRONG
            content, pos = short_at(data, name_pos + name_size, stop)
            if pos < 0 or (content & 1 and content != 1):
                return WRONG
            content_size = 0 if content == 1 else content >> 1
            if content_size > stop - pos:
                return WRONG
            if taken:
                is_short = (
                    is_short
                    or header == columns.header_room
                    or name_size > columns.name_room - name_at
                    or content_size > columns.header_value_room - content_at
                )
                if not is_short:
                    copy(columns.names, name_at, columns.name_room, data, name_pos, end, name_size)
                    copy(
                        columns.header_values,
                        content_at,
                        columns.header_value_room,
                        data,
                        pos,
                        end,
                        content_size,
                    )
                    set_bits(columns.header_value_valid, header, header + 1)
                    if content == 1:
                        clear_bit(columns.header_value_valid, header)
                    columns.name_ends[header + 1] = name_at + name_size
                    columns.header_value_ends[header + 1] = content_at + content_size
                name_at += name_size
                content_at += content_size
                header += 1
            pos += content_size
        if pos != stop:
            return WRONG
        if taken:
            row += 1
            if not is_short:
                key_ends[row] = key_at
                value_ends[row] = value_at
                header_ends[row] = header
    if pos != end or last > last_offset_delta:
        return WRONG
    if is_short:
        missing_room.rows = row - first
        missing_room.key_bytes = key_at - key_ends[first]
        missing_room.value_bytes = value_at - value_ends[first]
        missing_room.headers = header - columns.headers
        missing_room.name_bytes = name_at - columns.name_ends[columns.headers]
        missing_room.header_value_bytes = content_at - columns.header_value_ends[columns.headers]
        return NO_ROOM
    fill_ints(columns.timestamp_types, first, row, timestamp_type, 0)
    columns.rows = row
    columns.headers = header
    return cut
