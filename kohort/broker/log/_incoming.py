"""Validation of produced batches, and their conversion to the topic's format."""

from __future__ import annotations

from collections.abc import Callable

from kohort.broker.log._log import AppendError
from kohort.errors import CorruptBatchError, ErrorCode
from kohort.records import (
    NO_TIMESTAMP,
    Compression,
    NewRecord,
    Record,
    RecordBatch,
    encode_batch,
    scan_messages,
    split_batches,
)

Config = Callable[[str], str]
"""Function that returns a topic's setting by its name."""

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_FOREVER = (1 << 63) - 1


def single_batch(records: bytes | bytearray | memoryview | None) -> RecordBatch:
    """Return the one batch that a request has for a partition; trailing bytes are ignored."""
    split = split_batches(b"" if records is None else records)
    try:
        first, second = next(split, None), next(split, None)
    except CorruptBatchError as error:
        old = scan_messages(memoryview(error.raw or b""), 0).found
        code = ErrorCode.INVALID_RECORD if old else ErrorCode.CORRUPT_MESSAGE
        raise AppendError(code, str(error)) from error
    if first is None or second is not None:
        raise AppendError(
            ErrorCode.INVALID_RECORD, "a request must have exactly one batch for a partition"
        )
    return first


def accepted_batch(batch: RecordBatch, config: Config, now_ms: int) -> RecordBatch:
    """Return the batch as the topic stores it; AppendError if the topic refuses it.

    Records are decoded only if the topic's settings require it.
    """
    own = _check(batch, int(config("max.message.bytes")))
    codec = _CODECS.get(config("compression.type"), own)
    compacted = "compact" in config("cleanup.policy")
    before, after = _time_bounds(config)
    bounded = min(before, after) < _FOREVER
    if codec is own and not compacted and not bounded:
        return batch
    records = _records(batch)
    if compacted:
        _refuse(
            [index for index, record in enumerate(records) if record.key is None],
            ErrorCode.INVALID_RECORD,
            "a compacted topic accepts no record without a key",
        )
    if bounded:
        _refuse(
            [
                index
                for index, record in enumerate(records)
                if record.timestamp != NO_TIMESTAMP
                and not now_ms - before <= record.timestamp <= now_ms + after
            ],
            ErrorCode.INVALID_TIMESTAMP,
            "the timestamp is too far from the broker's time",
        )
    return batch if codec is own else _recompressed(batch, records, codec)


def _check(batch: RecordBatch, limit: int) -> Compression:
    """Check header and checksum, and return the codec."""
    header = batch.header
    if header.size > limit:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size} bytes is larger than the topic's limit of {limit}",
        )
    try:
        batch.check_crc()
    except CorruptBatchError as error:
        raise AppendError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    try:
        codec = header.compression
    except CorruptBatchError as error:
        raise AppendError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    if header.base_offset != 0:
        problem = f"the base offset of a new batch must be 0, not {header.base_offset}"
    elif header.count <= 0 or header.count != header.last_offset_delta + 1:
        problem = f"{header.count} records do not match the last delta {header.last_offset_delta}"
    elif header.is_control:
        problem = "clients must not write markers"
    else:
        return codec
    raise AppendError(ErrorCode.INVALID_RECORD, problem)


def _time_bounds(config: Config) -> tuple[int, int]:
    """Return the largest ms of a producer's time before and after the broker's."""
    if config("message.timestamp.type") == "LogAppendTime":
        return _FOREVER, _FOREVER
    name = "message.timestamp.{}.max.ms"
    return int(config(name.format("before"))), int(config(name.format("after")))


def _records(batch: RecordBatch) -> list[Record]:
    try:
        return batch.records()
    except CorruptBatchError as error:
        compressed = batch.header.compression is not Compression.NONE
        code = ErrorCode.UNKNOWN_SERVER_ERROR if compressed else ErrorCode.INVALID_RECORD
        raise AppendError(code, str(error)) from error


def _refuse(bad: list[int], code: ErrorCode, message: str) -> None:
    if bad:
        raise AppendError(code, message, records=bad)


def _recompressed(batch: RecordBatch, records: list[Record], codec: Compression) -> RecordBatch:
    header = batch.header
    data = encode_batch(
        [NewRecord(r.timestamp, r.key, r.value, r.headers) for r in records],
        compression=codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    return RecordBatch.of(data)
