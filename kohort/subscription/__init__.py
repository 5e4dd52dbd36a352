"""The subscription, assignment, pauses and positions of a consumer, without I/O or clock.

Two threads use this state. The caller subscribes, seeks, pauses and takes records. The background
task assigns, fetches and resolves offsets. :attr:`SubscriptionState.lock` is the only lock between
them. The buffer of completed fetches uses it, too. It is held for a few statements at a time.

* The lock guards the mode, the topics, the pattern, the map of partitions, and every field of every
  :class:`PartitionState`. Methods of :class:`SubscriptionState` take the lock, unless their
  docstring says that the caller holds it.
* :meth:`~SubscriptionState.assigned` and :attr:`~SubscriptionState.changes` need no lock, because
  they are an immutable set and a counter that are replaced as a whole.
* The :class:`PartitionRun` of the caller needs no lock, because the caller stores only one thing in
  it: the record that it has taken.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.subscription._iteration_run import NO_GROUP, NO_RUN, GroupSession, PartitionRun
from kohort.subscription._partition import (
    FetchStatus,
    FetchTarget,
    NextFetch,
    OffsetReset,
    PartitionState,
    PendingReset,
    RecreatedPartition,
    SubscriptionMode,
    SubscriptionSnapshot,
    Watermarks,
)
from kohort.subscription._state import SubscriptionState
from kohort.subscription._topic_ids import NO_ID, Recreation, TopicHistory

__all__ = [
    "NO_GROUP",
    "NO_ID",
    "NO_RUN",
    "FetchStatus",
    "FetchTarget",
    "GroupSession",
    "NextFetch",
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
    "Watermarks",
]
