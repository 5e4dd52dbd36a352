"""The engine: where transport, group, fetcher and subscription are put together.

It runs in one task of one event loop; which loop that is, is the face's affair. Everything here is
called from within that loop, but for what the subscription and the mailbox allow from outside.
"""

from __future__ import annotations

import logging
import random
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer._autocommit import AutoCommit
from kohort.consumer._callback_queue import CallbackQueue, EngineLoop
from kohort.consumer._commit_statistics import CommitStatistics
from kohort.consumer._first_positions import FirstPositionRules
from kohort.consumer._group_adapter import GroupAdapter
from kohort.consumer._positions import PositionFinder
from kohort.consumer._stats_reporter import report_stats
from kohort.consumer._topics import TopicWatch
from kohort.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from kohort.fetcher import EARLIEST, LATEST, LOGGED_POLICIES, Fetcher
from kohort.subscription import OffsetReset, SubscriptionMode, SubscriptionState
from kohort.transport import ClusterClient, Started, in_seconds, start_soon, weak_callback
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kohort.coordinator_client import CoordinatorClient

logger = logging.getLogger("kohort.consumer")

__all__ = ["EARLIEST", "LATEST", "Engine"]

Offsets = dict[TopicPartition, OffsetAndMetadata]

COMMIT_RETRY_SECONDS = 1.0
"""Seconds that unsubscribe() repeats its commit while a rebalance does not let it through."""
DISCONNECT_SECONDS = 0.5
"""How long the connections may take to close; they are cut, at the latest, when the task ends."""


