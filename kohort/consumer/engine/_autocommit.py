"""Automatic commits, all of them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

from kohort.config import GroupConfig
from kohort.consumer.engine._callback_queue import CallbackQueue
from kohort.consumer.engine._requests import OffsetRequests
from kohort.errors import KafkaError, WakeupError
from kohort.logs import error_text, get_logger
from kohort.subscription import SubscriptionState
from kohort.transport import ClusterClient
from kohort.types import OffsetAndMetadata, TopicPartition

logger = get_logger("kohort.consumer")

T = TypeVar("T")

SHORTEST = 0.01
"""Minimum seconds between two commits, also if an option asks for less."""
COMMIT_SHARE = 0.7
"""Share of the leave timeout for the commit. The rest is for LeaveGroup."""
SHORTEST_TIMEOUT = 0.1
"""Minimum seconds for the commit at the end, also if no time is left."""


class CallEngine(Protocol):
    """A function that awaits another one in the engine's event loop and returns its result.

    ``seconds`` is the timeout that ``function`` applies to itself.
    """

    async def __call__(self, function: Callable[[], Awaitable[T]], seconds: float) -> T: ...


class AutoCommit:
    """The automatic commits of one consumer. With ``enable_auto_commit=False`` there are none.

    They commit positions after consumed records. Records are consumed when the caller enters the
    next poll() or close(). The engine commits offsets that changed at intervals, in :meth:`run`. It
    also commits for partitions that assign() has replaced, in :meth:`commit_replaced`. The caller
    commits before a revocation, in :meth:`before_revocation`. That includes unsubscribe() and
    close() of a group member. Without a subscription they commit in :meth:`commit`. A failure is
    only logged.

    Brokers delete the offsets of a group without members after a retention time. For partitions of
    assign(), unchanged offsets are therefore committed again every
    ``offsets_recommit_interval_ms``.
    """

    def __init__(
        self,
        group: GroupConfig,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        requests: OffsetRequests,
        callback_queue: CallbackQueue,
    ) -> None:
        self.is_enabled = group.auto_commit
        self.has_unprocessed = False
        """True while a revocation also commits records that the caller may still process."""
        self._cluster = cluster
        self._subscription = subscription
        self._requests = requests
        self._callback_queue = callback_queue
        # Short enough to keep the membership.
        self._timeout = min(group.request_timeout_ms, group.rebalance_timeout_ms / 2) / 1000
        self._interval = max(group.auto_commit_interval_ms / 1000, SHORTEST)
        self._again_after = math.inf
        if group.offsets_recommit_interval_ms:
            self._again_after = max(group.offsets_recommit_interval_ms / 1000, SHORTEST)
        self._committed: dict[TopicPartition, tuple[OffsetAndMetadata, bytes]] = {}
        self._replaced: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets to commit for partitions replaced by a later assign()."""
        self._deadline: float | None = None
        self._is_suspended = False

    # -- offsets ------------------------------------------------------------------------------

    def note_consumed(self, partitions: frozenset[TopicPartition] | None = None) -> None:
        """Mark all records that poll() returned (of these partitions) as processed."""
        if self.is_enabled:
            self._subscription.note_consumed(partitions)

    def _consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit, without those of deleted topics and of lost partitions.

        The coordinator rejects those of deleted topics, and retries would delay the rebalance that
        revokes them. Other members may have committed later offsets of lost partitions.
        """
        known, lost = self._cluster.metadata, self._requests.lost
        consumed = self._subscription.consumed_offsets()
        return self._replaced | {
            tp: at
            for tp, at in consumed.items()
            if tp not in lost and tp.partition in known.partitions_for(tp[0])
        }

    # -- at intervals -------------------------------------------------------------------------

    async def run(self) -> None:
        """Commit at intervals. Run until cancelled; never raises."""
        now = anyio.current_time()
        changed_due, all_due = now + self._interval, now + self._again_after
        while True:
            await anyio.sleep_until(min(changed_due, all_due))
            now = anyio.current_time()
            if now >= all_due and not self._subscription.is_subscribed:
                done = await self._commit(all_of_them=True)
                all_due = now + (self._again_after if done else self._interval)
                changed_due = max(changed_due, now + SHORTEST)
            elif now >= all_due:
                all_due = now + self._interval  # the caller may call assign() until then
            if now >= changed_due:
                await self._commit()
                changed_due = anyio.current_time() + self._interval

    async def _commit(self, *, all_of_them: bool = False) -> bool:
        """Commit the offsets that changed, or all. Return False if the commit failed."""
        consumed = self._consumed_offsets()
        ids = self._requests.ids_of(consumed)
        # The same offset of a recreated topic is another position, so the topic id counts.
        entries = {tp: (at, ids[tp]) for tp, at in consumed.items()}
        chosen = {
            tp: at
            for tp, at in consumed.items()
            if all_of_them or self._committed.get(tp) != entries[tp]
        }
        try:
            await self._requests.commit(chosen, self._timeout, ids=ids)
        except KafkaError as error:
            _log_failure(error)
            return False
        self._committed = entries
        return True

    # -- replaced by assign() -----------------------------------------------------------------

    def keep_replaced(self) -> None:
        """Keep the consumed offsets of an assignment that an assign() without a wait replaces."""
        if self.is_enabled and not self._subscription.is_subscribed:
            self.note_consumed()
            offsets = self._consumed_offsets()
            ids = self._subscription.topic_ids(offsets)
            with self._subscription.lock:  # the caller's thread changes them, too
                self._replaced = offsets
                self._requests.former_ids = self._requests.former_ids | ids

    async def commit_replaced(self) -> None:
        """Commit the offsets that :meth:`keep_replaced` kept, if there are any."""
        offsets = self._replaced
        if not offsets:
            return
        try:
            await self._requests.commit(offsets, self._timeout)
        except KafkaError as error:
            _log_failure(error)
        with self._subscription.lock:
            self._replaced = {tp: at for tp, at in self._replaced.items() if offsets.get(tp) != at}
            if not self._replaced:
                self._requests.former_ids = {}

    def drop_replaced(self) -> None:
        """Drop the offsets that :meth:`keep_replaced` kept, because unsubscribe() commits them."""
        self._replaced = {}

    # -- on the caller's side -----------------------------------------------------------------

    async def before_revocation(
        self, partitions: frozenset[TopicPartition], call: CallEngine
    ) -> None:
        """Stop delivery of the partitions, then commit."""
        if self.has_unprocessed:
            self.note_consumed(partitions)
        self._subscription.mark_pending_revocation(partitions)
        await self.commit(call)

    async def commit(self, call: CallEngine) -> None:
        """Commit all consumed offsets, through ``call``."""
        if not self.is_enabled or self._is_suspended:
            return
        offsets, limit, queue = self._consumed_offsets(), self._timeout, self._callback_queue
        if self._deadline is not None:
            limit = min(limit, max(SHORTEST_TIMEOUT, self._deadline - queue.clock()))
        try:
            await call(lambda: self._requests.commit(offsets, limit), limit)
        except WakeupError:
            queue.request_wakeup()  # the next poll() raises it instead
        except KafkaError as error:
            _log_failure(error)

    def begin_leaving(self, deadline: float, *, commits: bool) -> None:
        """Limit the commits until :meth:`end_leaving`, or skip them if not ``commits``."""
        now = self._callback_queue.clock()
        self._is_suspended = not commits
        self._deadline = now + COMMIT_SHARE * max(0.0, deadline - now)

    def end_leaving(self) -> None:
        """End what :meth:`begin_leaving` began."""
        self._is_suspended, self._deadline = False, None


def _log_failure(error: KafkaError) -> None:
    logger.warning("automatic commit failed: %s", error_text(error))
