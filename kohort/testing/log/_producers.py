"""What a partition remembers of idempotent producers (KIP-98): their last five batches.

And of transactional ones, where the transaction that they have open began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.errors import ErrorCode
from kohort.records import BatchHeader, RecordBatch, marker_epoch

WINDOW = 5
NO_SEQUENCE = -1
_SEQUENCES = 1 << 31


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    """``first_offset``: where its open transaction begins; -1 for what there is not."""

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=WINDOW))
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1
    last_offset: int = -1
    """Of the last batch of this epoch, markers left out."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


@dataclass(slots=True)
class Verification:
    """A transaction is about to begin here, and its coordinator is being asked.

    ``lowest_sequence`` was seen meanwhile; ``bumps_epochs``: of transaction version 2.
    """

    epoch: int
    lowest_sequence: int
    bumps_epochs: bool


def last_sequence(header: BatchHeader) -> int:
    """Sequence numbers go round after 2,147,483,647."""
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


class ProducerStates:
    """By producer id; batches without one are none of its business."""

    __slots__ = ("_producers", "_verifications")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._verifications: dict[int, Verification] = {}

    def items(self) -> Iterable[tuple[int, Producer]]:
        """By producer id."""
        return self._producers.items()

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
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
        if producer is not None and header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self._overtakes(header, producer):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer is None:
            # Nothing known, as after retention has taken all its records: start anywhere.
            return ErrorCode.NONE
        if header.producer_epoch > producer.epoch:
            expected = 0
        else:
            # Of one that is known by a marker alone this is 0, too.
            expected = (producer.last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.first_offset >= 0 and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def _overtakes(self, header: BatchHeader, producer: Producer | None) -> bool:
        """Whether a transaction would begin with a batch that others should have come before."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return False
        unknown = producer is None or not producer.batches
        return header.base_sequence > verification.lowest_sequence or (
            verification.bumps_epochs and unknown and header.base_sequence != 0
        )

    def update_on_append(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Remember a batch with the offset, and the largest timestamp, that it has in the log."""
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
        """Forget producers, and learn of them anew from what is left of the log."""
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
        """The producer; with a new epoch its sequences begin anew."""
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
        """Where the oldest transaction begins that has not ended."""
        starts = (p.first_offset for p in self._producers.values() if p.first_offset >= 0)
        return min(starts, default=None)

    def start_verification(self, header: BatchHeader, *, bumps_epochs: bool) -> None:
        """A batch wants to begin a transaction here; it may not be the first one that tries."""
        epoch, sequence = header.producer_epoch, header.base_sequence
        known = self._verifications.setdefault(
            header.producer_id, Verification(epoch, sequence, bumps_epochs)
        )
        if epoch > known.epoch or (epoch == known.epoch and sequence < known.lowest_sequence):
            known.epoch, known.lowest_sequence = epoch, sequence

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written in a transaction that has not ended."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.first_offset >= 0

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, version: int
    ) -> ErrorCode:
        """Whether a marker may be written: neither its producer nor its coordinator is fenced.

        One of transaction ``version`` 2 has the next epoch, or is there already.
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
        """A marker is written: where its transaction began, -1 if nothing was in it."""
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
