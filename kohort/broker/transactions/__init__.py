"""The transaction coordinator for producer ids, epochs and transactions (KIP-98, 360, 447, 890).

A :class:`Transaction` is a state machine that takes requests and the time. The coordinator stores
it in ``__transaction_state``, writes markers and runs timeouts.
"""

from __future__ import annotations

from kohort.broker.transactions._coordinator import (
    TRANSACTION_PARTITIONS,
    TransactionConfig,
    TransactionCoordinator,
    TransactionEnvironment,
    TransactionRecords,
)
from kohort.broker.transactions._epochs import ProducerEpoch
from kohort.broker.transactions._state import TransactionState
from kohort.broker.transactions._transaction import Transaction, TransactionPartition

__all__ = [
    "TRANSACTION_PARTITIONS",
    "ProducerEpoch",
    "Transaction",
    "TransactionConfig",
    "TransactionCoordinator",
    "TransactionEnvironment",
    "TransactionPartition",
    "TransactionRecords",
    "TransactionState",
]
