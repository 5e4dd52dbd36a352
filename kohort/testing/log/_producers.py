"""What a partition remembers of idempotent producers (KIP-98): their last five batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.errors import ErrorCode
from kohort.records import BatchHeader

WINDOW = 5
NO_SEQUENCE = -1
_SEQUENCES = 1 << 31


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=WINDOW))


def last_sequence(header: BatchHeader) -> int:
    """Sequence numbers go round after 2,147,483,647."""
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


class ProducerStates:
    """By producer id; batches without one are none of its business."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """The batch as it was appended before, if it is one of the producer's last five."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        sequences = header.base_sequence, last_sequence(header)
        return next((batch for batch in producer.batches if batch[:2] == sequences), None)

    def check(self, header: BatchHeader) -> ErrorCode:
        """Whether the batch may be appended: its epoch is not over, its sequence leaves no gap."""
        if header.base_sequence < 0:
            return ErrorCode.INVALID_RECORD
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Nothing known, as after retention has taken all its records: start anywhere.
            return ErrorCode.NONE
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > producer.epoch:
            expected = 0
        elif producer.batches:
            expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES
        else:
            return ErrorCode.NONE
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    def appended(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Remember a batch with the offset, and the largest timestamp, that it has in the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        sequences = header.base_sequence, last_sequence(header)
        producer.batches.append(AppendedBatch(*sequences, base_offset, timestamp))
