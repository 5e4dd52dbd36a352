"""OffsetFetch (API 9), versions 1-10.

- Version 2 requests everything with null topics, and adds an error of the whole response.
- Version 7 adds require_stable (KIP-447).
- Version 8 adds several groups.
- Version 9 adds member and member epoch, which a consumer group checks (KIP-848).
- Version 10 adds topic ids.

With require_stable, offsets that an open transaction may change get UNSTABLE_OFFSET_COMMIT. A
partition without a commit gets offset -1 without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import is_visible
from kohort.broker.groups import CommittedOffset, ConsumerGroup, validate_consumer_fetch
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetFetchRequest, OffsetFetchResponse

_NO_OFFSET = CommittedOffset(
    offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1, topic_id=b""
)

# Offsets of a topic that the principal may not describe.
_REFUSED = replace(_NO_OFFSET)

# Offsets that an open transaction may change, with and without an earlier commit.
_UNSTABLE, _PENDING = replace(_NO_OFFSET), replace(_NO_OFFSET)

_Offsets = Mapping[tuple[str, int], CommittedOffset]
_Topics = list[tuple[str, list[int]]]


@serves(OffsetFetchRequest, (1, 10))
async def offset_fetch(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if ctx.version >= 8:
        return OffsetFetchResponse(
            groups=[_group(ctx, group, request.require_stable) for group in request.groups]
        )
    error, offsets = _offsets(ctx, request.group_id, request.require_stable)
    if error is not ErrorCode.NONE and ctx.version >= 2:
        return OffsetFetchResponse(error_code=error)
    requested: _Topics
    if request.topics is None:
        requested = _everything(ctx, offsets)
    else:
        requested = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=_error_of(found) if error is ErrorCode.NONE else error,
                    )
                    for index, found in _each(ctx, offsets, name, indexes)
                ],
            )
            for name, indexes in requested
        ]
    )


def _group(
    ctx: Context, requested: OffsetFetchRequest.OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    member = requested.member_id, requested.member_epoch
    error, offsets = _offsets(ctx, requested.group_id, stable, member)
    response = OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=requested.group_id, error_code=error
    )
    if error is not ErrorCode.NONE:
        return response
    topics = ctx.broker.cluster.topics
    if requested.topics is None:
        for name, indexes in _everything(ctx, offsets):
            topic = topics.get(name)
            if ctx.version < 10:
                response.topics.append(_topic(ctx, offsets, name, b"", indexes))
            elif topic is not None:
                response.topics.append(_topic(ctx, offsets, name, topic.id, indexes))
        return response
    for wanted in requested.topics:
        topic_id, indexes = bytes(wanted.topic_id), list(wanted.partition_indexes)
        topic = topics.find(wanted.name, topic_id)
        name = wanted.name if topic is None else topic.name
        result = _topic(ctx, offsets, name, topic_id, indexes)
        if ctx.version >= 10 and topic is None:
            for partition in result.partitions:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        response.topics.append(result)
    return response


def _offsets(
    ctx: Context, group_id: str, stable: bool, member: tuple[str | None, int] = (None, -1)
) -> tuple[ErrorCode, _Offsets]:
    """Return the group's offsets for a member of it, named by id and epoch, or for a client that
    names none.
    """
    coordinator = ctx.broker.coordinator
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, {}
    error = coordinator.check(group_id)
    group = coordinator.groups.get(group_id)
    if error is ErrorCode.NONE and isinstance(group, ConsumerGroup):
        error = validate_consumer_fetch(group, *member)
    committed = {} if group is None else group.offsets
    if not stable:
        return error, committed
    pending = {
        topic_partition: _UNSTABLE if topic_partition in committed else _PENDING
        for topic_partition in coordinator.pending.pending_partitions(group_id)
    }
    return error, {**committed, **pending}


def _error_of(found: CommittedOffset) -> ErrorCode:
    if found is _REFUSED:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    unstable = found is _UNSTABLE or found is _PENDING
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE


def _everything(ctx: Context, offsets: _Offsets) -> _Topics:
    topics: dict[str, list[int]] = {}
    for (name, index), found in offsets.items():
        if found is _PENDING:
            continue  # As in Kafka, only committed offsets are listed.
        if not is_visible(ctx, name):
            continue
        topics.setdefault(name, []).append(index)
    return list(topics.items())


def _each(
    ctx: Context, offsets: _Offsets, name: str, indexes: list[int]
) -> list[tuple[int, CommittedOffset]]:
    if not is_visible(ctx, name):
        return [(index, _REFUSED) for index in indexes]
    return [(index, offsets.get((name, index), _NO_OFFSET)) for index in indexes]


def _topic(
    ctx: Context, offsets: _Offsets, name: str, topic_id: bytes, indexes: list[int]
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id or bytes(16),
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=_error_of(found),
            )
            for index, found in _each(ctx, offsets, name, indexes)
        ],
    )
