"""The requests of a consumer for cluster metadata and offsets, and statistics of its commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from kohort.consumer.engine._observed import Observed, Observer
from kohort.errors import (
    ConsumerClosedError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kohort.fetcher import LATEST, Fetcher
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import ClusterClient, ClusterMetadata, in_seconds, start_soon
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from anyio.abc import TaskGroup

    from kohort.coordinator_client import CoordinatorClient


class Durations:
    """Count, total and maximum of durations in seconds."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0


class CommitStatistics:
    """Statistics of one consumer's commits. Only the engine writes them, any thread may read."""

    __slots__ = ("commits", "committed", "failed_commits", "last_commit_error")

    def __init__(self) -> None:
        self.commits = Durations()
        self.failed_commits = 0
        self.last_commit_error: str | None = None
        """The error of the latest commit; None if it succeeded."""
        self.committed: dict[TopicPartition, int] = {}
        """The offsets that this consumer last committed, or last read from the coordinator."""

    def note_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float
    ) -> None:
        """Note a successful commit."""
        self.commits.add(seconds)
        self.last_commit_error = None
        self.committed.update((tp, at.offset) for tp, at in offsets.items())

    def forget_topic(self, topic: str) -> None:
        """Drop the committed offsets of a recreated topic, because they belong to the old one."""
        for tp in [tp for tp in self.committed if tp.topic == topic]:
            del self.committed[tp]

    def note_failed_commit(self, error: Exception) -> None:
        """Note a failed commit."""
        self.failed_commits += 1
        self.last_commit_error = f"{type(error).__name__}: {error}"

    def note_committed(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Note the committed offsets that the coordinator returned."""
        self.committed.update((tp, at.offset) for tp, at in found.items() if at is not None)


class ClusterRequests:
    """The requests for cluster metadata. A timeout of None is ``request_timeout_ms``."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        timeout: float,
        retry_pause: float,
        hides_internal_topics: bool,
    ) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._retry_pause = retry_pause
        self._hides_internal_topics = hides_internal_topics

    async def bootstrap(self, timeout: float | None, *, refresh: bool) -> None:
        """Wait for the cluster metadata, and with ``refresh`` for another update of it.

        Raise NoBrokersAvailable after ``bootstrap_timeout_ms``, and KafkaTimeoutError after
        ``timeout``; None is no limit here.
        """
        with self._limit(timeout, "the cluster metadata was not received"):
            await self._cluster.wait_bootstrapped()
            if refresh:
                await self._cluster.wait_refreshed()

    async def wait_bootstrapped(self, timeout: float | None) -> float:
        """Wait for the first metadata, and return the seconds left of the timeout."""
        seconds = self._seconds(timeout)
        if self._cluster.bootstrapped:
            return seconds
        until = anyio.current_time() + seconds
        with self._limit(seconds, "no broker was reached"):
            await self._cluster.wait_bootstrapped()
        return max(0.0, until - anyio.current_time())

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def _limit(self, seconds: float | None, text: str) -> TimeLimit:
        """Return a time limit whose error says why no broker was reached yet."""
        return TimeLimit(seconds, text, lambda: self._obstacle)

    @property
    def _obstacle(self) -> str | None:
        return None if self._cluster.bootstrapped else self._cluster.last_error

    async def partitions_of(self, topic: str, timeout: float | None) -> frozenset[int]:
        """Return the partitions of a topic, requested if unknown. Empty if there is no topic."""
        with self._limit(self._seconds(timeout), f"no metadata of topic {topic!r} arrived"):
            metadata = self._cluster.metadata
            while not metadata.partitions_for(topic):
                # A request for one name could create the topic, so all topics are requested.
                metadata = await self._cluster.fetch_topics(None)
                known = metadata.topics.get(topic)
                if known is None or known.error != ErrorCode.LEADER_NOT_AVAILABLE:
                    break
                # The topic exists, but its leaders are not elected yet.
                await anyio.sleep(self._retry_pause)
            return frozenset(metadata.partitions_for(topic))

    async def all_topics(self, timeout: float | None) -> frozenset[str]:
        """Return the names of all topics of the cluster, by a new request."""
        with self._limit(self._seconds(timeout), "the list of topics was not received"):
            return self.visible_topics(await self._cluster.fetch_topics(None))

    def visible_topics(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the names in cluster metadata, without internal topics if they are hidden."""
        hide, known = self._hides_internal_topics, metadata.topics
        return frozenset(name for name, topic in known.items() if not (hide and topic.is_internal))

    async def topic_ids(self, names: Iterable[str], timeout: float | None) -> dict[str, UUID]:
        """Return the ids of topics by a new request. Brokers before Kafka 2.8 have no ids.

        Topics that do not exist or have no id are left out.
        """
        from uuid import UUID

        wanted = frozenset(names)
        with self._limit(self._seconds(timeout), "the ids of topics were not received"):
            metadata = await self._cluster.fetch_topics(wanted, may_create=False)
        known = {name: metadata.topics[name] for name in wanted if name in metadata.topics}
        return {
            name: UUID(bytes=topic.topic_id)
            for name, topic in known.items()
            if not topic.error and any(topic.topic_id)
        }


class TimeLimit:
    """A time limit that raises KafkaTimeoutError, which begins with ``text``.

    ``cause`` returns the end of the text, if it is known.
    """

    def __init__(
        self,
        seconds: float | None,
        text: str,
        cause: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._seconds, self._text, self._cause = seconds, text, cause

    def __enter__(self) -> None:
        self._scope = anyio.fail_after(self._seconds)
        self._scope.__enter__()

    def __exit__(self, *exc_info: Any) -> bool | None:
        try:
            return self._scope.__exit__(*exc_info)
        except TimeoutError as error:
            cause = self._cause()
            raise KafkaTimeoutError(
                f"{self._text} within {in_seconds(self._seconds)}"
                + (f": {cause}" if cause is not None else "")
            ) from error


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
        self.observe: Observer | None = None
        """The observer of commits."""
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

    @property
    def membership(self) -> tuple[str, int]:
        """The member id, and the generation or epoch."""
        snapshot = self._group().snapshot()
        return snapshot.member_id, snapshot.generation_id

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
        end = None if self.observe is None else self.observe()
        group, begun = self._group(), anyio.current_time()
        if ids is None:
            ids = self.ids_of(offsets)
        self._subscription.note_committing(offsets, ids)
        try:
            left = await self._cluster.wait_bootstrapped(timeout)
            await group.commit(offsets, timeout=left, ids=ids)
        except KafkaError as error:
            self.statistics.note_failed_commit(error)
            if end is not None:
                end(Observed(offsets.keys()), error)
            raise
        self.statistics.note_commit(offsets, anyio.current_time() - begun)
        if end is not None:
            end(Observed(offsets.keys()), None)

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
        answers = await self.offsets_at(dict.fromkeys(partitions, end), timeout)
        found = {tp: at for tp, at in answers.items() if at is not None}
        if end == LATEST:
            self._subscription.note_log_ends(found)
        return {tp: at.offset for tp, at in found.items()}

    async def reset_offset(self, tp: TopicPartition, strategy: OffsetReset) -> int:
        """Return the offset of a reset. ``strategy`` is not "none"."""
        timestamp = self._fetcher.reset_timestamp(strategy)
        # The log end is read first, so that records produced in between are not skipped.
        end = await self.boundary_offsets([tp], LATEST, None) if timestamp >= 0 else {}
        found = (await self.offsets_at({tp: timestamp}, None))[tp]
        return end[tp] if found is None else found.offset
