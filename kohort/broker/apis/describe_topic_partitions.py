"""DescribeTopicPartitions (API 75), version 0.

The response has topics in the order of their names, and at most ``response_partition_limit``
partitions. The cursor is the start of the next request. No topics means all.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import is_visible
from kohort.broker.cluster._topics import Partition
from kohort.broker.configs._topic_settings import is_legal_name
from kohort.broker.security import ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

MAX_PARTITIONS = 2000

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


@serves(DescribeTopicPartitionsRequest, (0, 0))
async def describe_topic_partitions(
    ctx: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    error = _check(request)
    if error is not ErrorCode.NONE:
        return DescribeTopicPartitionsResponse(
            topics=[_Topic(error_code=error, name=topic.name) for topic in request.topics]
        )
    topics = ctx.broker.cluster.topics
    names = {topic.name for topic in request.topics}
    hidden = {name for name in names if not is_visible(ctx, name)}
    if not names:
        names = {topic.name for topic in topics if is_visible(ctx, topic.name)}
    cursor = request.cursor
    left = min(max(request.response_partition_limit, 1), MAX_PARTITIONS)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names - hidden):
        if cursor is not None and name < cursor.topic_name:
            continue
        topic = topics.get(name)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_legal_name(name):
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(
                _Topic(
                    error_code=error,
                    name=name,
                    topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name),
                )
            )
            continue
        resumed = cursor is not None and name == cursor.topic_name
        first = cursor.partition_index if resumed and cursor is not None else 0
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name)
            break
        chosen = topic.partitions[first : first + left]
        left -= len(chosen)
        response.topics.append(
            _Topic(
                name=name,
                topic_id=topic.id,
                is_internal=topic.is_internal,
                partitions=[_describe(ctx, partition) for partition in chosen],
                topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name),
            )
        )
        if first + len(chosen) < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=first + len(chosen)
            )
            break
    response.topics += [
        _Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        for name in sorted(hidden)
    ]
    return response


def _check(request: DescribeTopicPartitionsRequest) -> ErrorCode:
    """Return the error for a contradictory request, which is refused for all its topics."""
    names = {topic.name for topic in request.topics}
    if "" in names:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (names and cursor.topic_name not in names)
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _describe(ctx: Context, partition: Partition) -> _Partition:
    return _Partition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader < 0 else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=ctx.broker.cluster.offline_replicas(partition),
    )
