"""State of a share group: epochs, members, targets, and the partitions with a state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kohort.broker.groups._base_group import EpochGroup
from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._member import PartitionSets
from kohort.types import NamedTuple

SESSION = "share-session"
"""Kind of the timer of a member's session."""


class ShareGroupState(Enum):
    """State of a share group; the values are Kafka's names.

    ``EMPTY``: no members.

    ``STABLE``: there are members. A member takes each new assignment at once.

    ``DEAD``: deleted.
    """

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member of a share group. The fields up to ``topic_names`` are those of record 10."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: PartitionSets = field(default_factory=dict)


class StateTopic(NamedTuple):
    """Partitions of a topic whose states are at the share coordinator."""

    name: str
    partitions: frozenset[int]


class ShareGroup(EpochGroup[ShareMember]):
    """The group's data as its records have it."""

    type_name = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, env: GroupEnvironment) -> None:
        super().__init__(group_id, env)
        self.members: dict[str, ShareMember] = {}
        self.initializing: dict[bytes, StateTopic] = {}
        self.initialized: dict[bytes, StateTopic] = {}
        """Topic id -> partitions that members may get"""
        self.deleting: dict[bytes, str] = {}

    @property
    def state(self) -> ShareGroupState:
        """The state, which follows from the members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def subscribed_topics(self) -> set[str]:
        """Names of the topics that any member subscribes to."""
        return {name for member in self.members.values() for name in member.topic_names}

    def assignable(self) -> dict[bytes, frozenset[int]]:
        """Return the initialized partitions of the subscribed topics that exist."""
        found = (self.env.topics.named(name) for name in sorted(self.subscribed_topics))
        return {
            topic.topic_id: self.initialized[topic.topic_id].partitions
            for topic in found
            if topic is not None and topic.topic_id in self.initialized
        }

    def topic_ids_of(self, member: ShareMember) -> frozenset[bytes]:
        """Return the ids of the existing topics that the member subscribes to."""
        found = (self.env.topics.named(name) for name in member.topic_names)
        return frozenset(topic.topic_id for topic in found if topic is not None)

    def start_timers(self, now: float) -> None:
        """Start the sessions of all members of a group that was loaded."""
        for member_id in self.members:
            self.restart_session(member_id, now)

    def restart_session(self, member_id: str, now: float) -> None:
        """Restart the session timeout of a member."""
        timeout_ms = self.env.group_settings(self.group_id).share_session_timeout_ms
        self.schedule(SESSION, now, timeout_ms, member_id)

    def stop_timers(self) -> None:
        """Cancel all timers of a group that is deleted or moves to another broker."""
        for member_id in self.members:
            self.cancel(SESSION, member_id)
