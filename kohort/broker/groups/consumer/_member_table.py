"""The members of a consumer group, with the indexes that heartbeats need.

Without them each heartbeat would look at all members of the group and all of their partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from kohort.broker.groups.consumer._member import ConsumerMember

_Key = TypeVar("_Key")


class MemberTable(Mapping[str, ConsumerMember]):
    """Members by id, in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[str, ConsumerMember] = {}
        self._instances: dict[str, str] = {}
        """Instance id -> id of the member with it"""
        self._regexes: dict[str, int] = {}
        """Pattern -> number of members that subscribe to it"""
        self._holders: dict[tuple[bytes, int], list[str]] = {}
        """(topic id, partition) -> ids of the members that hold it"""

    def __getitem__(self, member_id: str) -> ConsumerMember:
        return self._members[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace the one with its id."""
        before = self._members.get(member.member_id)
        self._members[member.member_id] = member
        if before is not None and before.instance_id is not None:
            self._instances.pop(before.instance_id, None)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        if before is None:
            self._add_regex(member)
            self._add_partitions(member)
            return
        if before.topic_regex != member.topic_regex:
            self._remove_regex(before)
            self._add_regex(member)
        if (
            before.assigned is not member.assigned
            or before.pending_revocation is not member.pending_revocation
        ):
            self._remove_partitions(before)
            self._add_partitions(member)

    def remove(self, member_id: str) -> None:
        """Remove a member if it is there."""
        member = self._members.pop(member_id, None)
        if member is not None:
            if member.instance_id is not None:
                self._instances.pop(member.instance_id, None)
            self._remove_regex(member)
            self._remove_partitions(member)

    def holder(self, instance_id: str) -> str | None:
        """Return the id of the member with an instance id, None if it is free."""
        return self._instances.get(instance_id)

    @property
    def regexes(self) -> Collection[str]:
        """Patterns that members subscribe to, each once."""
        return self._regexes.keys()

    def is_held_by_other(self, topic_id: bytes, partition: int, member_id: str) -> bool:
        """True if another member owns the partition or has to give it up."""
        holders = self._holders.get((topic_id, partition), ())
        return any(holder != member_id for holder in holders)

    def _add_regex(self, member: ConsumerMember) -> None:
        if member.topic_regex:
            self._regexes[member.topic_regex] = self._regexes.get(member.topic_regex, 0) + 1

    def _remove_regex(self, member: ConsumerMember) -> None:
        if member.topic_regex:
            self._regexes[member.topic_regex] -= 1
            if not self._regexes[member.topic_regex]:
                del self._regexes[member.topic_regex]

    def _add_partitions(self, member: ConsumerMember) -> None:
        for held in member.held:
            self._holders.setdefault(held, []).append(member.member_id)

    def _remove_partitions(self, member: ConsumerMember) -> None:
        for held in member.held:
            _remove(self._holders, held, member.member_id)


def _remove(table: dict[_Key, list[str]], key: _Key, member_id: str) -> None:
    members = table[key]
    members.remove(member_id)
    if not members:
        del table[key]
