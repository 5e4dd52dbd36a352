"""Members and committed offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Protocols: TypeAlias = Sequence[tuple[str, bytes]]
"""(name, metadata) pairs in the member's order of preference."""
PartitionSets: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""


@dataclass(slots=True)
class Member:
    """A member of a group.

    ``parked_join`` and ``parked_sync`` are set while that request of the member is parked.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    parked_join: object | None = None
    parked_sync: object | None = None
    is_new: bool = False

    def supports(self, name: str) -> bool:
        return any(name == mine for mine, _ in self.protocols)

    def metadata(self, name: str) -> bytes:
        """Return the member's metadata for a protocol, empty if it does not support the
        protocol.
        """
        return next((metadata for mine, metadata in self.protocols if mine == name), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the first of the member's protocols that is a candidate."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def ignores_session_timeout(self) -> bool:
        """True if a parked request keeps the member from sending heartbeats.

        It is False for a new member, whose client may have died before the first response.
        """
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    topic_id: bytes
    expire_timestamp_ms: int = -1
    """Time of expiration; -1 means that it depends on the group."""
