"""The transaction coordinator: producers' ids, epochs and transactions (KIP-98, 360, 447, 890).

A transaction takes requests and the time and says what is to be stored and which markers are to be
written; a coordinator holds those of its partitions of ``__transaction_state`` and their timeouts.
"""

from __future__ import annotations

from kohort.testing.transactions._coordinator import (
    TRANSACTION_PARTITIONS,
    Records,
    TransactionConfig,
    TransactionCoordinator,
    TransactionEnvironment,
)
from kohort.testing.transactions._epochs import ProducerEpoch
from kohort.testing.transactions._state import TransactionState
from kohort.testing.transactions._transaction import Transaction, TransactionPartition

__all__ = [
    "TRANSACTION_PARTITIONS",
    "ProducerEpoch",
    "Records",
    "Transaction",
    "TransactionConfig",
    "TransactionCoordinator",
    "TransactionEnvironment",
    "TransactionPartition",
    "TransactionState",
]
