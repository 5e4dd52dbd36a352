"""Rows of a table straight from batches, in Arrow's layout, without an object for a record.

In two passes: the first one measures, and finds whatever is wrong; the second one fills memory of
just the right size and has nothing to check any more. Like ``_batch.py`` this is plain Python that
is compiled as it stands, with the types of ``_columns_c.pxd``; compiled, both passes run without
the interpreter's lock.
"""
# cython: boundscheck=False
# Every read is checked here, and every write was measured.
# ruff: noqa: F403, F405 -- what is imported by * is what the compiled module has in C instead

from __future__ import annotations

from kohort.records._header import BatchHeader
from kohort.records._primitives import *
from kohort.records._record import LOG_APPEND_TIME

MIN_RECORD_SIZE = 7
_HEADER_SIZE = 61
_PLAIN = 0x48

prepare()


def built_from() -> int:
    """As in ``_batch``."""
    return build_state()


class Columns:
    """Memory for the rows of a table, in Arrow's layout, and how much of it is filled.

    Of strings, ``*_ends`` has where each ends, after a 0; in ``*_valid`` a bit is set for each
    that is not null.
    """

    def __init__(
        self,
        offsets: memoryview,
        timestamps: memoryview,
        timestamp_valid: memoryview,
        timestamp_types: memoryview,
        partitions: memoryview,
        topic_ends: memoryview,
        topics: memoryview,
        key_ends: memoryview,
        keys: memoryview,
        key_valid: memoryview,
        value_ends: memoryview,
        values: memoryview,
        value_valid: memoryview,
        header_ends: memoryview,
        name_ends: memoryview,
        names: memoryview,
        header_value_ends: memoryview,
        header_values: memoryview,
        header_value_valid: memoryview,
    ) -> None:
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_valid = timestamp_valid
        self.timestamp_types = timestamp_types
        self.partitions = partitions
        self.topic_ends = topic_ends
        self.topics = topics
        self.key_ends = key_ends
        self.keys = keys
        self.key_valid = key_valid
        self.value_ends = value_ends
        self.values = values
        self.value_valid = value_valid
        self.header_ends = header_ends
        self.name_ends = name_ends
        self.names = names
        self.header_value_ends = header_value_ends
        self.header_values = header_values
        self.header_value_valid = header_value_valid
        self.rows = 0
        self.headers = 0
        for ends in (topic_ends, key_ends, value_ends, header_ends, name_ends, header_value_ends):
            ends[0] = 0
        for valid in (timestamp_valid, key_valid, value_valid, header_value_valid):
            valid[:] = bytes(len(valid))


class Sizes:
    """How much the columns have to hold, of rows that were measured and found right."""

    def __init__(self) -> None:
        self.rows = 0
        self.key_bytes = 0
        self.value_bytes = 0
        self.headers = 0
        self.name_bytes = 0
        self.header_value_bytes = 0


def measure_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    start_offset: int,
    max_rows: int,
    max_bytes: int,
    check_crcs: bool,
    sizes: Sizes,
) -> tuple[int, int]:
    """As read_plain(), but only adds up what the rows from ``start_offset`` on would take.

    Stops where ``sizes`` has ``max_rows`` rows, perhaps in the middle of a batch, or where the
    next batch could bring it over ``max_bytes`` in all. Returns the place of the batch where it
    stopped and the offset to go on from.
    """
    return released(
        _measure_plain, data, pos, end, start_offset, max_rows, max_bytes, check_crcs, sizes
    )


def fill_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
) -> None:
    """Put the rows that measure_plain() has counted between the same places into the columns."""
    filled(_fill_plain, data, pos, end, start_offset, max_rows, topic, partition, columns)


def measure_body(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    start_offset: int,
    max_rows: int,
    sizes: Sizes,
) -> int:
    """The same for the records of one batch, decompressed; -1 if anything is wrong with them."""
    return _measure(
        data,
        0,
        len(data),
        header.count,
        header.base_offset,
        header.last_offset_delta,
        start_offset,
        max_rows,
        sizes,
    )


