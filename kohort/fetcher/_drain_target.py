"""Targets of a drain: record objects, or the rows of one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from kohort.fetcher._completed import CompletedFetch
from kohort.records import ConsumerRecord
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import TablePlan

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[K, V]]]
"""Records of each partition, in order."""


class DrainedFetch:
    """Records decoded in one drain, and the state to restore if they are not delivered."""

    __slots__ = ("fetch", "is_last", "leader_epoch", "moved", "position", "records")

    def __init__(self, fetch: CompletedFetch, *, is_last: bool) -> None:
        self.fetch = fetch
        self.records: Any = []
        """The result of the target's take()."""
        self.is_last = is_last
        """True if the fetch was the last of its queue."""
        self.moved: PartitionState | None = None
        """The state whose position was moved, or None before the delivery."""
        self.position: int | None = None
        """The position before the delivery."""
        self.leader_epoch = -1
        """The leader epoch before the delivery."""


class DrainTarget(Protocol):
    """The target of one drain. The results of take() have a length."""

    drained: list[DrainedFetch]
    """The fetches that the drain has claimed so far, in order."""

    def is_ready(self, fetch: CompletedFetch) -> bool:
        """True if the target can take the fetch. Otherwise it must be fetched again."""
        ...

    def take(self, fetch: CompletedFetch, limit: int) -> Any: ...

    def finish(self) -> None:
        """Build the result after the last take() and before the first deliver().

        All fetches still have their bytes.
        """
        ...

    def leader_epoch(self, fetch: CompletedFetch, taken: Any) -> int:
        """Return the leader epoch of the last record taken."""
        ...

    def deliver(self, tp: TopicPartition, taken: Any) -> None: ...

    def put_back(self, subscription: SubscriptionState, fetch: CompletedFetch, taken: Any) -> bool:
        """Undo a take(), and return True if a fetch is needed. The caller holds the lock."""
        ...

    def is_complete(self) -> bool:
        """True if all taken records were delivered, or the target does not need all of them.

        Otherwise the drain is undone.
        """
        ...


class RecordTarget:
    """The target for record objects."""

    def __init__(self) -> None:
        self.records: Records[Any, Any] = {}
        self.drained: list[DrainedFetch] = []

    def is_ready(self, fetch: CompletedFetch) -> bool:
        return True

    def take(self, fetch: CompletedFetch, limit: int) -> list[ConsumerRecord[Any, Any]]:
        return fetch.take(limit)

    def finish(self) -> None:
        pass

    def leader_epoch(self, fetch: CompletedFetch, taken: list[ConsumerRecord[Any, Any]]) -> int:
        return taken[-1].leader_epoch

    def deliver(self, tp: TopicPartition, taken: list[ConsumerRecord[Any, Any]]) -> None:
        before = self.records.get(tp)
        self.records[tp] = taken if before is None else before + taken  # both may be put back

    def put_back(
        self,
        subscription: SubscriptionState,
        fetch: CompletedFetch,
        taken: list[ConsumerRecord[Any, Any]],
    ) -> bool:
        fetch.put_back(taken)
        return False

    def is_complete(self) -> bool:
        return True


class TableTarget(Generic[T]):
    """The target for one table of all partitions, which ``build`` creates.

    Fetches that are put back are fetched again.
    """

    def __init__(self, plan: TablePlan, build: Callable[[TablePlan], T]) -> None:
        self.plan = plan
        self.table: T | None = None
        self.drained: list[DrainedFetch] = []
        self._build = build
        self._delivered_rows = 0

    def is_ready(self, fetch: CompletedFetch) -> bool:
        return not fetch.is_partly_decoded

    def take(self, fetch: CompletedFetch, limit: int) -> range:
        return range(fetch.measure(self.plan))

    def finish(self) -> None:
        if self.plan.rows:
            self.table = self._build(self.plan)

    def leader_epoch(self, fetch: CompletedFetch, taken: range) -> int:
        return fetch.measured_epoch

    def deliver(self, tp: TopicPartition, taken: range) -> None:
        self._delivered_rows += len(taken)

    def put_back(
        self, subscription: SubscriptionState, fetch: CompletedFetch, taken: range
    ) -> bool:
        state: PartitionState | None = subscription.partition_at(fetch.topic_partition, fetch.epoch)
        if state is None or not (taken or fetch.is_partly_decoded or fetch.is_measured):
            return False
        subscription.refetch_from(state)
        return True

    def is_complete(self) -> bool:
        # Rows cannot be removed from a table, so one revoked partition makes it unusable.
        if self._delivered_rows < self.plan.rows:
            self.table = None
        return self._delivered_rows == self.plan.rows
