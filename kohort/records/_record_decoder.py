"""Decoder of the records of batches, the hot loop of a consumer.

A record on the wire (KIP-98, message format 2), lengths and deltas as zigzag varints::

    length  attributes:int8  timestampDelta  offsetDelta
    keyLength key  valueLength value  headerCount [nameLength name valueLength value]

All of it is in this module, in plain Python over the indices of bytes, so that it compiles without
changes. ``_record_decoder_c`` is this source with the types of ``_record_decoder_c.pxd``. The error
of a batch with a wrong CRC comes from ``RecordBatch.check_crc()``. The rules of safety are:

- The length of a record is compared with the remaining bytes.
- The length of a field is compared with the remaining bytes of its record.
- A record must end exactly at its length.
- Reading a single byte past the end is an IndexError in both modules, which becomes a
  CorruptBatchError in one place.
"""
# ruff: noqa: F403, F405 -- what is imported by * is what the compiled module has in C instead

from __future__ import annotations

from bisect import bisect_left

from kohort.errors import CorruptBatchError
from kohort.records._primitives import *
from kohort.records._record import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, Headers, Record

MIN_RECORD_SIZE = 7
"""Bytes of the smallest record, with null key, null value and no headers."""

_INT64_HALF = 1 << 63
_WIDE = 1 << 60
"""Limit below which the sum of a timestamp and a zigzag delta fits in 64 bits."""
_HEADER_SIZE = 61
_MAX_BASE_OFFSET = 0x7FFF_FFFF_FFFF_FFFF - 0x8000_0000
_PLAIN = 0x48
"""Attributes that a plain batch may have, which are LogAppendTime and a delete horizon."""

_LZ4 = 3

prepare(ConsumerRecord)


def built_from() -> int:
    """Return the state of the source that this was compiled from, or 0 if it was not."""
    return build_state()


def use_lz4(address: int) -> None:
    """Set the address of LZ4_decompress_safe(). With 0, LZ4 is decompressed in Python."""
    use_decompressors(address, 0, 0, 0)


class Scan:
    """Facts from the headers of a partition's bytes. See :func:`scan`."""

    def __init__(self) -> None:
        self.end = 0
        """Position after the last complete batch with a valid header."""
        self.batches = 0
        self.next_offset = -1
        self.leader_epoch = -1


def scan(data: bytes | bytearray | memoryview) -> Scan:
    """Read the headers of complete batches, up to the first that is incomplete or invalid."""
    found = Scan()
    pos = 0
    left = len(data)
    while left >= _HEADER_SIZE:
        size = 12 + int32_at(data, pos + 8)
        base_offset = int64_at(data, pos)
        last_offset_delta = int32_at(data, pos + 23)
        if data[pos + 16] != 2 or not _HEADER_SIZE <= size <= left:
            break
        if last_offset_delta < 0 or base_offset < 0 or base_offset > _MAX_BASE_OFFSET:
            break
        found.batches += 1
        found.next_offset = max(found.next_offset, base_offset + last_offset_delta + 1)
        found.leader_epoch = int32_at(data, pos + 12)
        pos += size
        left -= size
    found.end = pos
    return found


