"""OffsetForLeaderEpoch (API 23), versions 2-4. Version 3 adds the replica id."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import is_visible
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

_Requested = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
_Result = OffsetForLeaderEpochResponse.EpochEndOffset


@serves(OffsetForLeaderEpochRequest, (2, 4))
async def offset_for_leader_epoch(
    ctx: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _partition(ctx, topic.topic, requested) for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(ctx: Context, name: str, requested: _Requested) -> _Result:
    is_broker = ctx.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if not (is_broker or is_visible(ctx, name)):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _Result(partition=requested.partition, error_code=error)
    topic = ctx.broker.cluster.topics.get(name)
    found = ctx.broker.led_partition(topic, requested.partition, requested.current_leader_epoch)
    if isinstance(found, ErrorCode):
        return _Result(partition=requested.partition, error_code=found)
    epoch, end = found.log.end_of_epoch(requested.leader_epoch)
    return _Result(partition=requested.partition, leader_epoch=epoch, end_offset=end)
