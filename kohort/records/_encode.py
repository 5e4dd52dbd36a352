"""Encoder of record batches for producers, and the changes of a broker that appends them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from kohort.records._header import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL_BIT,
)
from kohort.records._record import LOG_APPEND_TIME, NO_TIMESTAMP
from kohort.records.codecs._compression import Compression, codec_of, compress
from kohort.records.codecs._crc32c import crc32c
from kohort.types import NamedTuple

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_INT64_HALF = 1 << 63


class NewRecord(NamedTuple):
    """A record to be written. ``timestamp`` is in milliseconds since the epoch."""

    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode_batch(
    records: Iterable[tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """Return a batch of ``records``, each a NewRecord or a tuple of its fields.

    By default ``base_timestamp`` is that of the first record and ``max_timestamp`` the highest. A
    compacted batch has ``offset_deltas`` with gaps and keeps the ``last_offset_delta``. Its
    tombstones may be removed at ``delete_horizon_ms``, which replaces the ``base_timestamp``.
    """
    records = list(records)
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    if base_timestamp is None:
        base_timestamp = records[0][0] if records else NO_TIMESTAMP
    if max_timestamp is None:
        max_timestamp = max((record[0] for record in records), default=NO_TIMESTAMP)
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if records else 0

    body = bytearray()
    for delta, (timestamp, key, value, headers) in zip(deltas, records, strict=True):
        record = bytearray(b"\0")
        # A large difference wraps in 64 bits, as in Java, and the reader wraps it back.
        _put_varint(record, (timestamp - base_timestamp + _INT64_HALF) % (1 << 64) - _INT64_HALF)
        _put_varint(record, delta)
        _put_bytes(record, key)
        _put_bytes(record, value)
        _put_varint(record, len(headers))
        for name, content in headers:
            _put_bytes(record, name.encode())
            _put_bytes(record, content)
        _put_varint(body, len(record))
        body += record
    codec = codec_of(compression)
    payload = compress(codec, body) if records else b""

    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_END + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += payload
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def rewrite_header(
    batch: bytes | bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    log_append_time: int | None = None,
) -> bytes:
    """Return a copy of a batch as a broker appends it.

    Offset and epoch are outside of the CRC. ``log_append_time`` becomes the timestamp of all
    records, for topics whose message.timestamp.type is LogAppendTime.
    """
    changed = bytearray(batch)
    _BASE_OFFSET.pack_into(changed, 0, base_offset)
    _LEADER_EPOCH.pack_into(changed, _LEADER_EPOCH_AT, leader_epoch)
    if log_append_time is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(changed, ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(changed, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
        _MAX_TIMESTAMP.pack_into(changed, MAX_TIMESTAMP_AT, log_append_time)
        _CRC.pack_into(changed, CRC_AT, crc32c(memoryview(changed)[ATTRIBUTES_AT:]))
    return bytes(changed)


def _put_varint(out: bytearray, number: int) -> None:
    raw = number << 1 if number >= 0 else ~(number << 1)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _put_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)
    else:
        _put_varint(out, len(content))
        out += content
