"""OffsetDelete (API 47), version 0. It is not flexible and belongs to KIP-496.

An empty group deletes any offset. A group of consumers deletes offsets of topics without
subscribers. Another group with members deletes none.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


@serves(OffsetDeleteRequest, (0, 0))
async def offset_delete(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    topics = ctx.broker.cluster.topics
    missing: dict[str, list[_Partition]] = {}
    named: dict[str, list[_Partition]] = {}
    for requested in request.topics:
        topic = topics.get(requested.name)
        readable = ctx.allows(AclOperation.READ, ResourceType.TOPIC, requested.name)
        for entry in requested.partitions:
            result = _Partition(partition_index=entry.partition_index)
            if not readable:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                missing.setdefault(requested.name, []).append(result)
            elif topic is not None and 0 <= entry.partition_index < len(topic.partitions):
                named.setdefault(requested.name, []).append(result)
            else:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing.setdefault(requested.name, []).append(result)
    topic_partitions = [(name, result.partition_index) for name in named for result in named[name]]
    error, consumed = ctx.broker.coordinator.delete_offsets(request.group_id, topic_partitions)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    for name, results in named.items():
        for result in results:
            if (name, result.partition_index) in consumed:
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    # The response has unknown topics first, and unknown partitions of a topic first.
    return OffsetDeleteResponse(
        topics=[
            _Topic(name=name, partitions=missing.get(name, []) + named.get(name, []))
            for name in {**missing, **named}
        ]
    )
