"""What the group asks of the consumer around it, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from kohort.coordinator_client._state import MemberState
from kohort.coordinator_client.assignors import (
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    Subscription,
)
from kohort.types import TopicPartition

T = TypeVar("T")


class GroupCallbacks(Protocol):
    """The consumer. The methods that can be awaited run in a task of their own each.

    At most one of the callbacks runs at a time. They end when the user's code has ended, whatever
    it raised: an exception of a listener is the host's to keep and to raise from poll().
    """

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit if that is automatic, then call the listener. Owned until this returns."""

    def stop_delivery(self, partitions: frozenset[TopicPartition]) -> None:
        """Deliver no more of these: they may be others' already. ``on_lost`` follows."""

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Call the listener; a commit would fail."""

    async def on_assigned(
        self, added: frozenset[TopicPartition], assignment: frozenset[TopicPartition]
    ) -> None:
        """Take the assignment and call the listener; once for each completed rebalance."""

    async def assign(
        self,
        assignor: PartitionAssignor,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
    ) -> Assignments:
        """Run the assignor, on the caller's thread if it is the user's code."""

    async def call_assignor(self, function: Callable[[], T]) -> T:
        """Run another piece of the user's assignor on the caller's thread, inside poll()."""

    async def wait_for_poll(self) -> None:
        """Return when the caller is inside poll(), or holds nothing that a poll() returned."""

    def last_poll(self) -> float:
        """When the caller was last inside poll(): now, if it is in there."""

    def membership_confirmed(self) -> None:
        """Partitions whose session was in doubt are this member's: deliver of them again."""

    def group_failed(self, error: Exception) -> None:
        """Raise this from poll(). The group tries again when poll() is called after that."""


class GroupStatistics(NamedTuple):
    """What the membership did so far, and what it is about; times are the core's clock's."""

    reason: str
    """Of the rebalance under way, else of the latest one."""
    join_obstruction: str | None
    """What keeps the coordinator from being found, or JoinGroup from being answered, at last."""
    last_failure: str | None
    """Why the membership failed; None again after the next rebalance."""
    denied_operation: str | None
    """Operation on the group that the failure says is not allowed."""
    is_fenced: bool
    """Another has this one's ``group_instance_id``: only a new subscription brings it back."""
    is_leader: bool
    rebalances: int
    rebalance_seconds: float
    """Of all of them together."""
    rebalance_longest: float
    heartbeats: int
    last_heartbeat: float | None
    """When the latest one that was answered had been sent."""


class MembershipSnapshot(NamedTuple):
    """The membership at one moment."""

    generation_id: int
    """-1: not a member."""
    member_id: str
    group_instance_id: str | None
    protocol: str | None
    """Name of the assignor that the group uses."""
    state: str
    """A :class:`MemberState` in lower-case words, such as ``"stable"``."""
    coordinator: int | None
    """Node id of the coordinator, if it is known."""
    owned: frozenset[TopicPartition]

    @property
    def is_subscribed(self) -> bool:
        return self.state != MemberState.UNSUBSCRIBED.value

    @property
    def is_stable(self) -> bool:
        return self.state == MemberState.STABLE.value
