"""The transaction coordinator of one broker, whose only storage is ``__transaction_state``.

Markers are written immediately. So no client finds a transaction between its decision and its end.
CONCURRENT_TRANSACTIONS is the error for a new producer whose predecessor has an open one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import anyio

from kohort.broker._hashes import coordinator_partition
from kohort.broker.groups._timers import Timers
from kohort.broker.log import Marker
from kohort.broker.transactions._epochs import LAST_EPOCH, NO_EPOCH, ProducerEpoch
from kohort.broker.transactions._records import key_of, load_transactions, value_of
from kohort.broker.transactions._state import TransactionState
from kohort.broker.transactions._transaction import Transaction, TransactionPartition
from kohort.errors import ErrorCode
from kohort.protocol import Buffer

TRANSACTION_PARTITIONS = 50
"""Number of partitions of ``__transaction_state``."""

TransactionRecords = list[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of transactions. ``version`` is Kafka's feature transaction.version, 0 to 2."""

    version: int = 2
    max_timeout_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class TransactionEnvironment:
    """Functions of the cluster that a coordinator calls.

    ``epoch_of(partition)`` returns the coordinator's epoch, which markers have. ``now_ms`` returns
    the wall-clock time.
    """

    config: TransactionConfig
    append: Callable[[int, TransactionRecords], None]
    write_marker: Callable[[TransactionPartition, Marker], None]
    new_producer_id: Callable[[], int]
    epoch_of: Callable[[int], int]
    now_ms: Callable[[], int]


