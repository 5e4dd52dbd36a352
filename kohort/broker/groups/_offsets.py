"""OffsetCommit: the check of the committer, and the stored offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kohort.broker.groups._base_group import BaseGroup
from kohort.broker.groups._member import CommittedOffset
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._records import offset_commit_key, offset_commit_value
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._offset_checks import validate_consumer_commit
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitRequest
from kohort.types import NamedTuple


class OffsetToCommit(NamedTuple):
    """An offset that a client commits for a partition."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    retention_ms: int = -1
    """Retention time that old clients request; -1 means that the broker decides."""


def _validate_commit(group: ClassicGroup, request: OffsetCommitRequest) -> ErrorCode:
    """Return NONE if this client may commit now, else the error.

    A client without generation and member is an admin or a consumer with assign(). Only an empty
    group accepts its commits.
    """
    generation = request.generation_id_or_member_epoch
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member has joined the new generation, and its offsets are of the old one.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit(
    group: AnyGroup,
    request: OffsetCommitRequest,
    offsets: Sequence[OffsetToCommit],
    now: float,
    version: int = OffsetCommitRequest.versions.last,
) -> list[ErrorCode]:
    """Store the offsets; return one error code for each, in order."""
    if isinstance(group, ConsumerGroup):
        partitions = [(offset.topic, offset.partition) for offset in offsets]
        error = validate_consumer_commit(group, request, partitions, version)
    else:
        error = _validate_commit(group, request)
    if error is not ErrorCode.NONE:
        return [error] * len(offsets)
    if isinstance(group, ClassicGroup) and request.member_id in group.members:
        # A commit restarts the session of a classic group's member only.
        group.restart_session(group.members[request.member_id], now)
    return [_store(group, offset, now) for offset in offsets]


def committed_offset(
    group: BaseGroup, new: OffsetToCommit, now: float
) -> CommittedOffset | ErrorCode:
    """Return the offset to store, or the error code."""
    # Kafka counts UTF-16 units, as Java does, and not bytes.
    if len(new.metadata.encode("utf-16-le")) // 2 > group.env.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    now_ms = group.env.wall_ms(now)
    return CommittedOffset(
        offset=new.offset,
        leader_epoch=new.leader_epoch,
        metadata=new.metadata,
        commit_timestamp_ms=now_ms,
        topic_id=new.topic_id,
        expire_timestamp_ms=-1 if new.retention_ms == -1 else now_ms + new.retention_ms,
    )


def _store(group: BaseGroup, new: OffsetToCommit, now: float) -> ErrorCode:
    committed = committed_offset(group, new, now)
    if isinstance(committed, ErrorCode):
        return committed
    group.offsets[new.topic, new.partition] = committed
    key = offset_commit_key(group.group_id, new.topic, new.partition)
    group.env.append(group.group_id, key, offset_commit_value(committed))
    return ErrorCode.NONE


def append_offset_tombstones(group: BaseGroup, partitions: Iterable[tuple[str, int]]) -> None:
    """Append the tombstones of committed offsets; the group keeps the offsets."""
    for topic, partition in partitions:
        key = offset_commit_key(group.group_id, topic, partition)
        group.env.append(group.group_id, key, None)


def delete_offsets(group: BaseGroup, partitions: Iterable[tuple[str, int]]) -> None:
    """Delete the committed offsets of the partitions."""
    committed = [each for each in dict.fromkeys(partitions) if each in group.offsets]
    append_offset_tombstones(group, committed)
    # An error above leaves the group as it is.
    for each in committed:
        del group.offsets[each]
