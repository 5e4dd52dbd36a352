"""The events that the membership handles. Times are seconds of the event loop's clock."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.protocol import Response
from kohort.types import NamedTuple, RebalanceCause


class Choice(NamedTuple):
    """A group protocol and the reason for it."""

    protocol: str
    reason: str
    """A clause, such as ``the group has members of the classic protocol``."""


class Subscribed(NamedTuple):
    """A new subscription, which replaces the earlier one. No topic of it needs to exist yet."""

    topics: frozenset[str]
    regex: str = ""
    """A pattern that the broker evaluates beside the topics, or "". Only for a consumer group."""


class LeaveRequested(NamedTuple):
    """A request of the caller to unsubscribe or to close."""

    reason: str
    deadline: float
    """The time after which LeaveGroup is not retried."""
    leave_group: bool
    """False to send no LeaveGroup, so that a static member can restart with its partitions."""
    cause: RebalanceCause = "closed"


class RejoinRequested(NamedTuple):
    """A request of the caller for a rebalance (KIP-568)."""

    reason: str


class TopicsChanged(NamedTuple):
    """A change of the group's topics in the cluster's metadata.

    ``covered`` is the set of topics that the metadata contains, or None for all.
    """

    topics: ClusterTopics
    covered: frozenset[str] | None = None


class CoordinatorFound(NamedTuple):
    """A successful lookup of the coordinator. The requests that waited for it are sent now."""


class CommitRejected(NamedTuple):
    """A commit with this generation and member id that the coordinator rejected."""

    code: int
    generation: int
    member_id: str


class EpochRejected(NamedTuple):
    """A commit or a read of offsets whose member or epoch the coordinator rejected (KIP-848).

    A heartbeat is due at once. It brings the new epoch, or shows that the member was removed.
    """

    epoch: int
    """The member epoch of the request."""


class TopicIdsSeen(NamedTuple):
    """The ids of owned topics in new metadata."""

    ids: Mapping[str, bytes]
    """Ids by topic. Zeros mean that the id is unknown."""


class NoneLeft(NamedTuple):
    """The coordinator's word that other members get all partitions of the subscribed topics."""

    member_id: str
    """The member for which none is left."""


class TopicsResolved(NamedTuple):
    """The names of topics by id. A topic without an entry is unknown so far."""

    token: int
    names: Mapping[bytes, str]


class PollEntered(NamedTuple):
    """A completed wait: the caller is inside poll(), or has no records of an earlier poll()."""

    token: int
    last_poll: float | None = None
    """Time when the caller was last inside poll(), or None for now."""


class CallbackDone(NamedTuple):
    """The end of a listener's callback, whether it raised or not."""

    token: int


class ResponseReceived(NamedTuple):
    """A response of the coordinator."""

    token: int
    response: Response
    members: Mapping[str, Subscription] | None = None
    """The decoded subscriptions from the leader's JoinGroup response, if it is one."""


class CommandFailed(NamedTuple):
    """A command that ended with an error instead of a response."""

    token: int
    error: Exception


class AssignmentMade(NamedTuple):
    """The result of the assignor."""

    token: int
    assignments: Mapping[str, Assignment]
    """The assignments by member id, with an entry for every member of the generation."""
    topics: ClusterTopics
    """The topics and partitions that the assignor assigned."""


class AssignmentDescribed(NamedTuple):
    """The result of DescribeAssignment."""

    token: int
    topics: ClusterTopics | None
    """The topics and partitions that the members have.

    None if the group is no stable classic group, or if the coordinator refused the look-up.
    """


class ProtocolChosen(NamedTuple):
    """The result of ChooseProtocol."""

    token: int
    choice: Choice | None
    """The protocol, or None if the coordinator refused the join for now."""
    answer: ResponseReceived | None = None
    """The response to the join by the consumer protocol."""


class Tick(NamedTuple):
    """A check of the deadlines, sent when one is reached and after each change."""

    last_poll: float
    """Time when the caller was last inside poll()."""


Event = (
    Subscribed
    | LeaveRequested
    | RejoinRequested
    | TopicsChanged
    | CoordinatorFound
    | CommitRejected
    | EpochRejected
    | TopicIdsSeen
    | NoneLeft
    | TopicsResolved
    | PollEntered
    | CallbackDone
    | ResponseReceived
    | CommandFailed
    | AssignmentMade
    | AssignmentDescribed
    | ProtocolChosen
    | Tick
)
