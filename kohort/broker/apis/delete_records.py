"""DeleteRecords (API 21), versions 0-2. Offset -1 deletes all records."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse

_Requested = DeleteRecordsRequest.DeleteRecordsPartition
_Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


@serves(DeleteRecordsRequest, (0, 2))
async def delete_records(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    # If a partition is named twice, the last one counts.
    topics: dict[str, dict[int, _Requested]] = {}
    for topic in request.topics:
        named = topics.setdefault(topic.name, {})
        named.update((requested.partition_index, requested) for requested in topic.partitions)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete(ctx, name, requested) for requested in named.values()],
            )
            for name, named in topics.items()
        ]
    )


def _delete(ctx: Context, name: str, requested: _Requested) -> _Result:
    if not ctx.allows(AclOperation.DELETE, ResourceType.TOPIC, name):
        return _Result(
            partition_index=requested.partition_index,
            low_watermark=-1,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    topic = ctx.broker.cluster.topics.get(name)
    found = ctx.broker.led_partition(topic, requested.partition_index)
    if isinstance(found, ErrorCode):
        return _Result(
            partition_index=requested.partition_index, low_watermark=-1, error_code=found
        )
    if found.topic.is_internal:
        return _Result(
            partition_index=found.index,
            low_watermark=-1,
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    log = found.log
    offset = log.high_watermark if requested.offset == -1 else requested.offset
    if not 0 <= offset <= log.high_watermark:
        return _Result(
            partition_index=found.index, low_watermark=-1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE
        )
    log.advance_start(offset)
    ctx.broker.cluster.changed()
    return _Result(partition_index=found.index, low_watermark=log.start_offset)
