"""Messages of the formats 0 and 1, from before Kafka 0.11, which old logs still have.

::

    offset:int64  size:int32  crc:uint32  magic:int8  attributes:int8  [timestamp:int64, format 1]
    keySize:int32 key  valueSize:int32 value

The CRC-32 counts from the magic on. The value of a compressed message holds other messages, and
the last of these has its offset. The inner offsets count from 0 in format 1 and are absolute in
format 0. There are no headers, producers or leader epochs.
"""

from __future__ import annotations

import struct
from typing import TypeAlias
from zlib import crc32

from kohort.errors import CorruptBatchError
from kohort.records._primitives import new_record
from kohort.records._record import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    Record,
)
from kohort.records.codecs._compression import DEFAULT_BUDGET
from kohort.records.codecs._scratch import Scratch
from kohort.types import NamedTuple

_HEAD = struct.Struct(">qiIBb")
_OFFSET_AND_SIZE = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_TIME_AND_SIZE = struct.Struct(">qi")
_SIZE_END, _MAGIC_AT = 12, 16
_CODEC_MASK, _LOG_APPEND_TIME_BIT = 0x07, 0x08
_SMALLEST = 14
_SMALLEST_WITH_TIME = 22
_OFFSET_MAX = 0x7FFF_FFFF_FFFF_FFFF - 0x8000_0000
"""Largest offset, the same as that of batches."""


class Messages(NamedTuple):
    """A sequence of messages, in which a compressed one counts as one."""

    end: int
    found: int
    last_offset: int


_Message: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]
"""offset, end, crc, magic, attributes, timestamp, place and size of the key and of the value."""


def smallest_size(magic: int) -> int:
    """Return the smallest value of the size field of a message."""
    return _SMALLEST_WITH_TIME if magic else _SMALLEST


def scan_messages(data: memoryview, pos: int) -> Messages:
    """Scan complete messages, up to the first that is incomplete, invalid or of a later format."""
    found, last_offset, left = 0, -1, len(data)
    while left - pos >= _HEAD.size:
        offset, size, _, magic, _ = _HEAD.unpack_from(data, pos)
        if magic > 1 or not smallest_size(magic) <= size <= left - pos - _SIZE_END:
            break
        if not 0 <= offset <= _OFFSET_MAX:
            break
        found += 1
        last_offset = max(last_offset, offset)
        pos += _SIZE_END + size
    return Messages(pos, found, last_offset)


def read_messages(
    data: memoryview,
    pos: int,
    end: int,
    records: list[Record],
    enough: int,
    start_offset: int,
    check_crcs: bool,
    topic: str,
    partition: int,
    scratch: Scratch | None = None,
    budget: int = DEFAULT_BUDGET,
) -> tuple[int, int]:
    """Append the records of messages in ``data[pos:end]``, which scan_messages() has seen.

    Returns the position where it ended and the offset after that. It ends at ``enough`` records,
    or before a message that cannot be read. Records before ``start_offset``, or before the end of
    an earlier message, are skipped. Raises CorruptBatchError with the offset and bytes of the
    message if the first one cannot be read.
    """
    begin, passed = pos, start_offset
    while pos < end and len(records) < enough:
        offset, size = _OFFSET_AND_SIZE.unpack_from(data, pos)
        stop = pos + _SIZE_END + size
        if offset >= passed:
            raw = bytes(data[pos:stop])
            try:
                message = _read(raw, 0, len(raw), check_crcs)
                if message[4] & _CODEC_MASK:
                    inner = _inside(raw, message, scratch or Scratch(), budget)
                    found = _read_inside(inner, message, check_crcs, topic, partition)
                    records += [record for record in found if record.offset >= passed]
                else:
                    records.append(_record(raw, message, topic, partition))
            except CorruptBatchError as error:
                if pos > begin:
                    break
                raise _located(error, offset, start_offset, raw) from error.__cause__
        pos = stop
        passed = max(passed, offset + 1)
    return pos, passed


