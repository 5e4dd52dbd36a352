"""State of idempotent producers in a partition (KIP-98), with their last five batches.

For a transactional producer it has the start of its open transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kohort.errors import ErrorCode
from kohort.records import BatchHeader, RecordBatch, marker_epoch
from kohort.types import NamedTuple

WINDOW = 5
NO_SEQUENCE = -1
_SEQUENCES = 1 << 31


class AppendedBatch(NamedTuple):
    """Sequences, base offset and largest timestamp of a batch in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    """State of one producer. -1 means that there is no value.

    ``first_offset`` is the start of its open transaction.
    """

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=WINDOW))
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1
    last_offset: int = -1
    """Last offset of this epoch, without markers."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


@dataclass(slots=True)
class Verification:
    """Check by the coordinator of a transaction that is about to start in this partition.

    ``lowest_sequence`` is the lowest one of the batches that wait. ``bumps_epochs`` is True in
    transaction version 2.
    """

    epoch: int
    lowest_sequence: int
    bumps_epochs: bool


def last_sequence(header: BatchHeader) -> int:
    """Return the last sequence of a batch; sequences restart at 0 after 2,147,483,647."""
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


class ProducerStates:
    """States by producer id; batches without a producer id are ignored."""

    __slots__ = ("_producers", "_verifications")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._verifications: dict[int, Verification] = {}

    def items(self) -> Iterable[tuple[int, Producer]]:
        """Return (producer id, state) pairs."""
        return self._producers.items()

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the earlier append of this batch, if it is one of the producer's last five."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        sequences = header.base_sequence, last_sequence(header)
        return next((batch for batch in producer.batches if batch[:2] == sequences), None)

    def check(self, header: BatchHeader) -> ErrorCode:
        """Return NONE if epoch and sequence allow the append, else the error."""
        if header.base_sequence < 0:
            return ErrorCode.INVALID_RECORD
        producer = self._producers.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self._overtakes(header, producer):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer is None:
            # The producer is unknown, for example after retention. Any sequence may be the first.
            return ErrorCode.NONE
        if header.producer_epoch > producer.epoch:
            expected = 0
        else:
            # This is also 0 for a producer with only a marker.
            expected = (producer.last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.first_offset >= 0 and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def _overtakes(self, header: BatchHeader, producer: Producer | None) -> bool:
        """True if the batch would start a transaction before an earlier batch."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return False
        unknown = producer is None or not producer.batches
        return header.base_sequence > verification.lowest_sequence or (
            verification.bumps_epochs and unknown and header.base_sequence != 0
        )

    def update_on_append(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Store a batch with its offset and largest timestamp in the log."""
        producer = self._at_epoch(header.producer_id, header.producer_epoch)
        producer.last_timestamp = timestamp
        producer.last_offset = base_offset + header.last_offset_delta
        if header.base_sequence >= 0:
            sequences = header.base_sequence, last_sequence(header)
            producer.batches.append(AppendedBatch(*sequences, base_offset, timestamp))
        if header.is_transactional:
            self._verifications.pop(header.producer_id, None)
            if producer.first_offset < 0:
                producer.first_offset = base_offset

    def replay(self, lost: Collection[int], batches: Iterable[RecordBatch]) -> None:
        """Forget producers, and restore them from the remaining batches of the log."""
        for producer_id in lost:
            self._producers.pop(producer_id, None)
        for batch in batches:
            header = batch.header
            if header.producer_id not in lost:
                continue
            if header.is_control:
                for marker in batch.records():
                    epoch = marker_epoch(marker.value)
                    producer = header.producer_id, header.producer_epoch
                    self.end_transaction(*producer, epoch, header.max_timestamp)
            else:
                self.update_on_append(header, header.base_offset, header.max_timestamp)

    def _at_epoch(self, producer_id: int, epoch: int) -> Producer:
        """Return the producer; a new epoch resets its sequences."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.last_offset = -1
            producer.batches.clear()
        return producer

    # Transactions

    @property
    def first_open_offset(self) -> int | None:
        """Start of the oldest open transaction, None if there is none."""
        starts = (p.first_offset for p in self._producers.values() if p.first_offset >= 0)
        return min(starts, default=None)

    def start_verification(self, header: BatchHeader, *, bumps_epochs: bool) -> None:
        """Store that a batch waits for the coordinator's check. Others may wait already."""
        epoch, sequence = header.producer_epoch, header.base_sequence
        known = self._verifications.setdefault(
            header.producer_id, Verification(epoch, sequence, bumps_epochs)
        )
        if epoch > known.epoch or (epoch == known.epoch and sequence < known.lowest_sequence):
            known.epoch, known.lowest_sequence = epoch, sequence

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """True if the producer has written in a transaction that has not ended."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.first_offset >= 0

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, version: int
    ) -> ErrorCode:
        """Return NONE if neither the producer nor the coordinator is fenced, else the error.

        A marker of transaction ``version`` 2 has the next epoch, unless it was written already.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return ErrorCode.NONE
        late = epoch < producer.epoch
        if version >= 2 and epoch == producer.epoch and producer.first_offset >= 0:
            late = True
        if late:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int
    ) -> int:
        """Store the end of a transaction; return its start, -1 if it had no records."""
        producer = self._at_epoch(producer_id, epoch)
        producer.coordinator_epoch = coordinator_epoch
        verification = self._verifications.get(producer_id)
        if verification is not None and not (
            verification.bumps_epochs and verification.epoch == epoch
        ):
            del self._verifications[producer_id]
        producer.last_timestamp = timestamp
        first, producer.first_offset = producer.first_offset, -1
        return first
