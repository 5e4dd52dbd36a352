# cython: boundscheck=False
# Every read and every write is checked here; the directive has to be the first line.
"""Rows of a table straight from batches, in Arrow's layout, without an object for a record.

In one pass: each record is checked and put into the columns at once, as long as they have room. A
batch counts with its last record, so one that is wrong, or that there is no room for, leaves no
trace. Like ``_batch.py`` this is plain Python that is compiled as it stands, with the types of
``_columns_c.pxd``; compiled, a pass runs without the interpreter's lock.
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
    """As in ``_batch``."""
    return build_state()


def use_codecs(lz4: int, zstd: int, create: int, release: int) -> None:
    """Have LZ4 and zstd decompressed by the C functions at these addresses; 0: in Python."""
    use_decompressors(lz4, zstd, create, release)


class Columns:
    """Memory for the rows of a table, in Arrow's layout, and how much of it is filled.

    Of strings, ``*_ends`` has where each ends, after a 0; in ``*_valid`` a bit is set for each
    that is not null. There is room for one end more than for rows, or for headers.
    """

    def __init__(self, rows: int, headers: int, *views: memoryview) -> None:
        """``rows`` and ``headers``: so many are filled already."""
        self.offsets, self.timestamps, self.timestamp_valid, self.timestamp_types = views[:4]
        self.partitions, self.topic_ends, self.topics = views[4:7]
        self.key_ends, self.keys, self.key_valid = views[7:10]
        self.value_ends, self.values, self.value_valid, self.header_ends = views[10:14]
        self.name_ends, self.names = views[14:16]
        self.header_value_ends, self.header_values, self.header_value_valid = views[16:]
        self.rows = rows
        self.headers = headers
        if not rows:
            self.topic_ends[0] = self.key_ends[0] = self.value_ends[0] = 0
            self.header_ends[0] = self.name_ends[0] = self.header_value_ends[0] = 0


class Lack:
    """Why a pass stopped before a batch that it could take otherwise.

    With ``rows``: the columns had no room for these rows of it, which take so many bytes (of keys,
    values, names and values of headers). With ``scratch``: it needs so many bytes to decompress.
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
    lack: Lack,
) -> tuple[int, int]:
    """Put the rows from ``start_offset`` on into the columns, of batches that are plain.

    Stops where the columns have ``max_rows`` rows, perhaps in the middle of a batch, or where the
    next batch could bring them over ``max_bytes`` in all; and before a batch that is not plain or
    not right, or that there is something lacking for. Returns the place of the batch where it
    stopped and the offset to go on from. Compiled, it decompresses LZ4 and zstd to ``scratch``.
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
        lack,
    )


def take_body(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
    lack: Lack,
) -> int:
    """The same for the records of one batch, decompressed.

    ALL_FIT if that is so, WRONG if anything is wrong with them, NO_ROOM if there was none, else the
    last offset that is a row.
    """
    timestamp_type = header.timestamp_type
    log_append = timestamp_type == LOG_APPEND_TIME
    return filled(
        _take,
        data,
        0,
        len(data),
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
        lack,
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
    lack: Lack,
) -> tuple[int, int]:
    passed = start_offset
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
                lack.scratch = -1 - body_size
                break
        if columns.rows and _filled_bytes(columns) + body_size > max_bytes:
            break
        log_append = attributes & 8 != 0
        last = _take(
            scratch if codec != 0 else data,
            0 if codec != 0 else pos + _HEADER_SIZE,
            body_size if codec != 0 else pos + size,
            int32_at(data, pos + 57),
            base_offset,
            last_offset_delta,
            int64_at(data, pos + 35 if log_append else pos + 27),
            1 if log_append else 0,
            passed,
            max_rows,
            topic,
            partition,
            columns,
            lack,
        )
        if last == WRONG or last == NO_ROOM:
            break
        if last >= 0:
            passed = max(passed, last + 1)
            break
        passed = base_offset + last_offset_delta + 1
        pos += size
    return pos, passed


def _filled_bytes(columns: Columns) -> int:
    """Bytes of keys, values and headers."""
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
    topic: bytes,
    partition: int,
    columns: Columns,
    lack: Lack,
) -> int:
    """A batch's rows: ALL_FIT, WRONG, NO_ROOM (see Lack), else the last offset that is a row.

    Strict as decode_records() is, and to the end of the batch also where only a part is taken.
    """
    if count < 0 or count > (end - pos) // MIN_RECORD_SIZE:
        return WRONG
    # Local, because a store of bytes may change, for all a C compiler knows, what columns has.
    offsets = columns.offsets
    timestamps = columns.timestamps
    timestamp_valid = columns.timestamp_valid
    timestamp_types = columns.timestamp_types
    partitions = columns.partitions
    topic_ends = columns.topic_ends
    topics = columns.topics
    key_ends = columns.key_ends
    keys = columns.keys
    key_valid = columns.key_valid
    value_ends = columns.value_ends
    values = columns.values
    value_valid = columns.value_valid
    header_ends = columns.header_ends
    row = columns.rows
    header = columns.headers
    topic_size = len(topic)
    topic_at = topic_ends[row]
    key_at = key_ends[row]
    value_at = value_ends[row]
    name_at = columns.name_ends[header]
    content_at = columns.header_value_ends[header]
    room = len(offsets)
    topic_room = len(topics)
    key_room = len(keys)
    value_room = len(values)
    log_append = timestamp_type == 1
    # Of the byte that the rows before end in, what a batch left that was given up.
    if row & 7:
        below = (1 << (row & 7)) - 1
        timestamp_valid[row >> 3] &= below
        key_valid[row >> 3] &= below
        value_valid[row >> 3] &= below
    begin = pos
    start = start_offset - base_offset
    last = -1
    cut = ALL_FIT
    for _ in range(count):
        raw, pos = _short(data, pos, end)
        stop = pos + (raw >> 1)
        if pos < 0 or raw & 1 or stop > end:
            return WRONG
        time, pos = _long(data, pos + 1, stop)
        if pos < 0:
            return WRONG
        raw, pos = _short(data, pos, stop)
        delta = raw >> 1
        if pos < 0 or raw & 1 or delta <= last:
            return WRONG
        last = delta
        key, key_pos = _short(data, pos, stop)
        if key_pos < 0 or (key & 1 and key != 1):
            return WRONG
        key_size = 0 if key == 1 else key >> 1
        if key_size > stop - key_pos:
            return WRONG
        value, value_pos = _short(data, key_pos + key_size, stop)
        if value_pos < 0 or (value & 1 and value != 1):
            return WRONG
        value_size = 0 if value == 1 else value >> 1
        if value_size > stop - value_pos:
            return WRONG
        pos = value_pos + value_size
        raw, pos = _short(data, pos, stop)
        if pos < 0 or raw & 1 or (raw >> 1) > (stop - pos) // 2:
            return WRONG
        taken = base_offset + delta >= start_offset
        if taken and row == max_rows:
            taken = False
            if cut == ALL_FIT:
                cut = base_offset + delta - 1
        if taken:
            if (
                row == room
                or topic_size > topic_room - topic_at
                or key_size > key_room - key_at
                or value_size > value_room - value_at
            ):
                return _measure(data, begin, end, count, start, max_rows - columns.rows, lack)
            offsets[row] = base_offset + delta
            timestamp = base_timestamp if log_append else wrapped(base_timestamp, time)
            timestamps[row] = timestamp
            timestamp_types[row] = timestamp_type
            partitions[row] = partition
            if row & 7 == 0:
                timestamp_valid[row >> 3] = key_valid[row >> 3] = value_valid[row >> 3] = 0
            if timestamp != -1:
                timestamp_valid[row >> 3] |= 1 << (row & 7)
            copy(topics, topic_at, topic, 0, topic_size)
            topic_at += topic_size
            if key != 1:
                copy(keys, key_at, data, key_pos, key_size)
                key_at += key_size
                key_valid[row >> 3] |= 1 << (row & 7)
            if value != 1:
                copy(values, value_at, data, value_pos, value_size)
                value_at += value_size
                value_valid[row >> 3] |= 1 << (row & 7)
        for _header in range(raw >> 1):
            name, name_pos = _short(data, pos, stop)
            if name_pos < 0 or name & 1 or (name >> 1) > stop - name_pos:
                return WRONG
            name_size = name >> 1
            content, pos = _short(data, name_pos + name_size, stop)
            if pos < 0 or (content & 1 and content != 1):
                return WRONG
            content_size = 0 if content == 1 else content >> 1
            if content_size > stop - pos:
                return WRONG
            if taken:
                if (
                    header == len(columns.name_ends) - 1
                    or name_size > len(columns.names) - name_at
                    or content_size > len(columns.header_values) - content_at
                ):
                    return _measure(data, begin, end, count, start, max_rows - columns.rows, lack)
                copy(columns.names, name_at, data, name_pos, name_size)
                name_at += name_size
                copy(columns.header_values, content_at, data, pos, content_size)
                content_at += content_size
                bit = 1 << (header & 7)
                if content != 1:
                    columns.header_value_valid[header >> 3] |= bit
                else:
                    columns.header_value_valid[header >> 3] &= ~bit
                header += 1
                columns.name_ends[header] = name_at
                columns.header_value_ends[header] = content_at
            pos += content_size
        if pos != stop:
            return WRONG
        if taken:
            row += 1
            topic_ends[row] = topic_at
            key_ends[row] = key_at
            value_ends[row] = value_at
            header_ends[row] = header
    if pos != end or last > last_offset_delta:
        return WRONG
    columns.rows = row
    columns.headers = header
    return cut


def _measure(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    count: int,
    start: int,
    max_rows: int,
    lack: Lack,
) -> int:
    """NO_ROOM, and how much a batch's rows take from a delta on; WRONG if they cannot be read."""
    rows = key_bytes = value_bytes = headers = name_bytes = header_value_bytes = 0
    for _ in range(count):
        raw, pos = _short(data, pos, end)
        stop = pos + (raw >> 1)
        if pos < 0 or stop > end:
            return WRONG
        _ignored, pos = _long(data, pos + 1, stop)
        if pos < 0:
            return WRONG
        raw, pos = _short(data, pos, stop)
        if pos < 0:
            return WRONG
        delta = raw >> 1
        taken = delta >= start
        if taken and rows == max_rows:
            break
        key, pos = _short(data, pos, stop)
        key_size = 0 if key == 1 else key >> 1
        if pos < 0 or key_size > stop - pos:
            return WRONG
        value, pos = _short(data, pos + key_size, stop)
        value_size = 0 if value == 1 else value >> 1
        if pos < 0 or value_size > stop - pos:
            return WRONG
        raw, pos = _short(data, pos + value_size, stop)
        if pos < 0 or (raw >> 1) > (stop - pos) // 2:
            return WRONG
        if taken:
            rows += 1
            key_bytes += key_size
            value_bytes += value_size
        for _header in range(raw >> 1):
            name, pos = _short(data, pos, stop)
            if pos < 0 or (name >> 1) > stop - pos:
                return WRONG
            content, pos = _short(data, pos + (name >> 1), stop)
            content_size = 0 if content == 1 else content >> 1
            if pos < 0 or content_size > stop - pos:
                return WRONG
            pos += content_size
            if taken:
                headers += 1
                name_bytes += name >> 1
                header_value_bytes += content_size
        pos = stop
    lack.rows = rows
    lack.key_bytes = key_bytes
    lack.value_bytes = value_bytes
    lack.headers = headers
    lack.name_bytes = name_bytes
    lack.header_value_bytes = header_value_bytes
    return NO_ROOM


def _short(data: bytes | bytearray | memoryview, pos: int, stop: int) -> tuple[int, int]:
    """As _varint(), but the position is -1 where that would raise."""
    if pos >= stop:
        return 0, -1
    raw = data[pos]
    pos += 1
    if raw < 0x80:
        return raw, pos
    raw &= 0x7F
    shift = 7
    while pos < stop and shift <= 28:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> 32:
                return 0, -1
            return raw, pos
        shift += 7
    return 0, -1


def _long(data: bytes | bytearray | memoryview, pos: int, stop: int) -> tuple[int, int]:
    """As _varlong(), but the position is -1 where that would raise."""
    if pos >= stop:
        return 0, -1
    raw = data[pos]
    pos += 1
    if raw < 0x80:
        return raw, pos
    raw &= 0x7F
    shift = 7
    while pos < stop and shift <= 63:
        byte = data[pos]
        pos += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, pos
        shift += 7
    return 0, -1
