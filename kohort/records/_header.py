"""Header of a record batch, the 61 bytes before the records (KIP-98)."""

from __future__ import annotations

import struct

from kohort.errors import CorruptBatchError
from kohort.records._record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE
from kohort.records.codecs._compression import Compression, codec_of

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_END = 12
"""Position from which ``length`` counts."""
MIN_LENGTH = HEADER_SIZE - LENGTH_END
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
"""Position of the attributes, from which on the CRC counts."""
MAX_TIMESTAMP_AT = 35
MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF


class BatchHeader:
    """The fields in the order of the wire. ``length`` counts the bytes after it.

    ``base_offset`` and ``partition_leader_epoch`` are the broker's and outside of the CRC.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    def __init__(self, fields: tuple[int, ...]) -> None:
        (
            self.base_offset,
            self.length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = fields

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset to fetch after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def compression(self) -> Compression:
        """The codec. Raises UnsupportedCodecError for an unknown one."""
        return codec_of(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, the producer's, and 1 for LogAppendTime.

        With LogAppendTime each record has ``max_timestamp``. -1 is for messages of format 0, which
        had no timestamps.
        """
        if not self.magic:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """True for a part of a transaction, including its markers."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """True for a batch of the cluster itself, which users never see."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if ``base_timestamp`` is the time when tombstones may be dropped (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0


def read_header(data: bytes | bytearray | memoryview, pos: int = 0) -> BatchHeader:
    """Return the header at ``pos``, which has 61 bytes. Raises CorruptBatchError."""
    header = BatchHeader(HEADER.unpack_from(data, pos))
    if header.last_offset_delta < 0 or not 0 <= header.base_offset <= _INT64_MAX - 0x8000_0000:
        raise CorruptBatchError(
            f"a batch cannot have offsets from {header.base_offset} to {header.last_offset}"
        )
    return header
