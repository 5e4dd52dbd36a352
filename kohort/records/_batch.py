"""The records of one batch: the hot loop of a consumer.

A record on the wire (KIP-98, message format 2), lengths and deltas as zigzag varints::

    length  attributes:int8  timestampDelta  offsetDelta
    keyLength key  valueLength value  headerCount [nameLength name valueLength value]

All of it is in this one module, in plain Python over ``bytes`` indices, so that it can be compiled
as it stands. What is said here about safety: a record's length is checked against what is left, a
field's against what is left of its record, and a record must end exactly where its length said.
Reading single bytes past the end is Python's IndexError, turned into CorruptBatchError once.
"""

from __future__ import annotations

from typing import cast

from kohort.errors import CorruptBatchError
from kohort.records._record import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    ConsumerRecord,
    Headers,
    Record,
    RecordDraft,
)

MIN_RECORD_SIZE = 7
"""Bytes of the smallest record: null key, null value, no headers."""

_INT64_HALF = 1 << 63
_WIDE = 1 << 60
"""Timestamps and (zigzag) deltas below this cannot leave 64 bits when added."""


def decode_records(
    data: bytes,
    pos: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_timestamp: int | None,
    leader_epoch: int,
    topic: str,
    partition: int,
) -> list[Record]:
    """The records in ``data[pos:]``; ``append_timestamp`` (LogAppendTime) is that of them all."""
    end = len(data)
    if not 0 <= count <= (end - pos) // MIN_RECORD_SIZE:
        raise CorruptBatchError(f"{count} records cannot be in {end - pos} bytes")
    records: list[RecordDraft[bytes, bytes]] = []
    append = records.append
    wide = not -_WIDE < base_timestamp < _WIDE
    timestamp_type = CREATE_TIME if append_timestamp is None else LOG_APPEND_TIME
    no_headers: Headers = ()
    last = -1
    try:
        for _ in range(count):
            # Raw zigzag numbers: even is n/2, odd is negative.
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
                raise _corrupt("has a wrong length", records)

            raw = data[pos + 1]  # in between are the attributes, of which none is in use
            pos += 2
            if raw >= 0x80:
                if (high := data[pos]) < 0x80:
                    pos += 1
                    raw = raw & 0x7F | high << 7
                else:
                    raw, pos = _varlong(data, pos - 1)
                    wide = wide or raw >= _WIDE
            timestamp = base_timestamp + (raw >> 1) if not raw & 1 else base_timestamp + ~(raw >> 1)

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
                raise _corrupt("has an offset that does not follow the one before", records)
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
                split = pos + key_size
                if split > stop:
                    raise _corrupt("has a key longer than itself", records)
                key: bytes | None = data[pos:split]
                pos = split
            elif raw == 1:
                key_size = -1
                key = None
            else:
                raise _corrupt("has a key of negative length", records)

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
                split = pos + value_size
                if split > stop:
                    raise _corrupt("has a value longer than itself", records)
                value: bytes | None = data[pos:split]
                pos = split
            elif raw == 1:
                value_size = -1
                value = None
            else:
                raise _corrupt("has a value of negative length", records)

            draft: RecordDraft[bytes, bytes] = RecordDraft()
            if data[pos]:
                draft.headers, draft.serialized_header_size, pos = _headers(data, pos, stop)
            else:
                draft.headers = no_headers
                draft.serialized_header_size = -1
                pos += 1
            if pos != stop:
                raise _corrupt("does not end where its length says", records)
            draft.topic = topic
            draft.partition = partition
            draft.leader_epoch = leader_epoch
            draft.offset = base_offset + delta
            draft.timestamp = timestamp if append_timestamp is None else append_timestamp
            draft.timestamp_type = timestamp_type
            draft.key = key
            draft.value = value
            draft.checksum = None
            draft.serialized_key_size = key_size
            draft.serialized_value_size = value_size
            draft.__class__ = ConsumerRecord
            append(draft)
    except IndexError:
        raise _corrupt("ends too early", records) from None
    if pos != end:
        raise CorruptBatchError(f"{end - pos} bytes are left over behind the last record")
    if last > last_offset_delta:
        raise CorruptBatchError("the last record lies behind the batch's last offset")
    if wide and append_timestamp is None:
        _wrap_timestamps(records)
    return cast("list[Record]", records)


def _headers(data: bytes, pos: int, stop: int) -> tuple[Headers, int, int]:
    """The headers from their count on, the bytes of their names and values, the position after."""
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
        # Not every producer writes UTF-8; Java's consumer reads such names in this way, too.
        name = data[pos:split].decode("utf-8", "replace")
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
            value = data[pos:split]
            size += split - pos
            pos = split
        headers.append((name, value))
    return tuple(headers), size, pos


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """A raw zigzag number of at most 32 bits in at most 5 bytes, and the position after it."""
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
    """A raw zigzag number of at most 64 bits in at most 10 bytes, and the position after it."""
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
    if raw >> 64:
        raise CorruptBatchError("a number does not fit in 64 bits")
    return raw, pos


def _wrap_timestamps(records: list[RecordDraft[bytes, bytes]]) -> None:
    """Bring sums that left 64 bits back into them: Java writes and reads the deltas so."""
    for record in records:
        timestamp = (record.timestamp + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF
        object.__setattr__(record, "timestamp", timestamp)


def _corrupt(what: str, before: list[RecordDraft[bytes, bytes]]) -> CorruptBatchError:
    return CorruptBatchError(f"record {len(before)} of the batch {what}")
