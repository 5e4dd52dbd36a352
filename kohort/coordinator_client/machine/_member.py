"""The settings and the data of a member under any protocol, without I/O and without a clock."""

from __future__ import annotations

import random
from collections import Counter

from kohort.coordinator_client.machine._state import MemberState, StateCell
from kohort.transport import Backoff
from kohort.types import RebalanceCause, TopicPartition

NO_GENERATION = -1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
MANY_CHANGES = 20
"""Maximum number of topics that the reason of a rebalance names."""


class CommonSettings:
    """The configuration of a membership under any protocol. Times are in seconds."""

    def __init__(
        self,
        *,
        group_id: str,
        static: bool = False,
        session_timeout: float,
        max_poll_interval: float,
        backoff: Backoff,
    ) -> None:
        self.group_id = group_id
        self.static = static
        """True with a group_instance_id. A static member keeps its partitions for a session."""
        self.session_timeout = session_timeout
        self.max_poll_interval = max_poll_interval
        self.backoff = backoff


class OwnershipLosses:
    """Counts of ended ownership. After each end, others may have owned the partitions."""

    def __init__(self) -> None:
        self.memberships = 0
        self.partitions: Counter[TopicPartition] = Counter()
        """Number of times that each partition was given up within a membership."""


class CommonMemberData:
    """The data of one member under any protocol, shared by the parts of its membership."""

    lost = NO_PARTITIONS
    """Owned partitions that others may own already, until their callback.

    Only a classic member has some within its generation.
    """

    def __init__(self, settings: CommonSettings, rng: random.Random) -> None:
        self.settings = settings
        self.cell = StateCell(settings.group_id)
        self.topics: frozenset[str] | None = None
        """Subscribed topics, or None when unsubscribed."""
        self.joined_topics: frozenset[str] = frozenset()
        """Subscribed topics that the coordinator got last."""
        self.member_id = ""
        self.generation = NO_GENERATION
        """The generation, or the member epoch of a consumer group."""
        self.protocol: str | None = None
        """Name of the generation's assignor."""
        self.cause: RebalanceCause = "subscribed"
        """Cause of the rebalance in progress, or of the latest one."""
        self.owned = NO_PARTITIONS
        self.owned_after = NO_PARTITIONS
        """Owned partitions after the callback in progress."""
        self.ended = OwnershipLosses()
        self._rng = rng

    @property
    def state(self) -> MemberState:
        return self.cell.state

    @property
    def log_fields(self) -> dict[str, str | int]:
        """The fields of log records about this member that their messages leave out."""
        if not self.in_generation:
            return {}
        return {"member": self.member_id, "generation": self.generation}

    @property
    def in_generation(self) -> bool:
        """True if this member has a generation and does not know that it has lost it."""
        return self.generation != NO_GENERATION

    @property
    def wanted(self) -> frozenset[str]:
        """The subscribed topics, or none when unsubscribed."""
        return self.topics or frozenset()

    def subscription_change(self) -> str:
        """Return the reason of a rebalance after a subscription change."""
        changes = [f"{name} added" for name in sorted(self.wanted - self.joined_topics)]
        changes += [f"{name} removed" for name in sorted(self.joined_topics - self.wanted)]
        if len(changes) > MANY_CHANGES:
            changes[MANY_CHANGES:] = [f"{len(changes) - MANY_CHANGES} more"]
        return f"the subscription changed: {', '.join(changes)}"

    def end(self, *, keep_member_id: bool = False) -> None:
        """End the membership in the current generation. The partitions stay until a callback."""
        self.generation, self.protocol = NO_GENERATION, None
        self.ended.memberships += 1
        if not keep_member_id:
            self.member_id = ""

    def backoff(self, attempt: int) -> float:
        """Return the seconds to wait before a retry. ``attempt`` counts from 0."""
        return self.settings.backoff.delay(attempt + 1, self._rng)
