"""State that groups of all protocols have: committed offsets and timers."""

from __future__ import annotations

from kohort.broker.groups._environment import GroupEnvironment, TimerKey
from kohort.broker.groups._member import CommittedOffset


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
