"""What the group asks of the consumer: the engine's side of GroupHost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kohort.consumer._callback_queue import (
    AssignorCallback,
    CallbackQueue,
    ListenerCallback,
    PollNotice,
)
from kohort.subscription import SubscriptionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.coordinator_client import ClusterTopics, PartitionAssignor, Subscription
    from kohort.coordinator_client.assignors import Assignments

T = TypeVar("T")

Partitions = frozenset[TopicPartition]


class GroupAdapter:
    """Carries the group's decisions to the subscription, and its questions to the caller.

    Revocation always waits for the caller, listener or not. The records returned before are
    processed when the caller is inside ``poll()``, or when its last ``poll()`` returned none. Only
    then may their positions be committed.
    """

    def __init__(
        self,
        callback_queue: CallbackQueue,
        subscription: SubscriptionState,
        *,
        has_listener: Callable[[], bool],
        has_unsubscribed: Callable[[], bool],
        on_assignment: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._callback_queue = callback_queue
        self._subscription = subscription
        self._has_listener = has_listener
        self._has_unsubscribed = has_unsubscribed
        self._on_assignment = on_assignment
        self._on_failure = on_failure
        self.rebalance_count = 0
        self.is_assigning = False
        """An assignment was taken and its callback has not returned: no positions, no fetches."""

    async def on_revoked(self, partitions: Partitions) -> None:
        """Commit, call the listener, and give the partitions up, when the caller polls next."""
        if self._has_unsubscribed():
            return  # the caller has done all that when it unsubscribed
        callback = ListenerCallback(
            self._callback_queue.engine_loop, "on_partitions_revoked", partitions
        )
        await self._callback_queue.call(callback)

    def stop_delivery(self, partitions: Partitions) -> None:
        """The partitions may be somebody else's: deliver no more."""
        if self._has_unsubscribed():
            return  # by now they may be assigned by hand
        self._subscription.mark_pending_revocation(partitions)

    async def on_lost(self, partitions: Partitions) -> None:
        """Tell the listener what is somebody else's, and give it up."""
        if self._has_unsubscribed():
            return
        callback = ListenerCallback(
            self._callback_queue.engine_loop, "on_partitions_lost", partitions
        )
        await self._callback_queue.call(callback)

    async def on_assigned(self, added: Partitions, assignment: Partitions) -> None:
        """Take the assignment, call the listener, and only then look for positions."""
        if self._has_unsubscribed():
            return
        self.is_assigning = True
        try:
            self._subscription.assign_from_group(assignment)
            if self._has_listener():
                callback = ListenerCallback(
                    self._callback_queue.engine_loop, "on_partitions_assigned", added
                )
                await self._callback_queue.call(callback)
        finally:
            self.is_assigning = False
        self.rebalance_count += 1
        self._on_assignment()
        self._callback_queue.notify()

    async def assign(
        self,
        assignor: PartitionAssignor,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
    ) -> Assignments:
        """Run the leader's assignor; one that is not kohort's own runs on the caller's side."""
        from kohort.coordinator_client.assignors import finish_in_slices, is_built_in

        if is_built_in(assignor):
            return await finish_in_slices(assignor.steps(cluster, subscriptions))
        return await self.call_assignor(lambda: assignor.assign(cluster, subscriptions))

    async def call_assignor(self, function: Callable[[], T]) -> T:
        """Run a piece of a user's assignor on the caller's side."""
        result: T = await self._callback_queue.call(
            AssignorCallback(self._callback_queue.engine_loop, function)
        )
        return result

    async def wait_for_poll(self) -> None:
        """Return when work is performed: in poll(), or as rebalance_without_poll allows."""
        await self._callback_queue.call(PollNotice(self._callback_queue.engine_loop))

    def last_poll(self) -> float:
        """When the caller was last inside poll(); now, if it never was: it has not begun yet."""
        last = self._callback_queue.last_poll()
        return self._callback_queue.clock() if last is None else last

    def membership_confirmed(self) -> None:
        """The caller may be waiting for what was held back."""
        self._callback_queue.notify()

    def group_failed(self, error: Exception) -> None:
        """Nothing goes on without the caller: raise this from its next call."""
        self._on_failure(error)
