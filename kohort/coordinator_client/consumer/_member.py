"""The settings and the data of a member of a consumer group, without I/O and without a clock."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.coordinator_client.machine._commands import IdPartition
from kohort.coordinator_client.machine._member import (
    NO_GENERATION,
    CommonMemberData,
    CommonSettings,
)
from kohort.coordinator_client.machine._state import MemberState
from kohort.transport import SYSTEM_RNG
from kohort.types import TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""The epoch of a static member that leaves for a short time. Its partitions wait for it."""


class ConsumerMemberSettings(CommonSettings):
    """The configuration of a membership in a consumer group. Times are in seconds.

    ``session_timeout`` is the one that the broker is expected to use, because no response has it.
    """

    def __init__(self, *, assignor: str | None = None, **common: Any) -> None:
        super().__init__(**common)
        self.assignor = assignor
        """Name of the broker's assignor that the member asks for; None lets it choose."""


class ConsumerMemberData(CommonMemberData):
    """The data of one member of a consumer group, shared by the parts of its membership."""

    settings: ConsumerMemberSettings

    def __init__(
        self,
        settings: ConsumerMemberSettings,
        rng: random.Random,
        id_source: random.Random | None = None,
    ) -> None:
        super().__init__(settings, rng)
        self._id_source = id_source
        self.regex = ""
        """A pattern of topics that the broker evaluates, or ""."""
        self.is_known = False
        """True if the coordinator may have this member id as a member."""
        self.may_hold_instance = False
        """True if an earlier heartbeat may have given the instance id to this member id."""
        self._ids: dict[TopicPartition, bytes] = {}

    def ensure_member_id(self) -> None:
        """Create the member id for a join, unless there is one.

        Members with one id are one member, or they fence each other. So neither a seed may decide
        it, nor a constructor. The children of a fork share what it made.
        """
        if not self.member_id:
            self.member_id = new_member_id(self._id_source or SYSTEM_RNG)
            self.may_hold_instance = False

    def end(self, *, keep_member_id: bool = True) -> None:
        """End the membership in the current epoch. The partitions stay until a callback."""
        super().end(keep_member_id=keep_member_id)
        if not keep_member_id:
            self.is_known = False

    @property
    def in_group(self) -> bool:
        """True if the coordinator has accepted this member, and no response says otherwise."""
        return self.generation != NO_GENERATION

    @property
    def wanted(self) -> frozenset[str]:
        """The topics to subscribe to at the coordinator.

        A member that leaves stays subscribed until its last heartbeat. Otherwise others could own
        its partitions before its last commit.
        """
        if self.topics is None or self.state is MemberState.LEAVING:
            return self.joined_topics
        return self.topics

    def is_subscribed(self, topic: str, regex: str) -> bool:
        """Return False if only a subscription that was replaced led to a topic's assignment.

        ``regex`` is the pattern that the coordinator had then.
        """
        if self.topics is None or topic in self.topics:
            return True
        return bool(self.regex) and self.regex == regex

    def id_partition(self, tp: TopicPartition) -> IdPartition:
        """Return an owned partition by the id of its topic."""
        return self._ids[tp], tp.partition

    def give_up(self) -> None:
        """Give up the partitions of the callback that has ended, if there are any."""
        self.ended.partitions.update(self.owned - self.owned_after)
        self.owned = self.owned_after

    def owned_by_id(self) -> frozenset[IdPartition]:
        """Return the owned partitions by the ids of their topics."""
        return frozenset(map(self.id_partition, self.owned))

    def note_ids(self, added: Mapping[TopicPartition, bytes]) -> None:
        """Note the topic ids of partitions that the member owns from now on."""
        self._ids = {tp: topic_id for tp, topic_id in self._ids.items() if tp in self.owned}
        self._ids.update(added)


def new_member_id(bits: random.Random) -> str:
    """Return a random UUID, as Java's. The module uuid takes 2 ms to import."""
    unique = bytearray(bits.getrandbits(128).to_bytes(16))
    unique[6] = unique[6] & 0x0F | 0x40
    unique[8] = unique[8] & 0x3F | 0x80
    return urlsafe_b64encode(unique).rstrip(b"=").decode()


def by_topic(partitions: Iterable[IdPartition]) -> dict[bytes, list[int]]:
    """Return sorted partition numbers by topic id, in the order of the ids."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found
