"""State that groups have in common: offsets and timers, and the epochs of two types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from kohort.broker.groups._environment import GroupEnvironment, TimerKey
from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups._member import CommittedOffset, PartitionSets
from kohort.errors import ErrorCode

M = TypeVar("M")


class BaseGroup:
    """A group without its members."""

    def __init__(self, group_id: str, env: GroupEnvironment) -> None:
        self.group_id = group_id
        self.env = env
        self.offsets: dict[tuple[str, int], CommittedOffset] = {}
        """(topic, partition) -> committed offset"""

    def schedule(self, kind: str, now: float, delay_ms: int, member_id: str = "") -> None:
        """Start a timer of the group or of a member; a running one starts again."""
        key = TimerKey(self.group_id, kind, member_id)
        self.env.timers.schedule(key, now + delay_ms / 1000)

    def cancel(self, kind: str, member_id: str = "") -> None:
        """Stop a timer if it runs."""
        self.env.timers.cancel(TimerKey(self.group_id, kind, member_id))

    def is_scheduled(self, kind: str, member_id: str = "") -> bool:
        """True if the timer runs."""
        return self.env.timers.deadline(TimerKey(self.group_id, kind, member_id)) is not None


class EpochGroup(BaseGroup, Generic[M]):
    """A group whose members follow a target assignment by epochs: a consumer or share group."""

    members: Mapping[str, M]

    def __init__(self, group_id: str, env: GroupEnvironment) -> None:
        super().__init__(group_id, env)
        self.epoch = 1
        """Epoch of the group, which changes of subscriptions, members and topics increment."""
        self.metadata_hash = 0
        self.assignment_epoch = 1
        """Group epoch of the target assignment."""
        self.assigned_at_ms = 0
        """Time when the target assignment was computed, 0 if no interval has to pass."""
        self.targets: dict[str, PartitionSets] = {}
        """Member id -> target assignment"""

    def known_member(self, member_id: str) -> M:
        """Return the member, or raise UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise GroupRequestError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member