class TransactionCoordinator:
    """The transactional ids of one broker. Results of its methods begin with, or are, an error
    code.
    """

    def __init__(self, env: TransactionEnvironment) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.partitions: set[int] = set()
        self.env = env
        self._timers: Timers[str] = Timers()
        self._wake = anyio.Event()

    # Leadership

    def load(self, partition: int, records: Iterable[tuple[Buffer | None, Buffer | None]]) -> None:
        """Load the transactional ids of a partition from its records."""
        self.partitions.add(partition)
        loaded = load_transactions(records)
        self.transactions.update(loaded)
        for transaction in loaded.values():
            if transaction.state is TransactionState.ONGOING:
                self._start_timer(transaction)

    def unload(self, partition: int) -> None:
        """Drop the transactional ids of a partition."""
        self.partitions.discard(partition)
        for name in [t for t in self.transactions if _partition(t) == partition]:
            del self.transactions[name]
            self._timers.cancel(name)

    def check(self, transactional_id: str) -> ErrorCode:
        """Return NONE if this is the coordinator of the transactional id."""
        here = _partition(transactional_id) in self.partitions
        return ErrorCode.NONE if here else ErrorCode.NOT_COORDINATOR

    # Requests

    def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerEpoch | None
    ) -> tuple[ErrorCode, ProducerEpoch]:
        """Return the producer id and epoch for a producer, and fence the earlier ones."""
        error = self.check(transactional_id)
        if error is ErrorCode.NONE and not 0 < timeout_ms <= self.env.config.max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if error is not ErrorCode.NONE:
            return error, ProducerEpoch()
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            producer = ProducerEpoch(self.env.new_producer_id(), NO_EPOCH)
            transaction = Transaction(transactional_id, producer, timeout_ms)
            self.transactions[transactional_id] = transaction
        given = transaction.next_producer(expected)
        if isinstance(given, ErrorCode):
            return given, ProducerEpoch()
        if transaction.state is TransactionState.ONGOING:
            self._abort_and_fence(transaction)
            return ErrorCode.CONCURRENT_TRANSACTIONS, ProducerEpoch()
        if given.producer_id < 0:
            given = ProducerEpoch(self.env.new_producer_id(), 0)
        now_ms = self.env.now_ms()
        transaction.restart(given, timeout_ms, now_ms, expected=expected is not None)
        self._store(transaction)
        return ErrorCode.NONE, given

    def _find(self, transactional_id: str, producer: ProducerEpoch) -> Transaction | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = self.check(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        error = transaction.check(producer)
        return transaction if error is ErrorCode.NONE else error

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        topic_partitions: Sequence[TransactionPartition],
        version: int = 0,
    ) -> ErrorCode:
        """Add partitions to the producer's transaction; ``version`` is its transaction version."""
        found = self._find(transactional_id, producer)
        if isinstance(found, ErrorCode):
            return found
        if found.add_partitions(topic_partitions, self.env.now_ms(), version):
            self._store(found)
            self._start_timer(found)
        return ErrorCode.NONE

    def verify_partition(
        self, transactional_id: str, producer: ProducerEpoch, topic_partition: TransactionPartition
    ) -> ErrorCode:
        """Return NONE if the producer's transaction has the partition, else
        TRANSACTION_ABORTABLE.
        """
        found = self._find(transactional_id, producer)
        if isinstance(found, ErrorCode):
            return found
        added = found.state is TransactionState.ONGOING and topic_partition in found.partitions
        return ErrorCode.NONE if added else ErrorCode.TRANSACTION_ABORTABLE

    def end_transaction(
        self, transactional_id: str, producer: ProducerEpoch, committed: bool, version: int
    ) -> tuple[ErrorCode, ProducerEpoch]:
        """Commit or abort; return the producer id and epoch to use after that."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, ProducerEpoch()
        error = self.check(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if error is ErrorCode.NONE and transaction is None:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction is None or error is not ErrorCode.NONE:
            return error, ProducerEpoch()
        outcome = transaction.check_end(producer, committed, version)
        if outcome is not None and outcome is not ErrorCode.NONE:
            return outcome, ProducerEpoch()
        if outcome is ErrorCode.NONE:
            transaction.client_version = max(transaction.client_version, version)
            marker_producer = transaction.producer.next if version >= 2 else transaction.producer
            self._write_end(transaction, marker_producer, committed)
        return ErrorCode.NONE, transaction.producer

    # Ends

    def _abort_and_fence(self, transaction: Transaction) -> None:
        """Abort the open transaction with an epoch that its producer does not have."""
        self._write_end(transaction, transaction.producer.next, committed=False)

    def _write_end(
        self, transaction: Transaction, marker_producer: ProducerEpoch, committed: bool
    ) -> None:
        self._timers.cancel(transaction.transactional_id)
        transaction.prepare(marker_producer, committed, self.env.now_ms())
        self._store(transaction)
        epoch = self.env.epoch_of(_partition(transaction.transactional_id))
        marker = Marker(*marker_producer, committed=committed, coordinator_epoch=epoch)
        for topic_partition in transaction.partitions:
            self.env.write_marker(topic_partition, marker)
        exhausted = transaction.client_version >= 2 and marker_producer.epoch > LAST_EPOCH
        after = ProducerEpoch(self.env.new_producer_id(), 0) if exhausted else marker_producer
        transaction.complete(after, self.env.now_ms())
        self._store(transaction)

    def _store(self, transaction: Transaction) -> None:
        value = value_of(transaction, 1 if self.env.config.version else 0)
        self.env.append(_partition(transaction.transactional_id), [(key_of(transaction), value)])

    # Time

    def _start_timer(self, transaction: Transaction) -> None:
        left_ms = transaction.started_ms + transaction.timeout_ms - self.env.now_ms()
        deadline = anyio.current_time() + left_ms / 1000
        self._timers.schedule(transaction.transactional_id, deadline)
        self._wake.set()

    async def run(self) -> None:
        """Abort transactions after their timeout; ends by cancellation."""
        while True:
            deadline = self._timers.next_deadline()
            self._wake = anyio.Event()
            with anyio.CancelScope(deadline=math.inf if deadline is None else deadline):
                await self._wake.wait()
            for name in self._timers.pop_due(anyio.current_time()):
                transaction = self.transactions.get(name)
                if transaction is not None and transaction.state is TransactionState.ONGOING:
                    self._abort_and_fence(transaction)


def _partition(transactional_id: str) -> int:
    return coordinator_partition(transactional_id, TRANSACTION_PARTITIONS)