def read_plain(
    data: bytes | bytearray | memoryview,
    pos: int,
    end: int,
    records: list[Record],
    enough: int,
    start_offset: int,
    check_crcs: bool,
    topic: str,
    partition: int,
    scratch: bytearray | memoryview,
) -> tuple[int, int]:
    """Append the records of batches in ``data[pos:end]``, which scan() has seen.

    It ends at ``enough`` records, or at the first batch that is not plain. Such a batch is
    compressed, transactional, a control batch, or invalid. Returns the position of that batch, and
    the offset after all batches before it. Records before ``start_offset``, or before the end of
    an earlier batch, are skipped. The compiled module, after use_lz4(), also reads LZ4 batches that
    fit in the scratch.
    """
    passed = start_offset
    while pos < end and len(records) < enough:
        size = 12 + int32_at(data, pos + 8)
        attributes = int16_at(data, pos + 21)
        base_offset = int64_at(data, pos)
        last_offset_delta = int32_at(data, pos + 23)
        if base_offset + last_offset_delta < passed:
            pos += size
            continue
        codec = attributes & ~_PLAIN
        if codec != 0 and codec != _LZ4:
            break
        if check_crcs:
            crc = uint32_at(data, pos + 17)
            if checksum(data, pos + 21, pos + size) != crc:
                break
        body_size = 0
        if codec == _LZ4:
            body_size = unpack(codec, data, pos + _HEADER_SIZE, pos + size, scratch)
            if body_size < 0:
                break
        count = int32_at(data, pos + 57)
        log_append = attributes & 8 != 0
        timestamp = int64_at(data, pos + 35 if log_append else pos + 27)
        epoch = int32_at(data, pos + 12)
        before = len(records)
        try:
            if codec == _LZ4:
                decode_records(
                    window(scratch, 0, body_size),
                    0,
                    count,
                    base_offset,
                    last_offset_delta,
                    timestamp,
                    log_append,
                    epoch,
                    topic,
                    partition,
                    records,
                )
            else:
                decode_records(
                    data[pos : pos + size],
                    _HEADER_SIZE,
                    count,
                    base_offset,
                    last_offset_delta,
                    timestamp,
                    log_append,
                    epoch,
                    topic,
                    partition,
                    records,
                )
        except CorruptBatchError:
            del records[before:]
            break
        pos += size
        if base_offset < passed:
            del records[before : bisect_left(records, passed, before, key=_offset)]
        passed = base_offset + last_offset_delta + 1
    return pos, passed


def decode_records(
    data: bytes | bytearray | memoryview,
    pos: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    log_append: bool,
    leader_epoch: int,
    topic: str,
    partition: int,
    records: list[Record],
) -> None:
    """Append the records in ``data[pos:]``. With LogAppendTime all have the base timestamp."""
    data = window(data, 0, len(data))
    end = len(data)
    if not 0 <= count <= (end - pos) // MIN_RECORD_SIZE:
        raise CorruptBatchError(f"{count} records do not fit in {end - pos} bytes")
    first = len(records)
    append = records.append
    wide = not -_WIDE < base_timestamp < _WIDE
    origin = (leader_epoch, LOG_APPEND_TIME if log_append else CREATE_TIME, None)
    no_headers: Headers = ()
    last = -1
    try:
        for _ in range(count):
            # In raw zigzag numbers even is n/2 and odd is negative.
            raw = data[pos]
            pos += 1
            if raw >= 0x80:
                if (high := data[pos]) < 0x80:
                    pos += 1
                    raw = raw & 0x7F | high << 7
                else:
                    raw, pos = _varint(data, pos - 1)
            stop = pos + (raw >> 1)
            if raw & 1 or stop > end:
                raise _corrupt("has a wrong length", len(records) - first)

            raw = data[pos + 1]  # skips the attributes, which are unused
            pos += 2
            if raw >= 0x80:
                if (high := data[pos]) < 0x80:
                    pos += 1
                    raw = raw & 0x7F | high << 7
                else:
                    raw, pos = _varlong(data, pos - 1)
                    wide = wide or raw >> 60 != 0
            if log_append:
                timestamp = base_timestamp
            else:
                timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))

            raw = data[pos]
            pos += 1
            if raw >= 0x80:
                if (high := data[pos]) < 0x80:
                    pos += 1
                    raw = raw & 0x7F | high << 7
                else:
                    raw, pos = _varint(data, pos - 1)
            delta = raw >> 1
            if raw & 1 or delta <= last:
                what = "has an offset that does not follow the one before"
                raise _corrupt(what, len(records) - first)
            last = delta

            raw = data[pos]
            pos += 1
            if raw >= 0x80:
                if (high := data[pos]) < 0x80:
                    pos += 1
                    raw = raw & 0x7F | high << 7
                else:
                    raw, pos = _varint(data, pos - 1)
            if not raw & 1:
                key_size = raw >> 1
                if key_size > stop - pos:
                    raise _corrupt("has a key longer than itself", len(records) - first)
                key_at = pos
                pos += key_size
            elif raw == 1:
                key_at = pos
                key_size = -1
            else:
                raise _corrupt("has a key of negative length", len(records) - first)

            raw = data[pos]
            pos += 1
            if raw >= 0x80:
                if (high := data[pos]) < 0x80:
                    pos += 1
                    raw = raw & 0x7F | high << 7
                else:
                    raw, pos = _varint(data, pos - 1)
            if not raw & 1:
                value_size = raw >> 1
                if value_size > stop - pos:
                    raise _corrupt("has a value longer than itself", len(records) - first)
                value_at = pos
                pos += value_size
            elif raw == 1:
                value_at = pos
                value_size = -1
            else:
                raise _corrupt("has a value of negative length", len(records) - first)

            if data[pos]:
                headers, header_size, pos = _headers(data, pos, stop)
                sizes = (key_size, value_size, header_size)
            else:
                headers = no_headers
                sizes = None
                pos += 1
            if pos != stop:
                raise _corrupt("does not end where its length says", len(records) - first)
            append(
                new_record(
                    topic,
                    partition,
                    origin,
                    data,
                    key_at,
                    key_size,
                    value_at,
                    value_size,
                    base_offset + delta,
                    timestamp,
                    headers,
                    sizes,
                )
            )
    except IndexError:
        raise _corrupt("ends too early", len(records) - first) from None
    if pos != end:
        raise CorruptBatchError(f"{end - pos} bytes follow the last record")
    if last > last_offset_delta:
        raise CorruptBatchError("the last record lies behind the batch's last offset")
    if wide and not log_append:
        _wrap_timestamps(records[first:])


