"""The adapter between the coordinator client and the rest of the consumer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kohort.consumer.engine._callback_queue import (
    AssignorCallback,
    CallbackQueue,
    ListenerCallback,
    PendingCallback,
)
from kohort.consumer.engine._error_reports import ErrorReports
from kohort.listeners._dispatch import CallbackName
from kohort.subscription import SubscriptionState
from kohort.types import RebalanceContext, TopicPartition

if TYPE_CHECKING:
    from kohort.coordinator_client import ClusterTopics, PartitionAssignor, Subscription
    from kohort.coordinator_client.assignors import Assignments

T = TypeVar("T")


class GroupAdapter:
    """The group's callbacks, which change the subscription and run code on the caller's side.

    A revocation always waits for the caller, also without a listener. The caller has processed the
    records returned before when it is inside ``poll()``, or when its last ``poll()`` returned none.
    Only then may their positions be committed.
    """

    def __init__(
        self,
        callback_queue: CallbackQueue,
        subscription: SubscriptionState,
        errors: ErrorReports,
        on_assignment: Callable[[], None],
        refresh_topics: Callable[[], Awaitable[None]],
        rebalance_context: Callable[[bool], RebalanceContext],
        look_ahead: Callable[[frozenset[TopicPartition]], Awaitable[None]],
    ) -> None:
        self._callback_queue = callback_queue
        self._subscription = subscription
        self._errors = errors
        self._on_assignment = on_assignment
        self._refresh_topics = refresh_topics
        self._rebalance_context = rebalance_context
        self._look_ahead = look_ahead
        self.has_listener = False
        """True if a listener is set. A reference to it could keep the consumer alive."""
        self.rebalance_count = 0
        self.is_assigning = False
        """True until on_partitions_assigned() has returned. Positions are not looked up before."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit, call the listener and revoke the partitions when the caller polls next."""
        await self._call("on_partitions_revoked", partitions)

    def stop_delivery(self, partitions: frozenset[TopicPartition]) -> None:
        """Return no more records of partitions, because another member may own them."""
        self._subscription.mark_pending_revocation(partitions)

    def resume_delivery(self, partitions: frozenset[TopicPartition]) -> None:
        """Return records of partitions again, which this member keeps."""
        self._subscription.clear_pending_revocation(partitions)
        self._on_assignment()
        self._callback_queue.notify()

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Call the listener for lost partitions, which other members own, and remove them."""
        await self._call("on_partitions_lost", partitions)

    async def on_assigned(
        self,
        added: frozenset[TopicPartition],
        assignment: frozenset[TopicPartition],
        withheld: frozenset[TopicPartition],
    ) -> None:
        """Apply the assignment, call the listener, and only then look up positions."""
        self.is_assigning = True
        try:
            self._subscription.assign_from_group(assignment, withheld)
            if self.has_listener:
                await self._call("on_partitions_assigned", added)
        finally:
            self.is_assigning = False
        self.rebalance_count += 1
        self._on_assignment()
        self._callback_queue.notify()

    async def look_ahead(self, partitions: frozenset[TopicPartition]) -> None:
        """Look up the offsets of partitions that will be assigned."""
        await self._look_ahead(partitions)

    async def _call(self, name: CallbackName, partitions: frozenset[TopicPartition]) -> None:
        context = self._rebalance_context(name == "on_partitions_lost")
        queue = self._callback_queue
        await queue.call(ListenerCallback(queue.engine_loop, name, partitions, context))

    async def assign(
        self,
        assignor: PartitionAssignor,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
    ) -> Assignments:
        """Run the leader's assignor. A user's assignor runs on the caller's side."""
        from kohort.coordinator_client.assignors import finish_in_slices, is_built_in

        if is_built_in(assignor):
            return await finish_in_slices(assignor.steps(cluster, subscriptions))
        return await self.call_assignor(lambda: assignor.assign(cluster, subscriptions))

    async def call_assignor(self, function: Callable[[], T]) -> T:
        """Run a function of a user's assignor on the caller's side, and return its result."""
        result: T = await self._callback_queue.call(
            AssignorCallback(self._callback_queue.engine_loop, function)
        )
        return result

    async def refresh_topics(self) -> None:
        """Match a pattern with the topics that the cluster has now."""
        await self._refresh_topics()

    async def wait_for_poll(self) -> None:
        """Return when callbacks run: in poll(), or as ``rebalance_without_poll`` allows."""
        await self._callback_queue.call(PendingCallback(self._callback_queue.engine_loop))

    def last_poll(self) -> float:
        """Return the time of the latest poll(). Return now before the first one."""
        last = self._callback_queue.last_poll()
        return self._callback_queue.clock() if last is None else last

    def membership_confirmed(self) -> None:
        """Wake the caller, because buffered records may be returned again."""
        self._callback_queue.notify()

    def group_failed(self, error: Exception) -> None:
        """Let the caller's next poll() raise the error, because the group cannot continue."""
        self._errors.report_group_failure(error)