class Engine:
    """The core of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        notify: Callable[[], None],
        clock: Callable[[], float],
        subscription: SubscriptionState | None = None,
    ) -> None:
        rng = config.rng or random.Random()
        # Its parts must not keep it alive: a closed consumer is freed by its last reference.
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
            config.fetch,
            wall_clock=config.wall_clock or time.time,
            on_ready=notify,
            notify_waiting_caller=self.callback_queue.notify_waiting_caller,
            on_room=weak_callback(self._on_buffer_space),
            may_deliver=weak_callback(self.may_deliver),
            key_deserializer=config.deserialize_key,
            value_deserializer=config.deserialize_value,
            rack=config.group.client_rack,
            metadata_max_age_ms=config.client.metadata_max_age_ms,
            rng=rng,
            first_reset=self.first_positions.rule_for,
        )
        self.group_adapter = GroupAdapter(
            self.callback_queue,
            self.subscription,
            has_listener=lambda: engine.has_listener,
            has_unsubscribed=lambda: engine.unsubscribed_offsets is not None,
            on_assignment=weak_callback(self._on_assignment),
            on_failure=self.callback_queue.report,
        )
        self.coordinator: CoordinatorClient | None = None
        if config.group.group_id is not None:
            # A fifth of the time that an import takes, and many consumers are in no group.
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
        """The listener itself is the face's: through it the core would keep the consumer alive."""
        self.failure: Exception | None = None
        """The defect that ended the core."""
        self.ended = False
        """Nothing runs any more: the consumer was closed, or something went wrong."""
        self.commit_statistics = CommitStatistics()
        self.resubscribed = False
        """The caller called subscribe(), perhaps for the same topics: a new try, if fenced."""
        self.rejoin_reason: str | None = None
        """The caller asks for a rebalance, and this is why."""
        self._leaving = 0
        self.unsubscribed_offsets: Offsets | None = None
        """The caller has given up its subscription; these are left to commit before leaving."""
        self._unsubscribed = anyio.Event()
        self.replaced_offsets: Offsets = {}
        """Of partitions that another assign() has put aside; left to commit."""
        self._pending_topic_ids: dict[TopicPartition, bytes] = {}
        """The ids of the topics that offsets left to commit belong to."""
        self._positions = PositionFinder(engine)
        self._topics = TopicWatch(engine)

    # -- life ---------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None]) -> None:
        """Run until cancelled. A defect ends it, too, and is kept in :attr:`failure`."""
        try:
            async with anyio.create_task_group() as tasks:
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
            logger.critical("the consumer broke down", exc_info=error)
            self.failure = error
        finally:
            self.ended = True
            self.callback_queue.notify()
            self.fetcher.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(DISCONNECT_SECONDS):
                await self.cluster.aclose()

    def check_running(self) -> None:
        """Raise IllegalStateError when the core has ended."""
        if self.ended:
            raise IllegalStateError(
                "the consumer broke down, by a defect of kohort's: close it, and make a new one"
                if self.failure is not None
                else "the consumer's own task or thread was ended: close it, and make a new one"
            ) from self.failure

    def may_deliver(self) -> bool:
        """False: the session may be over and the partitions another member's, who knows.

        Such as after a process was stopped and goes on: what it finds buffered, the other has read.
        """
        coordinator = self.coordinator
        return coordinator is None or self.callback_queue.clock() < coordinator.confirmed_until

    def _on_buffer_space(self) -> None:
        self.callback_queue.engine_loop.call_soon(self.fetcher.wake)

    def _on_assignment(self) -> None:
        self._positions.wake()
        self.fetcher.wake()

    def apply_new_subscription(self) -> None:
        """The caller subscribed or assigned; runs in the core."""
        self._topics.forget_denied_topics()
        self.apply_subscription()

    def report_refusal(self, error: KafkaError) -> None:
        """Have poll() raise that a right is missing; only log it where ``on_error`` says so."""
        if self.config.fetch.on_error in LOGGED_POLICIES:
            logger.warning("%s", str(self.callback_queue.with_principal(error)))
        else:
            self.callback_queue.report(error)

    def find_positions(self) -> None:
        """Partitions may have lost their positions."""
        self._positions.wake()

    def apply_subscription(self) -> None:
        """The caller subscribed, assigned or unsubscribed."""
        self._topics.wake()
        self._on_assignment()

    async def bootstrap(self, timeout: float | None, *, refresh: bool) -> None:
        """Wait for the cluster's metadata (None: as long as NoBrokersAvailable takes to be sure).

        With ``refresh`` it is asked for in any case. KafkaTimeoutError, NoBrokersAvailable.
        """
        with _deadline(timeout, "the cluster's metadata did not come"):
            await self.cluster.wait_bootstrapped()
            if refresh:
                await self.cluster.wait_refreshed()

    # -- offsets ------------------------------------------------------------------------------

    def _group(self) -> CoordinatorClient:
        if self.coordinator is None:
            raise IllegalStateError("this needs a group: give the consumer a group_id")
        return self.coordinator

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None,
        *,
        ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit these, in the group's current generation.

        ``ids``: those of the topics that the offsets belong to; None: as the positions do now.
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

    def ids_of(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """The ids of the topics that offsets belong to, which are to be committed."""
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
        """Return the committed offsets of the group; None for a partition without one.

        ``denied`` takes partitions on which a right is missing, instead of an error.
        """
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
        """The offsets at timestamps, or at the ends of the log. NoBrokersAvailable at the start."""
        left = await self._wait_bootstrapped(timeout)
        return await self.fetcher.list_offsets(timestamps, timeout=left)

    async def boundary_offsets(
        self, partitions: Iterable[TopicPartition], end: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """The first (:data:`EARLIEST`) or next (:data:`LATEST`) offsets of partitions."""
        found = await self.offsets_at(dict.fromkeys(partitions, end), timeout)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def reset_offset(self, tp: TopicPartition, strategy: OffsetReset) -> int:
        """Where a partition starts by a rule that is not "none"."""
        timestamp = self.fetcher.reset_timestamp(strategy)
        # The end comes first: what is written in between is not passed over.
        end = await self.boundary_offsets([tp], LATEST, None) if timestamp >= 0 else {}
        found = (await self.offsets_at({tp: timestamp}, None))[tp]
        return end[tp] if found is None else found.offset

    async def position(self, tp: TopicPartition, timeout: float | None) -> int:
        """The position, looked up if need be. NotAssignedError, KafkaTimeoutError."""
        with _deadline(timeout, f"the position of {tp.topic}-{tp.partition} did not come"):
            return await self._positions.find(tp)

    async def _wait_bootstrapped(self, timeout: float | None) -> float:
        """Wait for the first contact; the seconds that are left after it."""
        seconds = self._seconds(timeout)
        until = anyio.current_time() + seconds
        with _deadline(seconds, "no broker was reached"):
            await self.cluster.wait_bootstrapped()
        return max(0.0, until - anyio.current_time())

    def _seconds(self, timeout: float | None) -> float:
        return self.config.client.request_timeout_ms / 1000 if timeout is None else timeout

    # -- topics -------------------------------------------------------------------------------

    async def partitions_of(self, topic: str, timeout: float | None) -> frozenset[int]:
        """The partitions of a topic, asked for if they are not known; empty if there is none."""
        with _deadline(self._seconds(timeout), f"no metadata of topic {topic!r}"):
            return await self._topics.partitions_of(topic)

    async def all_topics(self, timeout: float | None) -> frozenset[str]:
        """The names of all topics of the cluster, asked for anew."""
        with _deadline(self._seconds(timeout), "the list of topics did not come"):
            return await self._topics.all_topics()

    async def topic_ids(self, names: Iterable[str], timeout: float | None) -> dict[str, UUID]:
        """The ids of topics, asked for anew; of brokers before 2.8 none."""
        from uuid import UUID

        with _deadline(self._seconds(timeout), "the ids of topics did not come"):
            found = await self._topics.ids_of(frozenset(names))
        return {name: UUID(bytes=each) for name, each in found.items()}

    # -- automatic commits --------------------------------------------------------------------

    @property
    def auto_commit_timeout(self) -> float:
        """How long an automatic commit may take: it must not cost the membership."""
        group = self.config.group
        return min(group.request_timeout_ms, group.rebalance_timeout_ms / 2) / 1000

    def note_consumed(self, partitions: frozenset[TopicPartition] | None = None) -> None:
        """The caller is done with all that it was given before (of these partitions), by poll()."""
        if self.config.group.auto_commit:
            self.subscription.note_consumed(partitions)

    def consumed_offsets(self) -> Offsets:
        """What an automatic commit commits; nothing of topics that are deleted.

        The coordinator would refuse those for as long as they are repeated, which would hold up
        the rebalance that takes them away.
        """
        known = self.cluster.metadata
        consumed = self.subscription.consumed_offsets()
        return self.replaced_offsets | {
            tp: at for tp, at in consumed.items() if tp.partition in known.partitions_for(tp[0])
        }

    def keep_replaced_offsets(self) -> None:
        """What is assigned by hand is replaced by a caller who cannot wait for a commit."""
        if self.config.group.auto_commit and not self.is_subscribed:
            self.note_consumed()
            self.replaced_offsets = self.consumed_offsets()
            self._pending_topic_ids |= self.subscription.topic_ids(self.replaced_offsets)

    async def commit_replaced(self) -> None:
        """What :meth:`keep_replaced_offsets` left to do; a failure is only logged."""
        offsets = self.replaced_offsets
        try:
            await self.commit(offsets, self.auto_commit_timeout)
        except KafkaError as error:
            logger.warning("automatic commit failed: %s", str(error))
        self.replaced_offsets = {
            tp: at for tp, at in self.replaced_offsets.items() if offsets.get(tp) != at
        }
        self._forget_pending_topic_ids()

    def _forget_pending_topic_ids(self) -> None:
        if not self.replaced_offsets and self.unsubscribed_offsets is None:
            self._pending_topic_ids = {}

    # -- leaving ------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """True if the group, or the subscription without one, decides what is assigned."""
        return self.subscription.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    @property
    def has_first_assignment(self) -> bool:
        """The subscription has led to its first assignment."""
        if self.coordinator is None:
            return self._topics.has_assigned_all
        return self.group_adapter.rebalance_count > 0

    def is_membership_lost(self) -> bool:
        """What is assigned is no longer this member's."""
        return self.coordinator is not None and self.coordinator.snapshot().generation_id < 0

    @property
    def is_in_group(self) -> bool:
        """There is a membership, or the end of one is not over yet."""
        if self.coordinator is None:
            return False
        return self.coordinator.snapshot().is_subscribed

    @property
    def is_leaving(self) -> bool:
        """The subscription is being given up; the group is not to be joined meanwhile."""
        return self._leaving > 0

    async def leave(self, reason: str, timeout: float, *, leave_group: bool | None = None) -> None:
        """Leave the group, if in one; the caller performs the callbacks meanwhile.

        ``leave_group``: whether to tell the coordinator; as :meth:`CoordinatorClient.leave`.

        Nothing is joined again before :meth:`left`. Never raises: what does not get through is
        seen to by the end of the session.
        """
        self._leaving += 1
        with anyio.move_on_after(timeout):
            if self.unsubscribed_offsets is not None:
                await self._unsubscribed.wait()
            await self._leave_group(reason, timeout, leave_group)

    async def _leave_group(
        self, reason: str, timeout: float, leave_group: bool | None = None
    ) -> None:
        if self.coordinator is None:
            return
        try:
            await self.coordinator.leave(reason, timeout, leave_group=leave_group)
        except KafkaError as error:
            logger.info("could not leave the group: %s", str(error))

    def finish_leave(self) -> None:
        """The caller has given up its subscription, or has another one by now."""
        self._leaving = max(0, self._leaving - 1)
        self.replaced_offsets = {}
        self._topics.forget_subscription()
        self.apply_subscription()

    def drop_subscription(self) -> None:
        """Give up the subscription at once; the core commits and leaves when it gets to it.

        For a caller who cannot wait; it has called the listener.
        """
        if self.coordinator is not None:
            consumed = self.consumed_offsets() if self.config.group.auto_commit else {}
            if self.unsubscribed_offsets is None:
                self._unsubscribed = anyio.Event()
            self.unsubscribed_offsets = (self.unsubscribed_offsets or {}) | consumed
            self._pending_topic_ids |= self.subscription.topic_ids(consumed)
            self.replaced_offsets = {}
        self.subscription.unsubscribe()
        self.apply_subscription()

    async def finish_unsubscribe(self) -> None:
        """What :meth:`part` left to do."""
        retry_until = anyio.current_time() + COMMIT_RETRY_SECONDS
        while True:
            try:
                await self.commit(self.unsubscribed_offsets or {}, CLOSE_TIMEOUT)
            except RebalanceInProgressError as error:
                if anyio.current_time() < retry_until:
                    await anyio.sleep(self.config.group.retry_backoff_ms / 1000)
                    continue
                logger.warning("automatic commit failed: %s", str(error))
            except KafkaError as error:
                logger.warning("automatic commit failed: %s", str(error))
            break
        await self._leave_group("the consumer unsubscribed", CLOSE_TIMEOUT)
        self.unsubscribed_offsets = None
        self._forget_pending_topic_ids()
        self._unsubscribed.set()
        self._topics.forget_subscription()


class _deadline:
    """A time limit that raises KafkaTimeoutError and says what did not come."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self._seconds = seconds
        self._what = what

    def __enter__(self) -> None:
        self._scope = anyio.fail_after(self._seconds)
        self._scope.__enter__()

    def __exit__(self, *exc_info: Any) -> bool | None:
        try:
            return self._scope.__exit__(*exc_info)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"{self._what} within {in_seconds(self._seconds)}") from error
