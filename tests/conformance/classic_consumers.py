"""Classic members with real subscriptions and assignments, which consumer groups take over."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kohort.protocol import encode
from kohort.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
)
from tests.conformance.members import Member, complete

Owned = Mapping[str, Sequence[int]]
"""Partitions by topic."""


def assignment(owned: Owned, user_data: bytes | None = None) -> bytes:
    """Return an assignment as a leader writes it."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
            for topic, partitions in owned.items()
        ],
        user_data=user_data,
    )
    return struct.pack(">h", 1) + encode(message, 1)


def subscription(topics: Sequence[str], owned: Owned, generation: int) -> bytes:
    """Return a subscription with owned partitions."""
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(partitions))
            for topic, partitions in owned.items()
        ],
        generation_id=generation,
    )
    return struct.pack(">h", 2) + encode(message, 2)


@dataclass
class ClassicConsumer(Member):
    """Classic member that subscribes to ``topics`` and reports ``owned`` partitions."""

    owned: Owned = field(default_factory=dict)

    def join_request(self, member_id: str | None = None) -> JoinGroupRequest:
        request = super().join_request(member_id)
        for protocol in request.protocols:
            protocol.metadata = subscription(self.topics, self.owned, self.generation)
        return request

    def rejoin(self, owned: Owned | None = None) -> JoinGroupResponse:
        """Join a group that answers at once, and report these partitions from now on."""
        if owned is not None:
            self.owned = owned
        return self.join()

    def resync(self) -> SyncGroupResponse:
        """Sync as a follower."""
        return self.sync()


def stable_consumers(
    *members: tuple[ClassicConsumer, Owned], user_data: bytes | None = None
) -> None:
    """Create a stable classic group with these assignments."""
    leader, *others = [member for member, _ in members]
    complete(leader, *others)
    for member in others:
        member.send_sync()
    given = [(member, assignment(owned, user_data)) for member, owned in members]
    for answer in [leader.sync(*given), *[member.synced() for member in others]]:
        assert answer.error_code == 0, answer
    for member, owned in members:
        member.owned = owned
