"""DescribeShareGroupOffsets (API 90), versions 0-1: where share groups are in their partitions.

Version 1 adds the lag (KIP-1226). As in Kafka the start is one write behind the leader's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.apis._share_states import state_message
from kohort.broker.cluster._topics import Topic
from kohort.broker.groups import ShareGroup
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.share import NO_OFFSET, ShareKey
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)

_Response = DescribeShareGroupOffsetsResponse
_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
_Partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
_Asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup


@serves(DescribeShareGroupOffsetsRequest, (0, 1))
async def describe_share_group_offsets(
    ctx: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return _Response(groups=[_describe(ctx, asked) for asked in request.groups])


def _describe(ctx: Context, asked: _Asked) -> _Group:
    group_id = asked.group_id
    error = ctx.broker.coordinator.check(group_id)
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return _Group(group_id=group_id, error_code=error, error_message=refusal_message(error))
    if error is not ErrorCode.NONE:
        return _Group(group_id=group_id, error_code=error)
    group = ctx.broker.coordinator.share_groups.get(group_id)
    if group is None:
        return _Group(group_id=group_id)
    if asked.topics is None:
        found = _initialized(ctx, group)
    else:
        found = {topic.topic_name: topic.partitions for topic in asked.topics}
    return _Group(
        group_id=group_id,
        topics=[
            _topic(ctx, group_id, name, partitions)
            for name, partitions in found.items()
            if asked.topics is not None
            or ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ],
    )


def _initialized(ctx: Context, group: ShareGroup) -> Mapping[str, Sequence[int]]:
    return {topic.name: sorted(topic.partitions) for topic in group.initialized.values()}


def _topic(ctx: Context, group_id: str, name: str, partitions: Iterable[int]) -> _Topic:
    topic = ctx.broker.cluster.topics.get(name)
    error = ErrorCode.NONE
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None or error is not ErrorCode.NONE:
        hidden = error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        message = refusal_message(error) if hidden else state_message(error)
        return _Topic(
            topic_name=name,
            topic_id=ZERO_UUID,
            partitions=[
                _Partition(partition_index=index, error_code=error, error_message=message)
                for index in partitions
            ],
        )
    return _Topic(
        topic_name=name,
        topic_id=topic.id,
        partitions=[_partition(ctx, group_id, topic, index) for index in partitions],
    )


def _partition(ctx: Context, group_id: str, topic: Topic, index: int) -> _Partition:
    key = ShareKey(group_id, topic.id, index)
    coordinator = ctx.broker.cluster.share_router.coordinator(key)
    if coordinator is None:
        return _Partition(
            partition_index=index, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, start_offset=-1
        )
    state = coordinator.summary(key, -1)
    if isinstance(state, ErrorCode):
        return _Partition(partition_index=index, error_code=state, start_offset=-1)
    lag = -1
    if state.start != NO_OFFSET and state.complete >= 0 and index < len(topic.partitions):
        lag = topic.partitions[index].log.high_watermark - state.start - state.complete
    return _Partition(
        partition_index=index, start_offset=state.start, leader_epoch=state.leader_epoch, lag=lag
    )
