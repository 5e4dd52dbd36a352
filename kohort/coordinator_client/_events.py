"""What happens to a membership machine. Times are seconds of the core's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.protocol import Response


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The caller wants these topics, in place of any others; none may exist or match yet."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The caller unsubscribes or closes."""

    reason: str
    deadline: float
    """LeaveGroup is given up then."""
    leave_group: bool
    """False: go silently, and let the coordinator keep the place (a static member's restart)."""


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The caller wants a rebalance (KIP-568)."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics of the group as the cluster's metadata has them now."""

    topics: ClusterTopics


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The coordinator was looked up, and requests that waited for that go out now."""


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The coordinator refused a commit of this generation and member id."""

    code: int
    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class PollEntered:
    """The caller is inside poll(), or holds nothing that a poll() returned."""

    token: int
    last_poll: float | None = None
    """Time when the caller was last inside poll(); None: now."""


@dataclass(frozen=True, slots=True)
class CallbackDone:
    """A callback of the listener has ended, whether it raised or not."""

    token: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The coordinator answered."""

    token: int
    response: Response
    members: Mapping[str, Subscription] | None = None
    """To the leader's JoinGroup: the subscriptions in the answer, if they have been read."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A command did not come to an answer."""

    token: int
    error: Exception


@dataclass(frozen=True, slots=True)
class AssignmentMade:
    """The assignor has dealt."""

    token: int
    assignments: Mapping[str, Assignment]
    """One for every member of the generation."""
    topics: ClusterTopics
    """What was dealt."""


@dataclass(frozen=True, slots=True)
class Tick:
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
    | Answered
    | Failed
    | AssignmentMade
    | Tick
)