def _read(data: bytes, pos: int, end: int, check_crc: bool) -> _Message:
    if end - pos < _SIZE_END + _SMALLEST:
        raise CorruptBatchError("a message ends too early")
    offset, size, crc, magic, attributes = _HEAD.unpack_from(data, pos)
    stop = pos + _SIZE_END + size
    if magic > 1:
        raise CorruptBatchError(f"a message of format {magic} is among those of an old one")
    if size < smallest_size(magic) or stop > end:
        raise CorruptBatchError(f"a message cannot have {size} bytes")
    if check_crc:
        computed = crc32(memoryview(data)[pos + _MAGIC_AT : stop])
        if computed != crc:
            raise CorruptBatchError(f"CRC is {crc:#010x}, of its bytes {computed:#010x}")
    if magic:
        timestamp, key_size = _TIME_AND_SIZE.unpack_from(data, pos + _HEAD.size)
        key_at = pos + _HEAD.size + _TIME_AND_SIZE.size
    else:
        timestamp = NO_TIMESTAMP
        (key_size,) = _INT32.unpack_from(data, pos + _HEAD.size)
        key_at = pos + _HEAD.size + 4
    at = key_at + key_size if key_size > 0 else key_at
    if key_size < -1 or at + 4 > stop:
        raise CorruptBatchError("a message has a key longer than itself")
    (value_size,) = _INT32.unpack_from(data, at)
    value_at = at + 4
    if value_size < -1 or (value_at + value_size if value_size > 0 else value_at) != stop:
        raise CorruptBatchError("a message does not end where its size says")
    return (
        offset,
        stop,
        crc,
        magic,
        attributes,
        timestamp,
        key_at,
        key_size,
        value_at,
        value_size,
    )


def _inside(data: bytes, wrapper: _Message, scratch: Scratch, budget: int) -> bytes:
    """Return the decompressed content of a message."""
    _, stop, _, magic, attributes, _, _, _, value_at, value_size = wrapper
    if value_size < 0:
        raise CorruptBatchError("a compressed message has no value")
    # With the first compressed message.
    from kohort.records.codecs._decompress import decompress_into

    return bytes(
        decompress_into(
            attributes & _CODEC_MASK,
            memoryview(data)[value_at:stop],
            scratch,
            budget,
            # Frames of format 0 have checksums over too many bytes (KIP-57).
            any_lz4_header_checksum=magic == 0,
        )
    )


def _read_inside(
    data: bytes, wrapper: _Message, check_crcs: bool, topic: str, partition: int
) -> list[Record]:
    """Return the records of the messages in a compressed one."""
    last_offset, _, _, magic, attributes, wrapper_time, *_ = wrapper
    messages: list[_Message] = []
    pos, last, end = 0, -1, len(data)
    while pos < end:
        message = _read(data, pos, end, check_crcs)
        if message[3] != magic:
            raise CorruptBatchError(f"a message of format {message[3]} is in one of format {magic}")
        if message[4] & _CODEC_MASK:
            raise CorruptBatchError("a compressed message is in a compressed message")
        if message[0] <= last:
            raise CorruptBatchError("a message has an offset that does not follow the one before")
        last, pos = message[0], message[1]
        messages.append(message)
    base = last_offset - last if magic else 0
    if not messages or base < 0 or last + base > last_offset:
        raise CorruptBatchError(
            f"the messages in a compressed message have offsets up to {last}, it has {last_offset}"
        )
    time = wrapper_time if magic and attributes & _LOG_APPEND_TIME_BIT else None
    return [
        _record(data, message, topic, partition, base, attributes, time) for message in messages
    ]


def _record(
    data: bytes,
    message: _Message,
    topic: str,
    partition: int,
    base: int = 0,
    attributes: int | None = None,
    time: int | None = None,
) -> Record:
    offset, _, crc, magic, own, timestamp, key_at, key_size, value_at, value_size = message
    if not magic:
        kind = NO_TIMESTAMP_TYPE
    elif (own if attributes is None else attributes) & _LOG_APPEND_TIME_BIT:
        kind = LOG_APPEND_TIME
    else:
        kind = CREATE_TIME
    return new_record(
        topic,
        partition,
        (-1, kind, crc),
        data,
        key_at,
        key_size,
        value_at,
        value_size,
        base + offset,
        timestamp if time is None else time,
        (),
        None,
    )


def fault_of(error: CorruptBatchError) -> str:
    """Say in words that data is corrupt, or that only this process cannot read it."""
    return "is corrupt" if type(error) is CorruptBatchError else "cannot be read here"


def _located(
    error: CorruptBatchError, offset: int, start_offset: int, raw: bytes
) -> CorruptBatchError:
    # A compressed message does not show the offset of its first inner message.
    first = min(offset, max(start_offset, 0)) if raw[17] & _CODEC_MASK else offset
    return type(error)(
        f"the message at offset {offset} {fault_of(error)}: {error}",
        offset=first,
        next_offset=offset + 1,
        raw=raw,
    )
