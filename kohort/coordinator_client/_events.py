"""What happens to a membership machine. Times are seconds of the core's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.protocol import Response


class Subscribed(NamedTuple):
    """The caller wants these topics, in place of any others; none may exist or match yet."""

    topics: frozenset[str]


class LeaveRequested(NamedTuple):
    """The caller unsubscribes or closes."""

    reason: str
    deadline: float
    """LeaveGroup is given up then."""
    leave_group: bool
    """False: go silently, and let the coordinator keep the place (a static member's restart)."""


class RejoinRequested(NamedTuple):
    """The caller wants a rebalance (KIP-568)."""

    reason: str


class TopicsChanged(NamedTuple):
    """The topics of the group as the cluster's metadata has them now.

    ``covered``: the topics that the metadata says something about, None for all.
    """

    topics: ClusterTopics
    covered: frozenset[str] | None = None


class CoordinatorFound(NamedTuple):
    """The coordinator was looked up, and requests that waited for that go out now."""


class CommitRefused(NamedTuple):
    """The coordinator refused a commit of this generation and member id."""

    code: int
    generation: int
    member_id: str


class PollEntered(NamedTuple):
    """The caller is inside poll(), or holds nothing that a poll() returned."""

    token: int
    last_poll: float | None = None
    """Time when the caller was last inside poll(); None: now."""


class CallbackDone(NamedTuple):
    """A callback of the listener has ended, whether it raised or not."""

    token: int


class ResponseReceived(NamedTuple):
    """The coordinator answered."""

    token: int
    response: Response
    members: Mapping[str, Subscription] | None = None
    """The subscriptions in the response to the leader's JoinGroup, if they have been read."""


class CommandFailed(NamedTuple):
    """A command did not come to an answer."""

    token: int
    error: Exception


class AssignmentMade(NamedTuple):
    """The assignor has dealt."""

    token: int
    assignments: Mapping[str, Assignment]
    """One for every member of the generation."""
    topics: ClusterTopics
    """What was dealt."""


class Tick(NamedTuple):
    """Time has passed: the deadline is reached, or the driver looks in."""

    last_poll: float
    """When the caller was last seen inside poll()."""


Event = (
    Subscribed
    | LeaveRequested
    | RejoinRequested
    | TopicsChanged
    | CoordinatorFound
    | CommitRefused
    | PollEntered
    | CallbackDone
    | ResponseReceived
    | CommandFailed
    | AssignmentMade
    | Tick
)
