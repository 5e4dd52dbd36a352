"""A member of a consumer group: its subscription, and the partitions that it may own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from kohort.broker.groups._member import PartitionSets
from kohort.types import NamedTuple

PartitionEpochs: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which it was assigned."""

LEAVE_EPOCH = -1
"""Member epoch of a member that leaves the group."""
STATIC_LEAVE_EPOCH = -2
"""Member epoch of a static member that leaves for a while."""


class AssignmentState(IntEnum):
    """State of a member's reconciliation, as record 8 stores it.

    ``STABLE``: the member has all of the target assignment of its epoch.

    ``UNREVOKED_PARTITIONS``: the member has to give up partitions. It keeps its epoch until then.

    ``UNRELEASED_PARTITIONS``: the member waits for partitions that other members still own.

    ``UNKNOWN``: a newer broker has stored a state that this one does not know.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> AssignmentState:
        return cls.UNKNOWN


def unite(entries: Iterable[tuple[bytes, Iterable[int]]]) -> PartitionSets:
    """Return the partitions by topic id; a topic with several entries has those of all."""
    united: dict[bytes, set[int]] = {}
    for topic_id, partitions in entries:
        united.setdefault(topic_id, set()).update(partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in united.items()}


class ClassicProtocol(NamedTuple):
    """A protocol that a classic member supports, such as ``range``."""

    name: str
    metadata: bytes


class ClassicData(NamedTuple):
    """Data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group.

    The fields up to ``classic`` are those of record 5, the others those of record 8. ``classic`` is
    None for a member that uses the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    """Regular expression of the subscription, empty if there is none."""
    server_assignor: str | None = None
    classic: ClassicData | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: AssignmentState = AssignmentState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    pending_revocation: PartitionEpochs = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """True if the member has the whole target assignment of this epoch."""
        return self.state is AssignmentState.STABLE and self.epoch == epoch

    @property
    def held(self) -> Iterator[tuple[bytes, int]]:
        """The partitions that no other member may get, as (topic id, partition)."""
        for partitions in (self.assigned, self.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    yield topic_id, partition

    def assignment_epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch at which the partition was assigned, None if the member does not
        have it.
        """
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


class ResolvedRegex(NamedTuple):
    """Topics that a regular expression matched.

    ``version`` is that of the topics, ``timestamp_ms`` the time of the resolution.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int
