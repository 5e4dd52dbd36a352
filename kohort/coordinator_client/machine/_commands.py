"""The commands that the membership returns to its driver.

A command with a token runs concurrently with others. The driver completes it with exactly one event
that carries the same token. After :class:`Cancel` the driver sends no event for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator_client.assignors import Assignment, Subscription
from kohort.types import NamedTuple, TopicPartition

IdPartition = tuple[bytes, int]
"""A partition by the id of its topic."""


class JoinGroup(NamedTuple):
    """A JoinGroup request: ResponseReceived with a JoinGroupResponse, or CommandFailed."""

    token: int
    member_id: str
    generation: int
    """The generation of ``owned``."""
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    reason: str


class SyncGroup(NamedTuple):
    """A SyncGroup request: ResponseReceived or CommandFailed. A follower sends no assignments."""

    token: int
    member_id: str
    generation: int
    protocol: str
    assignments: Mapping[str, Assignment]


class Heartbeat(NamedTuple):
    """A Heartbeat request: ResponseReceived or CommandFailed."""

    token: int
    member_id: str
    generation: int
    timeout: float
    """Seconds. A heartbeat without a response by then closes the connection."""


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request: ResponseReceived or CommandFailed."""

    token: int
    member_id: str
    epoch: int
    """The member epoch: 0 joins, -1 leaves, -2 leaves as a static member that returns."""
    timeout: float
    """Seconds. A heartbeat without a response by then closes the connection."""
    is_full: bool = False
    """True to send also what changes rarely, such as the rebalance timeout."""
    topics: frozenset[str] | None = None
    """The subscribed topics, or None if the coordinator has them."""
    regex: str | None = None
    """The pattern that the broker evaluates, "" to drop it, or None if the coordinator has it."""
    owned: frozenset[IdPartition] | None = None
    """The owned partitions, or None to leave them out."""


class ChooseProtocol(NamedTuple):
    """A look-up of the group protocol, then the join if it is the consumer one: ProtocolChosen.

    A failed look-up is a CommandFailed, as a failed join is.
    """

    token: int
    heartbeat: ConsumerHeartbeat


class ResolveTopics(NamedTuple):
    """A look-up of the names of topics: TopicsResolved or CommandFailed."""

    token: int
    ids: frozenset[bytes]


class LeaveGroup(NamedTuple):
    """A LeaveGroup request: ResponseReceived or CommandFailed."""

    token: int
    member_id: str
    reason: str


class AwaitPoll(NamedTuple):
    """A wait until the caller is inside poll(): PollEntered."""

    token: int
    refreshes_topics: bool = False
    """True to match a pattern with the topics of a new metadata request before the wait."""


class CallRevoked(NamedTuple):
    """A call of ``on_revoked`` for partitions that the member still owns: CallbackDone."""

    token: int
    partitions: frozenset[TopicPartition]


class CallLost(NamedTuple):
    """A call of ``on_lost`` for partitions that others may own already: CallbackDone."""

    token: int
    partitions: frozenset[TopicPartition]


class StopDelivery(NamedTuple):
    """A stop of the delivery of partitions. CallLost or CallRevoked follows.

    Others may own the partitions now, or wait until this member has revoked them.
    """

    partitions: frozenset[TopicPartition]


class ResumeDelivery(NamedTuple):
    """The end of StopDelivery for partitions that the member keeps after all."""

    partitions: frozenset[TopicPartition]


class CallAssigned(NamedTuple):
    """A call of ``on_assigned`` with the new partitions and the whole assignment: CallbackDone."""

    token: int
    added: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    protocol: str
    generation: int
    member_id: str
    user_data: bytes | None
    """Data from the leader's assignor for this member's assignor."""


class MakeAssignment(NamedTuple):
    """A run of the assignor for all members: AssignmentMade or CommandFailed."""

    token: int
    protocol: str
    members: Mapping[str, Subscription]


class DescribeAssignment(NamedTuple):
    """A look-up of the assignment of all members: AssignmentDescribed or CommandFailed."""

    token: int
    topics: frozenset[str]
    """The topics to look up. Members may have others, which this member does not watch."""


class Cancel(NamedTuple):
    """The cancellation of a command."""

    token: int


class DropCoordinator(NamedTuple):
    """A reset of the known coordinator, which is looked up again before the next request."""

    reason: str


class WatchTopics(NamedTuple):
    """The topics to watch for changes (TopicsChanged). An empty set stops that.

    The leader watches those of all members. A member that knows no leader watches its own.
    """

    topics: frozenset[str]


class ReportFailure(NamedTuple):
    """An error for the caller's poll() to raise."""

    error: Exception


Command = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | ConsumerHeartbeat
    | ChooseProtocol
    | ResolveTopics
    | LeaveGroup
    | AwaitPoll
    | CallRevoked
    | CallLost
    | StopDelivery
    | ResumeDelivery
    | CallAssigned
    | MakeAssignment
    | DescribeAssignment
    | Cancel
    | DropCoordinator
    | WatchTopics
    | ReportFailure
)
