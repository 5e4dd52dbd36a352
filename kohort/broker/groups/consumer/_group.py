"""State of a consumer group: epochs, members, target assignments and resolved patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TypeAlias

from kohort.broker.groups._base_group import EpochGroup
from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.consumer._member import AssignmentState, ConsumerMember, ResolvedRegex
from kohort.broker.groups.consumer._member_table import MemberTable
from kohort.broker.groups.consumer._re2j import Regex

TIMERS = ("session", "rebalance", "member-join", "member-sync")
"""Kinds of timers that a member has."""


class ConsumerGroupState(Enum):
    """State of a consumer group; the values are Kafka's names.

    ``EMPTY``: no members.

    ``ASSIGNING``: the next heartbeat computes a new target assignment, after the assignment
    interval.

    ``RECONCILING``: members do not have their target assignments yet.

    ``STABLE``: all members have their target assignments.

    ``DEAD``: deleted.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(EpochGroup[ConsumerMember]):
    """The group's data as its records have it, and what follows from them."""

    type_name = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, env: GroupEnvironment) -> None:
        super().__init__(group_id, env)
        self.members: MemberTable = MemberTable()
        self.regexes: dict[str, ResolvedRegex] = {}
        """Pattern -> its topics"""
        self.compiled_regexes: dict[str, Regex | None] = {}
        """Pattern -> its compiled form while members subscribe to it, None if it is refused"""
        self.topics_version = -1
        """Version of the topics that ``metadata_hash`` was compared with."""
        self.can_describe: Callable[[str], bool] | None = None
        """Rights of the client whose heartbeat started the resolution of patterns that is due."""

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from the epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(m.is_reconciled_to(self.assignment_epoch) for m in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    # Members

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with this instance id, None if there is none."""
        member_id = None if instance_id is None else self.members.holder(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def classic_members(self) -> list[ConsumerMember]:
        """The members that use the classic protocol."""
        return [member for member in self.members.values() if member.classic is not None]

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """True if another member owns a partition of the member's target assignment."""
        target = self.targets.get(member.member_id, {})
        return any(
            self.members.is_held_by_other(topic_id, each, member.member_id)
            for topic_id in target
            for each in target[topic_id]
        )

    def stop_timers(self) -> None:
        """Cancel all timers of a group that is deleted or moves to another broker."""
        self.cancel("regex")
        for member_id in self.members:
            self.stop_member_timers(member_id)

    def stop_member_timers(self, member_id: str) -> None:
        """Cancel the timers of a member."""
        for kind in TIMERS:
            self.cancel(kind, member_id)

    def start_timers(self, now: float) -> None:
        """Start the timers of all members of a group that was loaded or converted."""
        for member in self.members.values():
            self.restart_session(member, now)
            if member.classic is None and member.state is AssignmentState.UNREVOKED_PARTITIONS:
                self.schedule("rebalance", now, member.rebalance_timeout_ms, member.member_id)

    def restart_session(self, member: ConsumerMember, now: float) -> None:
        """Restart the member's session timeout: the group's, or that of a classic member."""
        timeout_ms = self.env.group_settings(self.group_id).consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.schedule("session", now, timeout_ms, member.member_id)

    # Subscriptions

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that the member subscribes to, also by its pattern.

        A pattern that is not resolved yet matches nothing.
        """
        resolved = self.regexes.get(member.topic_regex)
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def topic_ids_of(self, member: ConsumerMember) -> frozenset[bytes]:
        """Return the ids of the existing topics that the member subscribes to."""
        found = (self.env.topics.named(name) for name in self.topics_of(member))
        return frozenset(topic.topic_id for topic in found if topic is not None)

    @property
    def subscribed_topics(self) -> set[str]:
        """Names of the topics that any member subscribes to."""
        return {name for member in self.members.values() for name in self.topics_of(member)}

    def is_subscribed(self, topic: str) -> bool:
        """True if a member subscribes to the topic."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    @property
    def assignor_name(self) -> str:
        """The assignor that most members name, the first of the broker's in case of a tie."""
        return self._most_named(self._votes())

    def changes_assignor(self, before: ConsumerMember, member: ConsumerMember) -> bool:
        """True if another assignor has most votes once ``member`` replaces ``before``.

        ``before`` need not be in the group.
        """
        if before.server_assignor == member.server_assignor:
            return False
        votes = self._votes()
        present = self._most_named(votes)
        votes[before.server_assignor] -= 1
        votes[member.server_assignor] += 1
        return self._most_named(votes) != present

    def _votes(self) -> Counter[str | None]:
        return Counter(member.server_assignor for member in self.members.values())

    def _most_named(self, votes: Counter[str | None]) -> str:
        return max(self.env.group_settings(self.group_id).consumer_assignors, key=votes.__getitem__)

    def preferred_protocols(self) -> Iterator[str]:
        """Yield the names of the protocols that all classic members support."""
        members = self.classic_members
        supported = Counter(
            name
            for member in members
            if member.classic is not None
            for name in dict.fromkeys(protocol.name for protocol in member.classic.protocols)
        )
        return (name for name, count in supported.items() if count == len(members))


AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup
"""A group of either protocol. A coordinator has them in one table."""