def fill_body(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
) -> None:
    """Put what measure_body() has counted into the columns."""
    timestamp_type = header.timestamp_type
    log_append = timestamp_type == LOG_APPEND_TIME
    base_timestamp = header.max_timestamp if log_append else header.base_timestamp
    _fill(
        data,
        0,
        header.count,
        header.base_offset,
        base_timestamp,
        timestamp_type,
        start_offset,
        max_rows,
        topic,
        partition,
        columns,
    )


def _measure_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    start_offset: int,
    max_rows: int,
    max_bytes: int,
    check_crcs: bool,
    sizes: Sizes,
) -> tuple[int, int]:
    passed = start_offset
    while pos < end and sizes.rows < max_rows:
        size = 12 + int32_at(data, pos + 8)
        attributes = int16_at(data, pos + 21)
        base_offset = int64_at(data, pos)
        last_offset_delta = int32_at(data, pos + 23)
        if base_offset + last_offset_delta < passed:
            pos += size
            continue
        if attributes & ~_PLAIN:
            break
        total = sizes.key_bytes + sizes.value_bytes + sizes.name_bytes + sizes.header_value_bytes
        if sizes.rows and total + size > max_bytes:
            break
        if check_crcs:
            crc = uint32_at(data, pos + 17)
            if checksum(data, pos + 21, pos + size) != crc:
                break
        count = int32_at(data, pos + 57)
        last = _measure(
            data,
            pos + _HEADER_SIZE,
            pos + size,
            count,
            base_offset,
            last_offset_delta,
            passed,
            max_rows,
            sizes,
        )
        if last == -1:
            break
        if last >= 0:
            passed = max(passed, last + 1)
            break
        passed = base_offset + last_offset_delta + 1
        pos += size
    return pos, passed


def _measure(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    start_offset: int,
    max_rows: int,
    sizes: Sizes,
) -> int:
    """Add up a batch's rows; -1 if it is not right, -2 if all fit, else the last offset that did.

    Strict as decode_records() is, and to the end of the batch also where only a part is taken.
    """
    if count < 0 or count > (end - pos) // MIN_RECORD_SIZE:
        return -1
    rows = sizes.rows
    key_bytes = value_bytes = headers = name_bytes = header_value_bytes = 0
    last = -1
    cut = -2
    for _ in range(count):
        raw, pos = _short(data, pos, end)
        stop = pos + (raw >> 1)
        if pos < 0 or raw & 1 or stop > end:
            return -1
        _ignored, pos = _long(data, pos + 1, stop)
        if pos < 0:
            return -1
        raw, pos = _short(data, pos, stop)
        delta = raw >> 1
        if pos < 0 or raw & 1 or delta <= last:
            return -1
        last = delta
        key, pos = _short(data, pos, stop)
        if pos < 0 or (key & 1 and key != 1):
            return -1
        key_size = 0 if key == 1 else key >> 1
        if key_size > stop - pos:
            return -1
        value, pos = _short(data, pos + key_size, stop)
        if pos < 0 or (value & 1 and value != 1):
            return -1
        value_size = 0 if value == 1 else value >> 1
        if value_size > stop - pos:
            return -1
        pos += value_size
        raw, pos = _short(data, pos, stop)
        if pos < 0 or raw & 1 or (raw >> 1) > (stop - pos) // 2:
            return -1
        taken = base_offset + delta >= start_offset
        if taken and rows == max_rows:
            taken = False
            if cut == -2:
                cut = base_offset + delta - 1
        for _header in range(raw >> 1):
            name, pos = _short(data, pos, stop)
            if pos < 0 or name & 1 or (name >> 1) > stop - pos:
                return -1
            content, pos = _short(data, pos + (name >> 1), stop)
            if pos < 0 or (content & 1 and content != 1):
                return -1
            content_size = 0 if content == 1 else content >> 1
            if content_size > stop - pos:
                return -1
            pos += content_size
            if taken:
                headers += 1
                name_bytes += name >> 1
                header_value_bytes += content_size
        if pos != stop:
            return -1
        if taken:
            rows += 1
            key_bytes += key_size
            value_bytes += value_size
    if pos != end or last > last_offset_delta:
        return -1
    sizes.rows = rows
    sizes.key_bytes += key_bytes
    sizes.value_bytes += value_bytes
    sizes.headers += headers
    sizes.name_bytes += name_bytes
    sizes.header_value_bytes += header_value_bytes
    return cut


