"""The "consumer" protocol: the subscriptions and assignments that members exchange as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kohort.coordinator_client.assignors import Assignment, Steps, Subscription
from kohort.errors import MessageDecodeError
from kohort.logs import error_text, get_logger
from kohort.protocol import Buffer, decode_from, encode
from kohort.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
)
from kohort.transport import escaped
from kohort.types import TopicPartition

logger = get_logger(__name__)

Members = Mapping[str, Subscription]
"""Subscriptions by member id."""

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
"""Version 1 adds the owned partitions, 2 their generation, 3 the rack."""

_VERSION = struct.Struct(">h")


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic, in the given order."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _version_of(data: Buffer) -> int:
    """Return the version to decode with. Kafka's rule: decode a newer one as the newest known."""
    if len(data) < _VERSION.size:
        raise MessageDecodeError(
            f"consumer protocol data is truncated: it has {len(data)} bytes, fewer than a version"
        )
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MessageDecodeError(f"consumer protocol data is invalid: its version is {version}")
    return min(version, HIGHEST_VERSION)


def _user_data(data: Buffer | None) -> bytes | None:
    """Copy the bytes, because a slice would keep the whole response in memory."""
    return None if data is None else bytes(data)


def write_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Encode a member's metadata for JoinGroup. Older readers skip newer fields."""
    message = ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in partitions_by_topic(subscription.owned).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _VERSION.pack(version) + encode(message, version)


def read_subscription(data: Buffer, group_instance_id: str | None = None) -> Subscription:
    """Decode a member's metadata. Raise MessageDecodeError if it is invalid."""
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
    """Decode all members' metadata. A member with invalid metadata gets no partitions."""
    members: dict[str, Subscription] = {}
    for member in response.members:
        try:
            subscription = read_subscription(member.metadata, member.group_instance_id)
        except MessageDecodeError as error:
            logger.warning(
                "[%s] member %s gets no partitions, because its subscription cannot be decoded: %s",
                group_id,
                escaped(member.member_id),
                error_text(error),
            )
            subscription = Subscription(topics=(), group_instance_id=member.group_instance_id)
        members[member.member_id] = subscription
        yield
    return members


def write_assignments(assignments: Mapping[str, Assignment]) -> Steps[dict[str, bytes]]:
    """Encode all members' assignments."""
    blobs: dict[str, bytes] = {}
    for member, assignment in assignments.items():
        blobs[member] = write_assignment(assignment)
        yield
    return blobs


def write_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Encode one member's assignment for SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in partitions_by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + encode(message, version)


def read_assignment(data: Buffer) -> Assignment:
    """Decode this member's assignment. Empty data means no partitions.

    Raise MessageDecodeError if the data is invalid.
    """
    if not len(data):
        return Assignment(())
    message, _ = decode_from(ConsumerProtocolAssignment, _version_of(data), data, _VERSION.size)
    partitions = tuple(
        TopicPartition(topic.topic, number)
        for topic in message.assigned_partitions
        for number in topic.partitions
    )
    return Assignment(partitions, _user_data(message.user_data))