def _headers(data: bytes, pos: int, stop: int) -> tuple[Headers, int, int]:
    """Return the headers, the bytes of their names and values, and the position after them.

    ``pos`` is that of their count.
    """
    raw, pos = _varint(data, pos)
    count = raw >> 1
    if raw & 1 or count > (stop - pos) // 2:
        raise CorruptBatchError("a record has an impossible number of headers")
    headers: list[tuple[str, bytes | None]] = []
    size = 0
    for _ in range(count):
        raw, pos = _varint(data, pos)
        split = pos + (raw >> 1)
        if raw & 1 or split > stop:
            raise CorruptBatchError("a header's name has a wrong length")
        # Not every producer writes UTF-8. Java's consumer reads such names in the same way.
        name = cut(data, pos, split).decode("utf-8", "replace")
        size += split - pos
        pos = split
        raw, pos = _varint(data, pos)
        value: bytes | None
        if raw == 1:
            value = None
        else:
            split = pos + (raw >> 1)
            if raw & 1 or split > stop:
                raise CorruptBatchError("a header's value has a wrong length")
            value = cut(data, pos, split)
            size += split - pos
            pos = split
        headers.append((name, value))
    return tuple(headers), size, pos


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return a raw zigzag number of at most 32 bits in 5 bytes, and the position after it."""
    raw = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise CorruptBatchError("a number of 32 bits is longer than 5 bytes")
    if raw >> 32:
        raise CorruptBatchError("a number does not fit in 32 bits")
    return raw, pos


def _varlong(data: bytes, pos: int) -> tuple[int, int]:
    """Return a raw zigzag number of at most 64 bits in 10 bytes, and the position after it."""
    raw = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CorruptBatchError("a number of 64 bits is longer than 10 bytes")
    if shift == 63 and byte > 1:
        raise CorruptBatchError("a number does not fit in 64 bits")
    return raw, pos


def _wrap_timestamps(records: list[Record]) -> None:
    """Wrap timestamps to 64 bits, as Java writes and reads the deltas."""
    for record in records:
        timestamp = (record.timestamp + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF
        object.__setattr__(record, "timestamp", timestamp)


def _offset(record: Record) -> int:
    return record.offset


def _corrupt(what: str, before: int) -> CorruptBatchError:
    return CorruptBatchError(f"record {before} of the batch {what}")
