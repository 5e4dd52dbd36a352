"""Processing of records: handlers, their order, retries, commits and hand-overs."""

from __future__ import annotations

from kohort.processing._context import HandlerContext, context
from kohort.processing._dead_letters import DeadLetter, DeadLetters
from kohort.processing._policies import Batch, GiveUp, Retry, Skip, Stop
from kohort.processing._process import FailureHandler, process
from kohort.processing._streams import AsyncPartitionRecords, PartitionRecords
from kohort.processing._transactions import AsyncSqlTransactions, SqlTransactions
from kohort.processing.stores import DeltaOffsets, IcebergOffsets, SqlOffsets

__all__ = [
    "AsyncPartitionRecords",
    "AsyncSqlTransactions",
    "Batch",
    "DeadLetter",
    "DeadLetters",
    "DeltaOffsets",
    "FailureHandler",
    "GiveUp",
    "HandlerContext",
    "IcebergOffsets",
    "PartitionRecords",
    "Retry",
    "Skip",
    "SqlOffsets",
    "SqlTransactions",
    "Stop",
    "context",
    "process",
]
