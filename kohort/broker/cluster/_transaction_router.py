"""Transactions across the cluster: their coordinators, and markers in all partitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import itemgetter
from typing import Protocol

from kohort.broker._broker_node import BrokerNode
from kohort.broker._hashes import coordinator_partition
from kohort.broker.cluster._coordinated_topic import CoordinatedCluster, CoordinatedTopic
from kohort.broker.cluster._topics import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    Partition,
    Topic,
    Topics,
)
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.configs._given_configs import TRANSACTIONS_FACTOR
from kohort.broker.log import AppendError, Marker, PartitionLog
from kohort.broker.transactions import (
    TRANSACTION_PARTITIONS,
    ProducerEpoch,
    TransactionCoordinator,
    TransactionEnvironment,
    TransactionPartition,
    TransactionRecords,
)
from kohort.errors import ErrorCode
from kohort.protocol import Buffer
from kohort.records import ControlType, NewRecord, RecordBatch, control_type, encode_batch

_Stable = list[tuple[Buffer | None, Buffer | None]]
_Positioned = tuple[int, Buffer | None, Buffer | None]
_Open = list[tuple[int, Buffer | None, Buffer | None, bool]]


class TransactionCluster(CoordinatedCluster, Protocol):
    """Parts of the cluster's state that transactions use."""

    config: ClusterConfig
    topics: Topics
    changed: Callable[[], None]

    def internal_topic(
        self, name: str, partitions: int, factor_config: str, compression: str
    ) -> Topic:
        """Return a topic of the cluster's own state, and create it on its first use."""
        ...


class TransactionRouter:
    """Calls between brokers for transactions, which replace Kafka's requests between brokers."""

    def __init__(self, cluster: TransactionCluster) -> None:
        self._cluster = cluster
        self._producer_ids = itertools.count()
        self._coordinated = CoordinatedTopic(cluster, self.state_topic)

    def new_producer_id(self) -> int:
        """Return a producer id that no other producer has."""
        return next(self._producer_ids)

    def make_coordinator(self) -> TransactionCoordinator:
        cluster = self._cluster
        env = TransactionEnvironment(
            config=cluster.config.transactions,
            append=self._append,
            write_marker=self._mark,
            new_producer_id=self.new_producer_id,
            epoch_of=lambda index: self._coordinated.partition(index).leader_epoch,
            now_ms=cluster.now_ms,
        )
        return TransactionCoordinator(env)

    def state_topic(self) -> Topic:
        """Return ``__transaction_state``, which is created on the first use of a
        transactional id.
        """
        return self._cluster.internal_topic(
            TRANSACTION_STATE, TRANSACTION_PARTITIONS, TRANSACTIONS_FACTOR, "uncompressed"
        )

    def coordinator_node(self, transactional_id: str) -> BrokerNode | None:
        """Return the broker that coordinates the id, None if there is none now."""
        return self._coordinated.node(_index(transactional_id))

    def coordinator(self, transactional_id: str) -> TransactionCoordinator | None:
        """Return the coordinator of the id, None if its broker does not run."""
        broker = self._coordinated.broker(_index(transactional_id))
        return None if broker is None else broker.transactions

    def on_leader_changed(self, partition: Partition) -> None:
        """Move transactions to the new leader of the partition that stores them."""
        self._coordinated.move(
            partition,
            lambda broker: broker.transactions,
            lambda new: new.load(partition.index, stored_records(partition.log)[0]),
        )

    def join_transaction(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        topic_partition: TransactionPartition,
        *,
        adds: bool,
    ) -> ErrorCode:
        """Add a partition to the producer's transaction, or check that it is in it.

        The errors are those of the response to the write.
        """
        coordinator = self.coordinator(transactional_id)
        if coordinator is None:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if adds:
            error = coordinator.add_partitions(transactional_id, producer, [topic_partition], 2)
        else:
            error = coordinator.verify_partition(transactional_id, producer, topic_partition)
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return error

    def write_marker(self, partition: Partition, marker: Marker) -> ErrorCode:
        """Write a marker to a partition's log, and apply it to the groups stored there."""
        try:
            partition.log.append_marker(marker, partition.leader_epoch, self._cluster.now_ms())
        except AppendError as error:
            return error.code
        if partition.topic.name == CONSUMER_OFFSETS:
            broker = self._cluster.brokers.get(partition.leader)
            if broker is not None:
                broker.coordinator.end_transaction(
                    partition.index, marker.producer_id, marker.committed
                )
        self._cluster.changed()
        return ErrorCode.NONE

    def append_offsets(
        self, partition: Partition, producer: ProducerEpoch, records: TransactionRecords
    ) -> None:
        """Write offsets to ``__consumer_offsets`` as part of the producer's transaction."""
        now_ms = self._cluster.now_ms()
        data = encode_batch(
            [NewRecord(now_ms, key, value) for key, value in records],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
        )
        partition.log.append_coordinated(RecordBatch.of(data), partition.leader_epoch)
        self._cluster.changed()

    def _mark(self, topic_partition: TransactionPartition, marker: Marker) -> None:
        partition = self._cluster.topics.partition(*topic_partition)
        if partition is not None:  # else it was deleted meanwhile
            self.write_marker(partition, marker)

    def _append(self, index: int, records: TransactionRecords) -> None:
        self._coordinated.append(index, records)
        self._cluster.changed()


def _index(transactional_id: str) -> int:
    """Return the partition of ``__transaction_state`` whose leader coordinates the id."""
    return coordinator_partition(transactional_id, TRANSACTION_PARTITIONS)


def stored_records(log: PartitionLog) -> tuple[_Stable, _Open]:
    """Return (key, value) of the committed records, and the records of open transactions.

    Both are in the order of writing, independent of when their transactions ended. Aborted records
    are omitted. An open record is outdated if a committed record with its key was written later.
    """
    stable: list[_Positioned] = []
    open_records: dict[int, list[_Positioned]] = {}
    for batch in log.batches():
        header, records = batch.header, batch.records()
        producer_id = header.producer_id
        if header.is_control:
            written = open_records.pop(producer_id, [])
            if records and control_type(records[0].key) == ControlType.COMMIT:
                stable += written
            continue
        target = open_records.setdefault(producer_id, []) if header.is_transactional else stable
        target += [(record.offset, record.key, record.value) for record in records]
    stable.sort(key=itemgetter(0))
    last = {None if key is None else bytes(key): position for position, key, _ in stable}
    still_open = [
        (producer_id, key, value, last.get(None if key is None else bytes(key), -1) > position)
        for producer_id, records in open_records.items()
        for position, key, value in records
    ]
    return [(key, value) for _, key, value in stable], still_open
