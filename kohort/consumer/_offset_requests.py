"""The requests for offsets: committed ones, and those of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from kohort.consumer._cluster_requests import ClusterRequests
from kohort.consumer._commit_statistics import CommitStatistics
from kohort.errors import ConsumerClosedError, IllegalStateError, KafkaError
from kohort.fetcher import LATEST, Fetcher
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import start_soon
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.coordinator_client import CoordinatorClient


class OffsetRequests:
    """The requests for offsets, which wait for the first metadata.

    A timeout of None is ``request_timeout_ms``.
    """

    def __init__(
        self,
        cluster: ClusterRequests,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        coordinator: CoordinatorClient | None,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._fetcher = fetcher
        self._coordinator = coordinator
        self.statistics = CommitStatistics()
        self.former_ids: dict[TopicPartition, bytes] = {}
        """Topic ids of partitions that are no longer assigned, for commits of their offsets."""
        self.futures: set[Any] = set()
        """Futures of commit_async() that have no result yet."""
        self._tasks: TaskGroup | None = None
        self._started_commits: set[Callable[[BaseException | None], None]] = set()

    # -- committed offsets --------------------------------------------------------------------

    def _group(self) -> CoordinatorClient:
        if self._coordinator is None:
            raise IllegalStateError("this call needs a group. Set the option group_id")
        return self._coordinator

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None,
        *,
        ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit offsets in the current generation of the group.

        ``ids`` are their topic ids. None stands for the topic ids of the current positions.
        """
        if not offsets:
            return
        group, begun = self._group(), anyio.current_time()
        if ids is None:
            ids = self.ids_of(offsets)
        self._subscription.note_committing(offsets, ids)
        try:
            left = await self._cluster.wait_bootstrapped(timeout)
            await group.commit(offsets, timeout=left, ids=ids)
        except KafkaError as error:
            self.statistics.note_failed_commit(error)
            raise
        self.statistics.note_commit(offsets, anyio.current_time() - begun)

    def use_tasks(self, tasks: TaskGroup) -> None:
        """Run later commits of :meth:`start_commit` in this task group."""
        self._tasks = tasks

    def start_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        finish: Callable[[BaseException | None], None],
    ) -> None:
        """Start a commit, and call ``finish`` with its error or None, at least once."""
        ids = self.ids_of(offsets)  # read now, because a later poll() may change them
        self._started_commits.add(finish)

        async def commit() -> None:
            error: BaseException | None = ConsumerClosedError("the consumer is closed")
            try:
                await self.commit(offsets, None, ids=ids)
                error = None
            except Exception as raised:
                error = raised
            finally:
                self._started_commits.discard(finish)
                finish(error)

        assert self._tasks is not None
        start_soon(self._tasks, commit)

    def end_commits(self) -> None:
        """Let the started commits fail, because the engine has ended."""
        self._tasks = None
        for finish in tuple(self._started_commits):
            finish(ConsumerClosedError("the consumer is closed"))

    def ids_of(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Return the topic ids that offsets to commit belong to."""
        owned = self._subscription.assigned()
        left = {tp: topic_id for tp, topic_id in self.former_ids.items() if tp not in owned}
        return self._subscription.topic_ids(offsets) | left

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None,
        *,
        denied: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets or None. Add partitions to ``denied``, if given."""
        group = self._group()
        left = await self._cluster.wait_bootstrapped(timeout)
        found = await group.committed(frozenset(partitions), timeout=left, denied=denied)
        self.statistics.note_committed(found)
        offsets = {tp: at for tp, at in found.items() if at is not None}
        self._subscription.note_committing(offsets, {})
        return found

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """The assigned partitions whose offsets other members may have committed already."""
        return frozenset() if self._coordinator is None else self._coordinator.lost

    # -- offsets of the log -------------------------------------------------------------------

    async def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offsets at timestamps or log ends. Raise NoBrokersAvailable if unreached."""
        left = await self._cluster.wait_bootstrapped(timeout)
        return await self._fetcher.list_offsets(timestamps, timeout=left)

    async def boundary_offsets(
        self, partitions: Iterable[TopicPartition], end: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """Return log start offsets for EARLIEST, or log end offsets for LATEST."""
        found = await self.offsets_at(dict.fromkeys(partitions, end), timeout)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def reset_offset(self, tp: TopicPartition, strategy: OffsetReset) -> int:
        """Return the offset of a reset. ``strategy`` is not "none"."""
        timestamp = self._fetcher.reset_timestamp(strategy)
        # The log end is read first, so that records produced in between are not skipped.
        end = await self.boundary_offsets([tp], LATEST, None) if timestamp >= 0 else {}
        found = (await self.offsets_at({tp: timestamp}, None))[tp]
        return end[tp] if found is None else found.offset
