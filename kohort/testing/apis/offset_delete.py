"""OffsetDelete (47), version 0: what a group does not consume any more (KIP-496). Never flexible.

An empty group lets go of everything. One with members lets go of the topics that none of them is
subscribed to, if they are consumers, and else of nothing.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.security import AclOperation, ResourceType

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
    places = [(name, result.partition_index) for name in named for result in named[name]]
    error, consumed = ctx.broker.coordinator.delete_offsets(request.group_id, places)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    for name, results in named.items():
        for result in results:
            if (name, result.partition_index) in consumed:
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    # What is not there comes first: topics, and partitions of a topic.
    return OffsetDeleteResponse(
        topics=[
            _Topic(name=name, partitions=missing.get(name, []) + named.get(name, []))
            for name in {**missing, **named}
        ]
    )
