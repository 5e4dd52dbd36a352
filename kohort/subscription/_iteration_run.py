"""Records of one partition that iteration returns one by one without the lock."""

from __future__ import annotations

import math
from typing import Protocol

from kohort.records import RecordRun, WakeUp
from kohort.subscription._partition import PartitionState


class GroupSession(Protocol):
    """The time until which no other member can own the partitions."""

    @property
    def confirmed_until(self) -> float: ...


class _NoGroup:
    confirmed_until = math.inf


NO_GROUP: GroupSession = _NoGroup()


class PartitionRun:
    """The records that steps of iteration take from one partition, and the partition's state.

    A step changes only ``records``. :meth:`apply` updates the state.
    """

    __slots__ = ("records", "state")

    def __init__(self, state: PartitionState | None, records: RecordRun) -> None:
        self.state: PartitionState | None = state
        self.records: RecordRun = records

    def apply(self) -> None:
        """Update the partition's state by the latest step. The caller holds the lock."""
        state, given = self.state, self.records.latest
        if state is not None and given is not None:
            state.position = given.offset + 1
            state.consumed, state.consumed_epoch = given.offset, state.leader_epoch


NO_RUN = PartitionRun(None, RecordRun(WakeUp(), lambda: 0.0))
