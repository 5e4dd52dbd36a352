"""The times of the rebalance in progress and the record of completed ones."""

from __future__ import annotations

from collections import deque

from kohort.coordinator_client.machine._member import NO_PARTITIONS, CommonMemberData
from kohort.types import NamedTuple, TopicPartition

HISTORY = 16
"""Number of past rebalances in the history."""


class RebalanceRecord(NamedTuple):
    """A completed rebalance."""

    at: float
    """Time of its end."""
    reason: str
    generation: int
    protocol: str
    gained: frozenset[TopicPartition]
    lost: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    seconds: float
    """Duration from the first step inside poll() to the end of the last callback."""
    waited: float
    """Duration of the wait before that, until the caller was inside poll()."""


class RebalanceHistory:
    """The rebalances of one member."""

    def __init__(self) -> None:
        self.reason = ""
        """Reason of the rebalance in progress, or of the latest one."""
        self.records: deque[RebalanceRecord] = deque(maxlen=HISTORY)
        self.count = 0
        self.seconds = self.longest = 0.0
        """Times of all rebalances, while the records are the latest ones only."""
        self.asked_at = 0.0
        """Time since which the group waits for the callbacks of the rebalance."""
        self._due_at: float | None = None
        self._began_at: float | None = None
        self._owned_before = self._lost = NO_PARTITIONS

    @property
    def is_begun(self) -> bool:
        """True from the first step of a rebalance inside poll() to its end."""
        return self._began_at is not None

    def note_due(self, now: float) -> None:
        """Note that a rebalance is due and waits for poll(). A restart of it changes nothing."""
        if self._due_at is None:
            self._due_at = self.asked_at = now

    def note_begin(self, owned: frozenset[TopicPartition], now: float) -> None:
        """Note the first step inside poll(). Later steps of the rebalance change nothing."""
        if self._began_at is None:
            self._began_at, self._owned_before, self._lost = now, owned, NO_PARTITIONS

    def note_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Note partitions of a lost membership. They count as gained if they come back."""
        self._lost |= partitions

    def note_second_round(self, owned: frozenset[TopicPartition], now: float) -> None:
        """Note the start of a rebalance that does not wait for poll()."""
        self._due_at = self._began_at = self.asked_at = now
        self._owned_before, self._lost = owned, NO_PARTITIONS

    def forget_begin(self) -> None:
        """Forget the rebalance in progress, which ended without an assignment."""
        self._began_at = self._due_at = None

    def complete(self, member: CommonMemberData, now: float) -> RebalanceRecord:
        """Add the rebalance to the records and the totals."""
        began = now if self._began_at is None else self._began_at
        due = began if self._due_at is None else self._due_at
        self.forget_begin()
        record = RebalanceRecord(
            at=now,
            reason=self.reason,
            generation=member.generation,
            protocol=member.protocol or "",
            gained=member.owned - (self._owned_before - self._lost),
            lost=(self._owned_before - member.owned) | self._lost,
            assignment=member.owned,
            seconds=now - began,
            waited=max(0.0, began - due),
        )
        self.records.append(record)
        self.count += 1
        self.seconds += record.seconds
        self.longest = max(self.longest, record.seconds)
        return record
