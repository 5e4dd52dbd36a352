"""The batches in the bytes of a fetched, produced or stored partition."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kohort.errors import CorruptBatchError
from kohort.records._compression import DEFAULT_BUDGET
from kohort.records._crc import crc32c
from kohort.records._decoder import decode_records
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
from kohort.records._legacy import smallest_size
from kohort.records._record import LOG_APPEND_TIME, Record
from kohort.records._scratch import Scratch

_OFFSET_AND_LENGTH = struct.Struct(">qi")


class RecordBatch:
    """One whole batch: its header, read, and its bytes, not looked at before they are asked for."""

    __slots__ = ("header", "raw")

    def __init__(self, header: BatchHeader, raw: memoryview) -> None:
        self.header: BatchHeader = header
        self.raw: memoryview[int] = raw

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> RecordBatch:
        """The one batch that ``data`` is."""
        batches = list(split := split_batches(data))
        if len(batches) != 1 or split.tail_size:
            raise CorruptBatchError(f"{len(data)} bytes are not exactly one batch", raw=bytes(data))
        return batches[0]

    @classmethod
    def at(cls, data: memoryview, pos: int) -> RecordBatch:
        """The batch at a place where a scan() has seen one."""
        header = read_header(data, pos)
        return cls(header, data[pos : pos + header.size])

    def check_crc(self) -> None:
        """Raise CorruptBatchError if the batch is not what was sent."""
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
        """Every record, decompressed to at most ``budget`` bytes, labelled with its place.

        Raises CorruptBatchError (and its subclasses) with the batch's offsets and bytes, and
        nothing else, whatever the bytes are. The CRC is not checked here.
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
        """What follows the header, decompressed: valid until the scratch is used again.

        CorruptBatchError as from records().
        """
        try:
            return self._body(budget, scratch)
        except CorruptBatchError as error:
            raise self.located(error) from error.__cause__

    def _body(self, budget: int, scratch: Scratch | None) -> bytes | memoryview:
        data = self.raw[HEADER_SIZE:]
        # An empty batch is what compaction leaves of one: flags without anything compressed.
        if data and (codec := self.header.attributes & COMPRESSION_MASK):
            from kohort.records import _decompress  # with the first compressed batch

            if scratch is None:
                return _decompress.decompress(codec, data, budget)
            return _decompress.decompress_into(codec, data, scratch, budget)
        return data

    def located(self, error: CorruptBatchError) -> CorruptBatchError:
        """The same error with what is known of the place; the next offset only if it is sure."""
        header = self.header
        whole = header.count == header.last_offset_delta + 1
        sure = whole or crc32c(self.raw[ATTRIBUTES_AT:]) == header.crc
        return type(error)(
            f"the batch at offset {header.base_offset} is corrupt: {error}",
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
    """Iterates over whole batches; afterwards tells what was cut off behind them.

    A broker cuts its answer at a number of bytes, so a part of a batch at the end is nothing
    wrong. ``tail_size``: bytes of that part, 0 if there is none. ``tail_needs``: bytes that the
    batch in it claims to have, None if not even that is there.
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
            raise self._error(base_offset, f"a length of {length} is less than its header's")
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
        # Where the next batch would start is not known: nothing after this can be read.
        raw = bytes(self._data[self._pos :])
        self._pos = len(self._data)
        return CorruptBatchError(
            f"what should be a batch at offset {offset} is corrupt: {why}", offset=offset, raw=raw
        )


def split_batches(data: bytes | bytearray | memoryview) -> BatchSplit:
    """The batches in ``data``, in order, told apart by their headers alone.

    Raises CorruptBatchError, once, where the bytes are no batch; batches before that came out.
    """
    return BatchSplit(data)


def _wrong_magic(magic: int) -> str:
    if magic < MAGIC:
        return f"it is no batch but a message of format {magic}, from before Kafka 0.11"
    return f"magic {magic} is not {MAGIC}"
