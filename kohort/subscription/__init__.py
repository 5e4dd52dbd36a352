"""What is wanted, assigned, paused and positioned: plain data, no I/O, no clock.

Two threads meet here: the caller's, which subscribes, seeks, pauses and takes records, and the
core's, which assigns, fetches and resolves offsets. :attr:`SubscriptionState.lock` is the one lock
between them, shared with the buffer of completed fetches and held for a few assignments at a time.

* Under the lock: the mode, the topics, the pattern, the map of partitions, and every field of every
  :class:`PartitionState`. All methods of :class:`SubscriptionState` take it by themselves, but for
  :meth:`~SubscriptionState.partition`, which is for code that holds it already.
* Without it: :meth:`~SubscriptionState.assigned` and :attr:`~SubscriptionState.changes`, an
  immutable set and a counter that are replaced as a whole; and the :class:`Run` of the caller, who
  stores one thing, the record that it has taken.
"""

from __future__ import annotations

from kohort.subscription._history import NO_ID, Recreation, TopicHistory
from kohort.subscription._iteration_run import NO_GROUP, NO_RUN, GroupSession, PartitionRun
from kohort.subscription._partition import (
    FetchTarget,
    OffsetReset,
    PartitionState,
    PendingReset,
    RecreatedPartition,
    SubscriptionMode,
    SubscriptionSnapshot,
)
from kohort.subscription._state import SubscriptionState

__all__ = [
    "NO_GROUP",
    "NO_ID",
    "NO_RUN",
    "FetchTarget",
    "GroupSession",
    "OffsetReset",
    "PartitionRun",
    "PartitionState",
    "PendingReset",
    "RecreatedPartition",
    "Recreation",
    "SubscriptionMode",
    "SubscriptionSnapshot",
    "SubscriptionState",
    "TopicHistory",
]
