"""Records of ``__transaction_state``."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kohort.broker.transactions._epochs import ProducerEpoch
from kohort.broker.transactions._state import TransactionState
from kohort.broker.transactions._transaction import Transaction
from kohort.errors import MessageDecodeError
from kohort.protocol import Buffer, decode, encode
from kohort.protocol.messages import TransactionLogKey, TransactionLogValue

_INT16 = struct.Struct(">h")


def key_of(transaction: Transaction) -> bytes:
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    return _INT16.pack(0) + encode(key, 0)


def value_of(transaction: Transaction, version: int) -> bytes:
    """Return the record's value.

    Version 1 has tagged fields, which clusters of transaction version 0 do not write.
    """
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        topics.setdefault(topic, []).append(index)
    empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer.producer_id,
        previous_producer_id=transaction.previous_producer_id if version else -1,
        producer_epoch=transaction.producer.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if empty
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in topics.items()
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version if version else 0,
    )
    return _INT16.pack(version) + encode(value, version)


def load_transactions(
    records: Iterable[tuple[Buffer | None, Buffer | None]],
) -> dict[str, Transaction]:
    """Return the transactions that (key, value) records store, without those that do not decode."""
    found: dict[str, Transaction] = {}
    for raw_key, raw_value in records:
        if raw_key is None:
            continue
        try:
            key = decode(TransactionLogKey, 0, memoryview(raw_key)[2:])
            if raw_value is None:
                found.pop(key.transactional_id, None)
                continue
            (version,) = _INT16.unpack_from(raw_value)
            value = decode(TransactionLogValue, version, memoryview(raw_value)[2:])
            state = TransactionState(value.transaction_status)
        except (MessageDecodeError, struct.error, ValueError):
            continue
        found[key.transactional_id] = Transaction(
            key.transactional_id,
            ProducerEpoch(value.producer_id, value.producer_epoch),
            value.transaction_timeout_ms,
            state,
            value.previous_producer_id,
            partitions={
                (topic.topic, index): None
                for topic in value.transaction_partitions or ()
                for index in topic.partition_ids
            },
            started_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )
    return found