def _fill_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
) -> None:
    while pos < end and columns.rows < max_rows:
        size = 12 + int32_at(data, pos + 8)
        attributes = int16_at(data, pos + 21)
        base_offset = int64_at(data, pos)
        last_offset = base_offset + int32_at(data, pos + 23)
        if last_offset >= start_offset:
            log_append = attributes & 8 != 0
            timestamp = int64_at(data, pos + 35 if log_append else pos + 27)
            count = int32_at(data, pos + 57)
            _fill(
                data,
                pos + _HEADER_SIZE,
                count,
                base_offset,
                timestamp,
                1 if log_append else 0,
                start_offset,
                max_rows,
                topic,
                partition,
                columns,
            )
            start_offset = last_offset + 1
        pos += size


def _fill(
    data: bytes | bytearray | memoryview,
    pos: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    timestamp_type: int,
    start_offset: int,
    max_rows: int,
    topic: bytes,
    partition: int,
    columns: Columns,
) -> None:
    """The rows of a batch that was measured: nothing is checked here any more."""
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
    end = len(data)
    row = columns.rows
    header = columns.headers
    topic_size = len(topic)
    topic_at = topic_ends[row]
    key_at = key_ends[row]
    value_at = value_ends[row]
    name_at = columns.name_ends[header]
    content_at = columns.header_value_ends[header]
    log_append = timestamp_type == 1
    for _ in range(count):
        if row == max_rows:
            break
        raw, pos = _short(data, pos, end)
        stop = pos + (raw >> 1)
        raw, pos = _long(data, pos + 1, end)
        timestamp = base_timestamp if log_append else wrapped(base_timestamp, raw)
        raw, pos = _short(data, pos, end)
        offset = base_offset + (raw >> 1)
        if offset < start_offset:
            pos = stop
            continue
        offsets[row] = offset
        timestamps[row] = timestamp
        if timestamp != -1:
            timestamp_valid[row >> 3] |= 1 << (row & 7)
        timestamp_types[row] = timestamp_type
        partitions[row] = partition
        copy(topics, topic_at, topic, 0, topic_size)
        topic_at += topic_size
        raw, pos = _short(data, pos, end)
        if raw != 1:
            copy(keys, key_at, data, pos, raw >> 1)
            key_at += raw >> 1
            pos += raw >> 1
            key_valid[row >> 3] |= 1 << (row & 7)
        raw, pos = _short(data, pos, end)
        if raw != 1:
            copy(values, value_at, data, pos, raw >> 1)
            value_at += raw >> 1
            pos += raw >> 1
            value_valid[row >> 3] |= 1 << (row & 7)
        raw, pos = _short(data, pos, end)
        for _header in range(raw >> 1):
            raw, pos = _short(data, pos, end)
            copy(columns.names, name_at, data, pos, raw >> 1)
            name_at += raw >> 1
            pos += raw >> 1
            raw, pos = _short(data, pos, end)
            if raw != 1:
                copy(columns.header_values, content_at, data, pos, raw >> 1)
                content_at += raw >> 1
                pos += raw >> 1
                columns.header_value_valid[header >> 3] |= 1 << (header & 7)
            header += 1
            columns.name_ends[header] = name_at
            columns.header_value_ends[header] = content_at
        row += 1
        topic_ends[row] = topic_at
        key_ends[row] = key_at
        value_ends[row] = value_at
        header_ends[row] = header
    columns.rows = row
    columns.headers = header


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
