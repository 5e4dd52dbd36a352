"""What a membership machine asks of its driver.

A command with a token takes its time and is answered by one event with the same token; it goes on
beside others until then. :class:`Cancel` takes it back: no event is wanted any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.coordinator_client.assignors import Assignment, Subscription
from kohort.types import TopicPartition


class JoinGroup(NamedTuple):
    """Join, or join again: Answered with a JoinGroupResponse, or Failed."""

    token: int
    member_id: str
    generation: int
    """The one that ``owned`` is from."""
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    reason: str


class SyncGroup(NamedTuple):
    """Hand in the assignments (none from a follower) and get one's own: Answered or Failed."""

    token: int
    member_id: str
    generation: int
    protocol: str
    assignments: Mapping[str, Assignment]


class Heartbeat(NamedTuple):
    """Answered or Failed."""

    token: int
    member_id: str
    generation: int
    timeout: float
    """Seconds. A heartbeat not answered by then costs the connection."""


class LeaveGroup(NamedTuple):
    """Answered or Failed."""

    token: int
    member_id: str
    reason: str


class AwaitPoll(NamedTuple):
    """Wait until the caller is inside poll(): PollEntered."""

    token: int


class CallRevoked(NamedTuple):
    """Tell the host what the member is about to give up: CallbackDone."""

    token: int
    partitions: frozenset[TopicPartition]


class CallLost(NamedTuple):
    """Tell the host what belongs to others already: CallbackDone."""

    token: int
    partitions: frozenset[TopicPartition]


class StopDelivery(NamedTuple):
    """Others may own these from now on: deliver no more of them. CallLost follows."""

    partitions: frozenset[TopicPartition]


class CallAssigned(NamedTuple):
    """Tell the host what is new, and the whole of it: CallbackDone."""

    token: int
    added: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    protocol: str
    generation: int
    member_id: str
    user_data: bytes | None
    """What the leader's assignor tells this member's."""


class MakeAssignment(NamedTuple):
    """Run the assignor over the members: AssignmentMade or Failed."""

    token: int
    protocol: str
    members: Mapping[str, Subscription]


class Cancel(NamedTuple):
    """Take back a command."""

    token: int


class DropCoordinator(NamedTuple):
    """What is known of the coordinator is wrong: look it up anew before the next request."""

    reason: str


class WatchTopics(NamedTuple):
    """As the leader, watch these topics for changes (TopicsChanged); none: stop watching."""

    topics: frozenset[str]


class ReportFailure(NamedTuple):
    """Hand an error to the caller's poll()."""

    error: Exception


Command = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | AwaitPoll
    | CallRevoked
    | CallLost
    | StopDelivery
    | CallAssigned
    | MakeAssignment
    | Cancel
    | DropCoordinator
    | WatchTopics
    | ReportFailure
)
