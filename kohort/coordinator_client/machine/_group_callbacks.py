"""The callbacks from the group to its consumer, and the snapshots that the group returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from kohort.coordinator_client.assignors import (
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    Subscription,
)
from kohort.coordinator_client.machine._state import MemberState
from kohort.types import NamedTuple, RebalanceCause, TopicPartition

T = TypeVar("T")


class GroupCallbacks(Protocol):
    """The consumer as the group calls it. Each async method runs in a separate task.

    At most one callback runs at a time. A callback returns when the user's code has ended, even if
    that raised. The consumer keeps a listener's exception and raises it from poll().
    """

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit if auto-commit is enabled, then call the listener.

        The member owns the partitions until this returns.
        """

    def stop_delivery(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop the delivery of these partitions. A call of ``on_lost`` or ``on_revoked`` follows.

        Others may own them already, or wait for their revocation.
        """

    def resume_delivery(self, partitions: frozenset[TopicPartition]) -> None:
        """End :meth:`stop_delivery` for partitions that the member keeps after all."""

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Call the listener without a commit, because the coordinator would reject it."""

    async def on_assigned(
        self,
        added: frozenset[TopicPartition],
        assignment: frozenset[TopicPartition],
        withheld: frozenset[TopicPartition],
    ) -> None:
        """Set the assignment and call the listener, once for each completed rebalance.

        The delivery of ``withheld`` is stopped, as by :meth:`stop_delivery`.
        """

    async def look_ahead(self, partitions: frozenset[TopicPartition]) -> None:
        """Look up the offsets of partitions that ``on_assigned`` will most likely add.

        The group is new, so there are most likely no committed offsets. This may run beside other
        callbacks. It never raises.
        """

    async def assign(
        self,
        assignor: PartitionAssignor,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
    ) -> Assignments:
        """Run the assignor, on the caller's thread if it is not built in."""

    async def call_assignor(self, function: Callable[[], T]) -> T:
        """Run another method of the user's assignor on the caller's thread, inside poll()."""

    async def refresh_topics(self) -> None:
        """Look for topics that match a pattern. Call ``subscribe()`` if they have changed.

        Return after a second at the latest and raise nothing, because a rebalance waits for this.
        """

    async def wait_for_poll(self) -> None:
        """Return when the caller is inside poll(), or has no records of an earlier poll()."""

    def last_poll(self) -> float:
        """Return the time when the caller was last inside poll(), which may be now."""

    def membership_confirmed(self) -> None:
        """Resume the delivery: a heartbeat succeeded after the session might have expired."""

    def group_failed(self, error: Exception) -> None:
        """Raise the error from poll(). The group rejoins at the next poll() after that."""


class GroupStatistics(NamedTuple):
    """The membership's counts and current reasons. Times are of the event loop's clock."""

    reason: str
    """Reason of the rebalance in progress, else of the latest one."""
    cause: RebalanceCause
    asked_at: float
    """Time since which the group waits for the callbacks of that rebalance."""
    join_obstruction: str | None
    """The latest reason why the coordinator was not found or JoinGroup did not succeed."""
    last_failure: str | None
    """The error that stopped the membership; None again after the next rebalance."""
    denied_operation: str | None
    """Operation on the group that the latest error reports as denied."""
    is_fenced: bool
    """True if another consumer uses this ``group_instance_id``. Only a new subscription rejoins."""
    is_leader: bool
    rebalances: int
    rebalance_seconds: float
    """Total duration of all rebalances."""
    rebalance_longest: float
    heartbeats: int
    last_heartbeat: float | None
    """Time when the latest heartbeat with a response was sent."""


class MembershipSnapshot(NamedTuple):
    """A snapshot of the membership."""

    generation_id: int
    """The generation, or -1 without a membership."""
    member_id: str
    group_instance_id: str | None
    protocol: str | None
    """Name of the group's assignor."""
    state: str
    """The :class:`MemberState` in lower-case words, such as ``"stable"``."""
    coordinator: int | None
    """Node id of the coordinator, or None if it is unknown."""
    owned: frozenset[TopicPartition]

    @property
    def is_subscribed(self) -> bool:
        return self.state != MemberState.UNSUBSCRIBED.value

    @property
    def is_stable(self) -> bool:
        return self.state == MemberState.STABLE.value
