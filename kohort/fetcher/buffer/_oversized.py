"""Responses over ``receive_message_max_bytes``: the partition and the batch that make them large.

Only the first bytes of such a response were received. A broker exceeds the ``max_bytes`` of the
request only for the first batch, which it always returns whole (KIP-74). Therefore the partition
whose records exceed the received bytes has the large batch. The header of its first batch contains
the size and the last offset.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kohort.errors import RecordTooLargeError
from kohort.fetcher.buffer._completed import FailedFetch, OversizedBatch
from kohort.types import TopicPartition

_BY_ID, _FLEXIBLE = 13, 12
_BATCH = struct.Struct(">qiibiHi")  # base offset, length, epoch, magic, CRC, attributes, delta
_LENGTH_BYTES = 12
"""The bytes at the start of a batch that its length field does not count."""


def oversized_fetch(found: OversizedBatch, epoch: int, offset: int, limit: int) -> FailedFetch:
    """Return the entry for a batch that is larger than any response may be."""
    tp = found.topic_partition
    size = "" if found.size is None else f" of {found.size} bytes"
    reason = f"the batch{size} does not fit into receive_message_max_bytes={limit}"
    next_offset = found.next_offset
    target = "a later offset" if next_offset is None else f"offset {next_offset}"
    error = RecordTooLargeError(
        f"fetching {tp.topic}-{tp.partition} at offset {offset} failed: {reason}. Raise "
        f"receive_message_max_bytes, or seek() to {target}",
        topic_partition=tp,
        offset=offset,
        next_offset=next_offset,
        reason=reason,
    )
    return FailedFetch(tp, epoch, error, is_transient=False, oversized=found)


class _Head:
    """A reader of the first bytes of a response. IndexError or struct.error marks their end."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size < 0 or size > self.left:
            raise IndexError(size)
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        """Return a signed integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def length(self, size: int) -> int:
        """Return a length or count, or -1 for null. ``size`` applies to the old encoding."""
        return self._varint() - 1 if self._flexible else self.number(size)

    def tags(self) -> None:
        """Skip tagged fields."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self.take(self._varint())

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise IndexError("a length of more than five bytes")


def find_batch(head: bytes, version: int, names: Mapping[bytes, str]) -> OversizedBatch | None:
    """Return the partition whose records exceed the head of a Fetch response, if it is in the head.

    ``names``: the topics by their ids.
    """
    try:
        return _find(_Head(head, flexible=version >= _FLEXIBLE), version, names)
    except (IndexError, struct.error, UnicodeDecodeError):
        return None


def _find(head: _Head, version: int, names: Mapping[bytes, str]) -> OversizedBatch | None:
    head.take(4)  # correlation id
    head.tags()
    head.take(4 if version < 7 else 10)  # throttle time, error code, session id
    for _ in range(head.length(4)):
        topic = names.get(head.take(16), "") if version >= _BY_ID else _name(head)
        for _ in range(head.length(4)):
            tp = TopicPartition(topic, head.number(4))
            head.take(18 if version < 5 else 26)  # error code, ends of the log
            for _ in range(head.length(4)):
                head.take(16)  # an aborted transaction
                head.tags()
            if version >= 11:
                head.take(4)  # preferred read replica
            size = head.length(4)
            if size > head.left:
                return _first_batch(tp, head)
            head.take(max(0, size))
            head.tags()
        head.tags()
    return None


def _name(head: _Head) -> str:
    return head.take(head.length(2)).decode()


def _first_batch(tp: TopicPartition, head: _Head) -> OversizedBatch:
    if head.left < _BATCH.size:
        return OversizedBatch(tp)
    offset, length, _, magic, _, _, delta = _BATCH.unpack(head.take(_BATCH.size))
    if length <= 0 or offset < 0:
        return OversizedBatch(tp)
    size = length + _LENGTH_BYTES
    if magic in (0, 1):  # the offset of a compressed message is that of its last one
        return OversizedBatch(tp, size, offset + 1)
    return OversizedBatch(tp, size, offset + delta + 1 if magic == 2 and delta >= 0 else None)
