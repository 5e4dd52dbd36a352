"""One transactional id: its producer, the producer's epoch and its transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from kohort.broker.transactions._epochs import NO_EPOCH, NO_PRODUCER_ID, ProducerEpoch
from kohort.broker.transactions._state import TransactionState
from kohort.errors import ErrorCode

TransactionPartition: TypeAlias = tuple[str, int]
"""(topic, partition)."""


@dataclass(slots=True)
class Transaction:
    """State of a transactional id.

    ``partitions`` are those of the open transaction. ``last_epoch`` is the epoch before the present
    one. Times are in milliseconds of the wall clock. ``client_version`` is the transaction version
    that the producer uses.
    """

    transactional_id: str
    producer: ProducerEpoch
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    previous_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    partitions: dict[TransactionPartition, None] = field(default_factory=dict)
    started_ms: int = -1
    updated_ms: int = -1
    client_version: int = 0

    # Producers

    def next_producer(self, expected: ProducerEpoch | None) -> ProducerEpoch | ErrorCode:
        """Return the result of InitProducerId for a producer with ``expected``, None for a new one.

        The id is -1 if the producer id has no epochs left, and a new one is needed.
        """
        if expected is not None and not self._recognizes(expected):
            return ErrorCode.PRODUCER_FENCED
        if self.producer.is_exhausted:
            return ProducerEpoch()
        if expected is None or self.producer.epoch == NO_EPOCH:
            return self.producer.next
        if expected.epoch == self.producer.epoch:
            return self.producer.next
        if expected.epoch == self.last_epoch:
            return self.producer  # the producer did not get the first response
        return ErrorCode.PRODUCER_FENCED

    def _recognizes(self, expected: ProducerEpoch) -> bool:
        if self.producer.epoch == NO_EPOCH or expected.producer_id == self.producer.producer_id:
            return True
        return expected.producer_id == self.previous_producer_id and expected.is_exhausted

    def restart(
        self, producer: ProducerEpoch, timeout_ms: int, now_ms: int, *, expected: bool
    ) -> None:
        """Set the new producer id and epoch, and reset the transaction."""
        if producer != self.producer:
            self.last_epoch = self.producer.epoch if expected else NO_EPOCH
        self._set_producer(producer)
        self.timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY
        self.partitions = {}
        self.started_ms = -1
        self.updated_ms = now_ms

    def _set_producer(self, producer: ProducerEpoch) -> None:
        """Set the producer; every change stores the previous id, even if it is the same."""
        self.previous_producer_id = self.producer.producer_id
        self.producer = producer

    # Partitions

    def check(self, producer: ProducerEpoch) -> ErrorCode:
        """Return NONE if this producer may add to the transaction, else the error."""
        if producer.producer_id != self.producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.producer.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.state.is_preparing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def add_partitions(
        self, topic_partitions: Iterable[TransactionPartition], now_ms: int, version: int
    ) -> bool:
        """Open the transaction if necessary and add partitions; False if none is new."""
        ongoing = self.state is TransactionState.ONGOING
        new = [
            topic_partition
            for topic_partition in topic_partitions
            if not ongoing or topic_partition not in self.partitions
        ]
        if not new:
            return False
        if not ongoing:
            self.partitions = {}
            self.state = TransactionState.ONGOING
            self.started_ms = now_ms
        self._set_producer(self.producer)
        self.partitions.update(dict.fromkeys(new))
        self.updated_ms = now_ms
        self.client_version = version
        return True

    # End

    def check_end(self, producer: ProducerEpoch, committed: bool, version: int) -> ErrorCode | None:
        """Return NONE to end it, None if it has ended in this way already, else an error.

        A producer of transaction version 2 gets a new epoch with each end. So a repeated request
        has the previous epoch. It may also abort without an open transaction, to get a new epoch.
        """
        with_epochs = version >= 2
        retried = with_epochs and self._is_previous(producer)
        if producer.producer_id != self.producer.producer_id and not retried:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.producer.epoch and not retried:
            return ErrorCode.PRODUCER_FENCED
        if self.state is TransactionState.ONGOING:
            return ErrorCode.PRODUCER_FENCED if retried else ErrorCode.NONE
        done = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        if with_epochs:
            if retried and self.state.is_complete:
                return None if self.state is done else ErrorCode.INVALID_TXN_STATE
            if retried:
                return ErrorCode.PRODUCER_FENCED
            return ErrorCode.INVALID_TXN_STATE if committed else ErrorCode.NONE
        return None if self.state is done else ErrorCode.INVALID_TXN_STATE

    def _is_previous(self, producer: ProducerEpoch) -> bool:
        if producer.producer_id == self.producer.producer_id:
            return producer.epoch == self.producer.epoch - 1
        renewed = self.producer.epoch == 0 and producer.is_exhausted
        return renewed and producer.producer_id == self.previous_producer_id

    def prepare(self, producer: ProducerEpoch, committed: bool, now_ms: int) -> None:
        """Store the decision; ``producer`` is the producer id and epoch of the markers."""
        state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        self.state = state
        if producer.epoch != self.producer.epoch:
            self.last_epoch = self.producer.epoch
        self._set_producer(producer)
        self.updated_ms = now_ms

    def complete(self, producer: ProducerEpoch, now_ms: int) -> None:
        """Store that every marker is written; ``producer`` is the one to use after that."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        self.state = (
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        )
        self._set_producer(producer)
        self.partitions = {}
        self.updated_ms = now_ms
