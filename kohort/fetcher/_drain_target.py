"""What a drain makes of completed fetches: record objects, or the rows of one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from kohort.fetcher._completed import CompletedFetch
from kohort.records import ConsumerRecord
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import TablePlan

Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
T = TypeVar("T")


class DrainTarget(Protocol):
    """How a drain takes; one for each drain. What take() returns has a length."""

    def begin(self, put_back: Callable[[Any, Any], None], taken: Any) -> None:
        """``put_back(self, taken)`` takes back what was handed out."""
        ...

    def is_ready(self, fetch: CompletedFetch) -> bool:
        """False: it has to be fetched anew before it can be taken so."""
        ...

    def take(self, fetch: CompletedFetch, limit: int) -> Any: ...

    def finish(self) -> None:
        """All is taken; nothing is handed out yet, and all fetches still have their bytes."""
        ...

    def leader_epoch(self, fetch: CompletedFetch, taken: Any) -> int:
        """Of the last record taken."""
        ...

    def deliver(self, tp: TopicPartition, taken: Any) -> None: ...

    def put_back(self, subscription: SubscriptionState, fetch: CompletedFetch, taken: Any) -> bool:
        """Undo a take(); True if something is to be fetched for it. The caller holds the lock."""
        ...

    def is_complete(self) -> bool:
        """All that was taken is handed out, or it does not matter; else nothing of it counts."""
        ...


class RecordTarget:
    """Records as objects."""

    def __init__(self) -> None:
        self.records: Records = {}

    def begin(self, put_back: Callable[[Any, Any], None], taken: Any) -> None:
        pass

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
    """Rows of all partitions in a table that ``build`` makes; what is put back is fetched anew."""

    def __init__(self, plan: TablePlan, build: Callable[[TablePlan], T]) -> None:
        self.plan = plan
        self.table: T | None = None
        self._put_back: tuple[Callable[[Any, Any], None], Any] | None = None
        self._build = build
        self._delivered_rows = 0

    def begin(self, put_back: Callable[[Any, Any], None], taken: Any) -> None:
        self._put_back = put_back, taken

    def undo(self) -> None:
        """Have what was handed out fetched again."""
        if self._put_back is not None:
            put_back, taken = self._put_back
            put_back(self, taken)

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
        # The table cannot be cut any more; a partition that was revoked meanwhile spoils it.
        if self._delivered_rows < self.plan.rows:
            self.table = None
        return self._delivered_rows == self.plan.rows
