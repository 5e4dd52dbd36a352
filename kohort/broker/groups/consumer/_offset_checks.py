"""Checks of commits and fetches of offsets by members of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import ConsumerMember
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitRequest, TxnOffsetCommitRequest

FIRST_VERSION = 9
"""First version of OffsetCommit with member epochs."""


def validate_consumer_commit(
    group: ConsumerGroup,
    request: OffsetCommitRequest,
    partitions: Sequence[tuple[str, int]],
    version: int,
) -> ErrorCode:
    """Return NONE if this client may commit offsets of these partitions, else the error.

    An older epoch is accepted for partitions that the member got at this epoch or before.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and version < FIRST_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return _check_epoch(group, member, epoch, partitions)


def validate_consumer_transaction(
    group: ConsumerGroup,
    request: TxnOffsetCommitRequest,
    partitions: Sequence[tuple[str, int]],
    version: int,
) -> ErrorCode:
    """Return NONE if this producer may commit offsets of these partitions, else the error.

    A producer without member data may always commit.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if epoch == -1 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check_epoch(group, member, epoch, partitions)
    if error is ErrorCode.STALE_MEMBER_EPOCH and version < 6:
        # These versions have no error for an epoch, so a producer treats it like a generation.
        return ErrorCode.ILLEGAL_GENERATION
    return error


def validate_consumer_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return NONE if this client may fetch offsets, else the error.

    A client that names no member always may. As in Kafka, an epoch without a member is not
    expected.
    """
    if member_id is None:
        return ErrorCode.NONE if epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)


def _check_epoch(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, partitions: Sequence[tuple[str, int]]
) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch:
        return _stale(member)
    for name, partition in partitions:
        topic = group.env.topics.named(name)
        assigned = None if topic is None else member.assignment_epoch_of(topic.topic_id, partition)
        if assigned is None or assigned > epoch:
            return _stale(member)
    return ErrorCode.NONE


def _stale(member: ConsumerMember) -> ErrorCode:
    if member.classic is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION
