"""What ShareFetch and ShareAcknowledge have in common: members, sessions and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import anyio

from kohort.broker.apis._registry import Context
from kohort.broker.groups import MAX_SHARE_MEMBER_ID
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.share import Ack, AckError, SessionKey, ShareKey
from kohort.errors import ErrorCode
from kohort.types import NamedTuple


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class _Partition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[_Batch]: ...


class _Topic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[_Partition]: ...


class AckResult(NamedTuple):
    """Result of all acknowledgements of a partition."""

    code: ErrorCode
    message: str | None = None


def session_key(group_id: str | None, member_id: str | None) -> SessionKey | ErrorCode:
    """Return the key of a request's session, INVALID_REQUEST if it does not name a member."""
    if not group_id or not member_id or len(member_id) > MAX_SHARE_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    return SessionKey(group_id, member_id)


def named_partitions(
    group_id: str, topics: Iterable[_Topic]
) -> Iterator[tuple[ShareKey, list[Ack]]]:
    """Yield the partitions of a request with their acknowledgements."""
    for topic in topics:
        for partition in topic.partitions:
            key = ShareKey(group_id, bytes(topic.topic_id), partition.partition_index)
            yield (
                key,
                [
                    Ack(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
                    for batch in partition.acknowledgement_batches
                ],
            )


def topic_error(ctx: Context, key: ShareKey) -> ErrorCode:
    """Return the error of a partition whose topic is unknown or hidden from the principal."""
    topic = ctx.broker.cluster.topics.by_id(key.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def acknowledge(
    ctx: Context, member: SessionKey, key: ShareKey, acks: Sequence[Ack], *, renews: bool
) -> AckResult:
    """Apply the acknowledgements of one partition."""
    error = topic_error(ctx, key)
    if error is not ErrorCode.NONE:
        return AckResult(error)
    now = anyio.current_time()
    try:
        ctx.broker.share_leader.acknowledge(key, member.member_id, acks, now, renews=renews)
    except AckError as refusal:
        return AckResult(refusal.code, refusal.message)
    return AckResult(ErrorCode.NONE)
