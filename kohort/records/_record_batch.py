"""RecordBatch: one batch with its CRC check, and the splitter of a partition's bytes into batches.

The fast path for many plain batches is ``read_plain()`` in ``_record_decoder``. It checks each CRC
too, and leaves batches that do not match to ``RecordBatch.check_crc()``, which raises the error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kohort.errors import CorruptBatchError
from kohort.records._decoder_choice import decode_records
from kohort.records._header import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    MIN_LENGTH,
    BatchHeader,
    read_header,
)
from kohort.records._legacy import fault_of, smallest_size
from kohort.records._record import LOG_APPEND_TIME, Record
from kohort.records.codecs._compression import DEFAULT_BUDGET
from kohort.records.codecs._crc32c import crc32c
from kohort.records.codecs._scratch import Scratch

_OFFSET_AND_LENGTH = struct.Struct(">qi")


class RecordBatch:
    """A complete batch, with its parsed header and its bytes, which are decoded on request."""

    __slots__ = ("header", "raw")

    def __init__(self, header: BatchHeader, raw: memoryview) -> None:
        self.header: BatchHeader = header
        self.raw: memoryview[int] = raw

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> RecordBatch:
        """Return the batch that fills ``data``."""
        batches = list(split := split_batches(data))
        if len(batches) != 1 or split.tail_size:
            raise CorruptBatchError(f"{len(data)} bytes are not exactly one batch", raw=bytes(data))
        return batches[0]

    @classmethod
    def at(cls, data: memoryview, pos: int) -> RecordBatch:
        """Return the batch at a position where a scan() found one."""
        header = read_header(data, pos)
        return cls(header, data[pos : pos + header.size])

    def check_crc(self) -> None:
        """Raise CorruptBatchError if the batch does not match its CRC."""
        computed = crc32c(self.raw[ATTRIBUTES_AT:])
        if computed != self.header.crc:
            raise self.located(
                CorruptBatchError(f"CRC is {self.header.crc:#010x}, of its bytes {computed:#010x}")
            )

    def records(
        self,
        budget: int = DEFAULT_BUDGET,
        *,
        topic: str = "",
        partition: int = -1,
        scratch: Scratch | None = None,
    ) -> list[Record]:
        """Return all records with topic and partition, decompressed to at most ``budget`` bytes.

        Raises only CorruptBatchError and its subclasses, for all bytes, with the batch's offsets
        and bytes. The CRC is not checked here.
        """
        header = self.header
        try:
            data = self._body(budget, scratch)
            log_append = header.timestamp_type == LOG_APPEND_TIME
            records: list[Record] = []
            decode_records(
                data,
                0,
                header.count,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp if log_append else header.base_timestamp,
                log_append,
                header.partition_leader_epoch,
                topic,
                partition,
                records,
            )
            return records
        except CorruptBatchError as error:
            raise self.located(error) from error.__cause__

    def body(
        self, budget: int = DEFAULT_BUDGET, scratch: Scratch | None = None
    ) -> bytes | memoryview:
        """Return the decompressed bytes after the header, valid until the next use of the scratch.

        CorruptBatchError as from records().
        """
        try:
            return self._body(budget, scratch)
        except CorruptBatchError as error:
            raise self.located(error) from error.__cause__

    def _body(self, budget: int, scratch: Scratch | None) -> bytes | memoryview:
        data = self.raw[HEADER_SIZE:]
        # Compaction leaves empty batches, which have flags and no compressed bytes.
        if data and (codec := self.header.attributes & COMPRESSION_MASK):
            from kohort.records.codecs import _decompress  # with the first compressed batch

            if scratch is None:
                return _decompress.decompress(codec, data, budget)
            return _decompress.decompress_into(codec, data, scratch, budget)
        return data

    def located(self, error: CorruptBatchError) -> CorruptBatchError:
        """Return the error with its position, and with the next offset only if that is certain."""
        header = self.header
        whole = header.count == header.last_offset_delta + 1
        sure = whole or crc32c(self.raw[ATTRIBUTES_AT:]) == header.crc
        return type(error)(
            f"the batch at offset {header.base_offset} {fault_of(error)}: {error}",
            offset=header.base_offset,
            next_offset=header.next_offset if sure else None,
            raw=bytes(self.raw),
        )

    def __repr__(self) -> str:
        header = self.header
        return (
            f"<RecordBatch offsets {header.base_offset}..{header.last_offset}, "
            f"{header.count} records, {header.size} bytes>"
        )


class BatchSplit(Iterator[RecordBatch]):
    """An iterator over complete batches. At its end it has the size of an incomplete one.

    A broker cuts its response at a number of bytes, so an incomplete batch at the end is no error.
    ``tail_size`` has the bytes of that part, or 0. ``tail_needs`` has the size of the batch, or
    None if its length field is incomplete.
    """

    __slots__ = ("_data", "_pos", "tail_needs", "tail_size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = memoryview(data)
        self._pos = 0
        self.tail_size: int = 0
        self.tail_needs: int | None = None

    def __next__(self) -> RecordBatch:
        data, pos = self._data, self._pos
        left = len(data) - pos
        if left < LENGTH_END:
            return self._stop(left, None)
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, pos)
        size = LENGTH_END + length
        if left > MAGIC_AT and (magic := data[pos + MAGIC_AT]) != MAGIC:
            if magic < MAGIC and length >= smallest_size(magic) and size > left:
                return self._stop(left, size)
            raise self._error(base_offset, _wrong_magic(magic))
        if length < (MIN_LENGTH if left > MAGIC_AT else smallest_size(0)):
            raise self._error(base_offset, f"its length {length} is less than that of a header")
        if size > left:
            return self._stop(left, size)
        try:
            header = read_header(data, pos)
        except CorruptBatchError as error:
            raise self._error(base_offset, str(error)) from None
        self._pos = pos + size
        return RecordBatch(header, data[pos : pos + size])

    def _stop(self, tail_size: int, tail_needs: int | None) -> RecordBatch:
        self.tail_size = tail_size
        self.tail_needs = tail_needs
        raise StopIteration

    def _error(self, offset: int, why: str) -> CorruptBatchError:
        # The start of the next batch is unknown, so no later bytes can be read.
        raw = bytes(self._data[self._pos :])
        self._pos = len(self._data)
        return CorruptBatchError(
            f"what should be a batch at offset {offset} is corrupt: {why}", offset=offset, raw=raw
        )


def split_batches(data: bytes | bytearray | memoryview) -> BatchSplit:
    """Return the batches in ``data`` in order, split by their headers alone.

    The iterator raises CorruptBatchError once, after the batches before the invalid bytes.
    """
    return BatchSplit(data)


def _wrong_magic(magic: int) -> str:
    if magic < MAGIC:
        return f"it is no batch but a message of format {magic}, from before Kafka 0.11"
    return f"magic {magic} is not {MAGIC}"
