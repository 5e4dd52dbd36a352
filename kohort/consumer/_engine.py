"""The engine, which connects transport, group, fetcher and subscription.

It runs in one task of one event loop, which the API chooses. All methods are called in that loop.
Only the subscription and the callback queue may be used from other threads.
"""

from __future__ import annotations

import logging
import random
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from kohort.config import ConsumerConfig
from kohort.consumer._autocommit import AutoCommit
from kohort.consumer._callback_queue import CallbackQueue, EngineLoop
from kohort.consumer._commit_statistics import CommitStatistics
from kohort.consumer._first_positions import FirstPositionRules
from kohort.consumer._group_adapter import GroupAdapter
from kohort.consumer._metrics import report_stats
from kohort.consumer._positions import PositionFinder
from kohort.consumer._topics import TopicWatch
from kohort.errors import (
    ConsumerClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kohort.fetcher import (
    EARLIEST,
    LATEST,
    LOGGED_POLICIES,
    Fetcher,
    FetcherEvents,
    FetcherOptions,
)
from kohort.subscription import OffsetReset, SubscriptionMode, SubscriptionState
from kohort.transport import ClusterClient, Started, in_seconds, start_soon, weak_callback
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from anyio.abc import TaskGroup

    from kohort.coordinator_client import CoordinatorClient

logger = logging.getLogger("kohort.consumer")

__all__ = ["EARLIEST", "LATEST", "Engine"]

Offsets = dict[TopicPartition, OffsetAndMetadata]

DISCONNECT_SECONDS = 0.5
"""Maximum seconds for closing the connections. After that, the end of the task aborts them."""


class Engine:
    """The part of a consumer that both APIs share and that does all I/O."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        notify: Callable[[], None],
        clock: Callable[[], float],
        subscription: SubscriptionState | None = None,
    ) -> None:
        rng = config.rng or random.Random()
        # The parts refer to the engine weakly, so that a closed consumer is freed immediately.
        engine = weakref.proxy(self)
        self.config = config
        self.subscription = subscription or SubscriptionState(
            OffsetReset.from_option(config.fetch.auto_offset_reset)
        )
        self.callback_queue = CallbackQueue(EngineLoop(), notify, clock, self.subscription.wake_up)
        self.cluster = ClusterClient.of(config, rng)
        self.callback_queue.principal = lambda: engine.cluster.principal
        self.cluster.on_refusal(self.callback_queue.report, self.callback_queue.withdraw)
        self.first_positions = FirstPositionRules(self.subscription, config.fetch)
        self.fetcher = Fetcher(
            self.cluster,
            self.subscription,
            FetcherOptions.of(
                config, config.wall_clock or time.time, rng, self.first_positions.rule_for
            ),
            FetcherEvents(
                on_ready=notify,
                notify_waiting_caller=self.callback_queue.notify_waiting_caller,
                on_room=weak_callback(self._on_buffer_space),
                may_deliver=weak_callback(self.may_deliver),
            ),
        )
        self.group_adapter = GroupAdapter(
            self.callback_queue,
            self.subscription,
            has_listener=lambda: engine.has_listener,
            on_assignment=weak_callback(self._on_assignment),
            on_failure=weak_callback(self._on_group_failure),
        )
        self.coordinator: CoordinatorClient | None = None
        if config.group.group_id is not None:
            # It takes a fifth of the import time, and many consumers have no group.
            from kohort.coordinator_client import CoordinatorClient, resolve_assignors

            assignors = resolve_assignors(config.group.partition_assignment_strategy)
            self.coordinator = CoordinatorClient(
                self.cluster,
                config.group,
                assignors,
                self.group_adapter,
                rng=rng,
                rack=config.group.client_rack,
                on_group_topics=lambda topics: engine._topics.wake(),
                history=self.subscription.history,
            )
        self.has_listener = False
        """True if a listener is set. A reference to it could keep the consumer alive."""
        self.failure: Exception | None = None
        """The unexpected error that ended the engine."""
        self._group_failure: Exception | None = None
        """The latest error that the group reported to the caller."""
        self.ended = False
        """True if the engine has ended, by close() or by an unexpected error."""
        self.commit_statistics = CommitStatistics()
        self.resubscribed = False
        """True after subscribe(), also for the same topics. A fenced member then joins again."""
        self.rejoin_reason: str | None = None
        """The reason of a rebalance that the caller requested, until it is sent."""
        self._leaving = 0
        self.replaced_offsets: Offsets = {}
        """Offsets to commit for partitions replaced by a later assign()."""
        self._pending_topic_ids: dict[TopicPartition, bytes] = {}
        """Topic ids of the offsets in ``replaced_offsets``."""
        self._tasks: TaskGroup | None = None
        self._started_commits: set[Callable[[BaseException | None], None]] = set()
        self._positions = PositionFinder(engine)
        self._topics = TopicWatch(engine)

    # -- life ---------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None]) -> None:
        """Run until cancelled. An unexpected error also ends it and is kept in :attr:`failure`."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                cluster = Started()
                start_soon(tasks, partial(self.cluster.run, task_status=cluster))
                await cluster.wait()
                start_soon(tasks, self._topics.run)
                start_soon(tasks, self._positions.run)
                start_soon(tasks, self.fetcher.run)
                if self.coordinator is not None:
                    start_soon(tasks, self.coordinator.run)
                    if self.config.group.auto_commit:
                        start_soon(tasks, AutoCommit(self).run)
                if self.config.on_stats is not None:
                    start_soon(tasks, report_stats, self, self.config.on_stats)
                started()
                await anyio.sleep_forever()
        except Exception as error:
            logger.critical("internal error in kohort: the consumer has ended", exc_info=error)
            self.failure = error
        finally:
            self.ended, self._tasks = True, None
            for finish in tuple(self._started_commits):
                finish(ConsumerClosedError("the consumer is closed"))
            self.callback_queue.notify()
            self.fetcher.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(DISCONNECT_SECONDS):
                await self.cluster.aclose()

    def check_running(self) -> None:
        """Raise IllegalStateError if the engine has ended."""
        if self.ended:
            raise IllegalStateError(
                "internal error in kohort: close this consumer and create a new one"
                if self.failure is not None
                else "the consumer's background task or thread was ended from outside: close this "
                "consumer and create a new one"
            ) from self.failure

    def _on_group_failure(self, error: Exception) -> None:
        self._group_failure = self.callback_queue.add_error(error)

    def raise_group_failure(self) -> None:
        """Raise the error that ended the membership, unless poll() did or it is retriable."""
        error, errors = self._group_failure, self.callback_queue.errors
        if error is None or error not in errors or getattr(error, "retriable", False):
            return
        with suppress(ValueError):  # another task or thread has raised it
            errors.remove(error)
            raise error

    def may_deliver(self) -> bool:
        """Return False if the session may have expired, so that others may own the partitions.

        After a suspension, for example, another member may have read the buffered records.
        """
        coordinator = self.coordinator
        return coordinator is None or self.callback_queue.clock() < coordinator.confirmed_until

    def _on_buffer_space(self) -> None:
        self.callback_queue.engine_loop.call_soon(self.fetcher.wake)

    def _on_assignment(self) -> None:
        self._positions.wake()
        self.fetcher.wake()

    def apply_new_subscription(self) -> None:
        """Apply a call of subscribe() or assign()."""
        self._topics.forget_denied_topics()
        self.apply_subscription()

    def report_refusal(self, error: KafkaError) -> None:
        """Let poll() raise an authorization error, or only log it, as ``on_error`` says."""
        if self.config.fetch.on_error in LOGGED_POLICIES:
            logger.warning("%s", str(self.callback_queue.with_principal(error)))
        else:
            self.callback_queue.report(error)

    def find_positions(self) -> None:
        """Look up the positions of assigned partitions that have none."""
        self._positions.wake()

    def apply_subscription(self) -> None:
        """Apply a change of the subscription or assignment to topics, positions and fetches."""
        self._topics.wake()
        self._on_assignment()

    async def bootstrap(self, timeout: float | None, *, refresh: bool) -> None:
        """Wait for the cluster metadata, and with ``refresh`` for another update of it.

        Raise NoBrokersAvailable after ``bootstrap_timeout_ms``, and KafkaTimeoutError after
        ``timeout``; None is no limit.
        """
        with _TimeLimit(timeout, "the cluster metadata was not received"):
            await self.cluster.wait_bootstrapped()
            if refresh:
                await self.cluster.wait_refreshed()

    # -- offsets ------------------------------------------------------------------------------

    def _group(self) -> CoordinatorClient:
        if self.coordinator is None:
            raise IllegalStateError("this call needs a group. Set the option group_id")
        return self.coordinator

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
        self.subscription.note_committing(offsets, ids)
        try:
            await group.commit(offsets, timeout=await self._wait_bootstrapped(timeout), ids=ids)
        except KafkaError as error:
            self.commit_statistics.note_failed_commit(error)
            raise
        self.commit_statistics.note_commit(offsets, anyio.current_time() - begun)

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

    def ids_of(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Return the topic ids that offsets to commit belong to."""
        owned = self.subscription.assigned()
        left = {tp: topic_id for tp, topic_id in self._pending_topic_ids.items() if tp not in owned}
        return self.subscription.topic_ids(offsets) | left

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None,
        *,
        denied: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets or None. Add partitions to ``denied``, if given."""
        group = self._group()
        left = await self._wait_bootstrapped(timeout)
        found = await group.committed(frozenset(partitions), timeout=left, denied=denied)
        self.commit_statistics.note_committed(found)
        offsets = {tp: at for tp, at in found.items() if at is not None}
        self.subscription.note_committing(offsets, {})
        return found

    async def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offsets at timestamps or log ends. Raise NoBrokersAvailable if unreached."""
        left = await self._wait_bootstrapped(timeout)
        return await self.fetcher.list_offsets(timestamps, timeout=left)

    async def boundary_offsets(
        self, partitions: Iterable[TopicPartition], end: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """Return log start offsets for EARLIEST, or log end offsets for LATEST."""
        found = await self.offsets_at(dict.fromkeys(partitions, end), timeout)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def reset_offset(self, tp: TopicPartition, strategy: OffsetReset) -> int:
        """Return the offset of a reset. ``strategy`` is not "none"."""
        timestamp = self.fetcher.reset_timestamp(strategy)
        # The log end is read first, so that records produced in between are not skipped.
        end = await self.boundary_offsets([tp], LATEST, None) if timestamp >= 0 else {}
        found = (await self.offsets_at({tp: timestamp}, None))[tp]
        return end[tp] if found is None else found.offset

    async def position(self, tp: TopicPartition, timeout: float | None) -> int:
        """Return or look up the position. Raise NotAssignedError or KafkaTimeoutError."""
        with _TimeLimit(timeout, f"the position of {tp.topic}-{tp.partition} was not found"):
            return await self._positions.find(tp)

    async def _wait_bootstrapped(self, timeout: float | None) -> float:
        """Wait for the first metadata, and return the seconds left of the timeout."""
        seconds = self._seconds(timeout)
        until = anyio.current_time() + seconds
        with _TimeLimit(seconds, "no broker was reached"):
            await self.cluster.wait_bootstrapped()
        return max(0.0, until - anyio.current_time())

    def _seconds(self, timeout: float | None) -> float:
        return self.config.client.request_timeout_ms / 1000 if timeout is None else timeout

    # -- topics -------------------------------------------------------------------------------

    async def partitions_of(self, topic: str, timeout: float | None) -> frozenset[int]:
        """Return the partitions of a topic, requested if unknown. Empty if there is no topic."""
        with _TimeLimit(self._seconds(timeout), f"no metadata of topic {topic!r} arrived"):
            return await self._topics.partitions_of(topic)

    async def all_topics(self, timeout: float | None) -> frozenset[str]:
        """Return the names of all topics of the cluster, by a new request."""
        with _TimeLimit(self._seconds(timeout), "the list of topics was not received"):
            return await self._topics.all_topics()

    async def topic_ids(self, names: Iterable[str], timeout: float | None) -> dict[str, UUID]:
        """Return the ids of topics by a new request. Brokers before Kafka 2.8 have no ids."""
        from uuid import UUID

        with _TimeLimit(self._seconds(timeout), "the ids of topics were not received"):
            found = await self._topics.ids_of(frozenset(names))
        return {name: UUID(bytes=each) for name, each in found.items()}

    # -- automatic commits --------------------------------------------------------------------

    @property
    def auto_commit_timeout(self) -> float:
        """Timeout of an automatic commit in seconds, short enough to keep the membership."""
        group = self.config.group
        return min(group.request_timeout_ms, group.rebalance_timeout_ms / 2) / 1000

    def note_consumed(self, partitions: frozenset[TopicPartition] | None = None) -> None:
        """Mark all records that poll() returned (of these partitions) as processed."""
        if self.config.group.auto_commit:
            self.subscription.note_consumed(partitions)

    def consumed_offsets(self) -> Offsets:
        """Return the offsets for an automatic commit, without those of deleted topics.

        The coordinator rejects those, and retries would delay the rebalance that revokes them.
        """
        known = self.cluster.metadata
        consumed = self.subscription.consumed_offsets()
        return self.replaced_offsets | {
            tp: at for tp, at in consumed.items() if tp.partition in known.partitions_for(tp[0])
        }

    def keep_replaced_offsets(self) -> None:
        """Keep the consumed offsets of an assignment that an assign() without a wait replaces."""
        if self.config.group.auto_commit and not self.is_subscribed:
            self.note_consumed()
            offsets = self.consumed_offsets()
            ids = self.subscription.topic_ids(offsets)
            with self.subscription.lock:  # the caller's thread changes them, too
                self.replaced_offsets = offsets
                self._pending_topic_ids = self._pending_topic_ids | ids

    async def commit_replaced(self) -> None:
        """Commit the offsets that :meth:`keep_replaced_offsets` kept. Log a failure."""
        offsets = self.replaced_offsets
        try:
            await self.commit(offsets, self.auto_commit_timeout)
        except KafkaError as error:
            logger.warning("automatic commit failed: %s", str(error))
        with self.subscription.lock:
            self.replaced_offsets = {
                tp: at for tp, at in self.replaced_offsets.items() if offsets.get(tp) != at
            }
            if not self.replaced_offsets:
                self._pending_topic_ids = {}

    # -- leaving ------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """True after subscribe(), so that the group or the topics decide the assignment."""
        return self.subscription.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    @property
    def has_first_assignment(self) -> bool:
        """True if the subscription has had its first assignment."""
        if self.coordinator is None:
            return self._topics.has_assigned_all
        return self.group_adapter.rebalance_count > 0

    def is_membership_lost(self) -> bool:
        """Return True if the consumer has no generation, so it lost its assigned partitions."""
        return self.coordinator is not None and self.coordinator.snapshot().generation_id < 0

    @property
    def is_in_group(self) -> bool:
        """True while there is a membership, until leaving the group has finished."""
        if self.coordinator is None:
            return False
        return self.coordinator.snapshot().is_subscribed

    @property
    def is_leaving(self) -> bool:
        """True while the consumer unsubscribes, so that it does not join the group again."""
        return self._leaving > 0

    async def leave(self, reason: str, timeout: float, *, leave_group: bool | None = None) -> None:
        """Leave the group, if there is one, while the caller runs the callbacks.

        ``leave_group`` is as for :meth:`CoordinatorClient.leave`. The consumer joins no group until
        :meth:`finish_leave`. A failure is only logged, because the session expires in any case.
        """
        self._leaving += 1
        if self.coordinator is None:
            return
        try:
            with anyio.move_on_after(timeout):
                await self.coordinator.leave(reason, timeout, leave_group=leave_group)
        except KafkaError as error:
            logger.info("[%s] leaving the group failed: %s", self.config.group.group_id, str(error))

    def finish_leave(self) -> None:
        """Finish :meth:`leave` after the subscription was removed or replaced."""
        self._leaving = max(0, self._leaving - 1)
        self.replaced_offsets = {}
        self._topics.forget_subscription()
        self.apply_subscription()


class _TimeLimit:
    """A time limit that raises KafkaTimeoutError, which begins with ``text``."""

    def __init__(self, seconds: float | None, text: str) -> None:
        self._seconds, self._text = seconds, text

    def __enter__(self) -> None:
        self._scope = anyio.fail_after(self._seconds)
        self._scope.__enter__()

    def __exit__(self, *exc_info: Any) -> bool | None:
        try:
            return self._scope.__exit__(*exc_info)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"{self._text} within {in_seconds(self._seconds)}") from error
