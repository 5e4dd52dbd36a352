"""What members tell each other through the coordinator: the "consumer" protocol's two blobs."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping

from kohort.coordinator_client.assignors import Assignment, Steps, Subscription
from kohort.errors import MessageDecodeError
from kohort.protocol import Buffer, decode_from, encode
from kohort.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
)
from kohort.transport import escaped
from kohort.types import TopicPartition

logger = logging.getLogger(__name__)

Members = Mapping[str, Subscription]
"""Member id -> its metadata."""

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
"""Version 1 adds the owned partitions, 2 their generation, 3 the rack."""

_VERSION = struct.Struct(">h")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _version_of(data: Buffer) -> int:
    """The version to read by: a newer one is read as the newest known, as Kafka lays down."""
    if len(data) < _VERSION.size:
        raise MessageDecodeError(f"a blob of the consumer protocol has {len(data)} bytes only")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MessageDecodeError(f"a blob of the consumer protocol has version {version}")
    return min(version, HIGHEST_VERSION)


def _user_data(data: Buffer | None) -> bytes | None:
    """A copy: the blob is a slice of a frame that nobody should keep alive."""
    return None if data is None else bytes(data)


def write_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """A member's metadata in JoinGroup. Older readers skip what they do not know."""
    message = ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(subscription.owned).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _VERSION.pack(version) + encode(message, version)


def read_subscription(data: Buffer, group_instance_id: str | None = None) -> Subscription:
    """A member's metadata as the leader gets it. Raises MessageDecodeError."""
    message, _ = decode_from(ConsumerProtocolSubscription, _version_of(data), data, _VERSION.size)
    return Subscription(
        topics=tuple(message.topics),
        user_data=_user_data(message.user_data),
        owned=tuple(
            TopicPartition(topic.topic, number)
            for topic in message.owned_partitions
            for number in topic.partitions
        ),
        generation=message.generation_id,
        rack=message.rack_id,
        group_instance_id=group_instance_id,
    )


def read_members(response: JoinGroupResponse, group_id: str) -> Steps[dict[str, Subscription]]:
    """All members' metadata. A member whose metadata cannot be read gets no partitions."""
    members: dict[str, Subscription] = {}
    for member in response.members:
        try:
            subscription = read_subscription(member.metadata, member.group_instance_id)
        except MessageDecodeError as error:
            logger.warning(
                "[%s] member %s cannot be given partitions, its subscription is unreadable: %s",
                group_id,
                escaped(member.member_id),
                str(error),
            )
            subscription = Subscription(topics=(), group_instance_id=member.group_instance_id)
        members[member.member_id] = subscription
        yield
    return members


def write_assignments(assignments: Mapping[str, Assignment]) -> Steps[dict[str, bytes]]:
    """The blobs of all members' assignments."""
    blobs: dict[str, bytes] = {}
    for member, assignment in assignments.items():
        blobs[member] = write_assignment(assignment)
        yield
    return blobs


def write_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """What the leader sends for one member in SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + encode(message, version)


def read_assignment(data: Buffer) -> Assignment:
    """What this member gets; no bytes at all mean nothing. Raises MessageDecodeError."""
    if not len(data):
        return Assignment(())
    message, _ = decode_from(ConsumerProtocolAssignment, _version_of(data), data, _VERSION.size)
    partitions = tuple(
        TopicPartition(topic.topic, number)
        for topic in message.assigned_partitions
        for number in topic.partitions
    )
    return Assignment(partitions, _user_data(message.user_data))
