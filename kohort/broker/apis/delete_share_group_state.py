"""DeleteShareGroupState (API 86), version 0: delete the states of share-partitions."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import check_partition, named_topics, state_message
from kohort.broker.share import ShareKey
from kohort.protocol.messages import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse

_Response = DeleteShareGroupStateResponse


@serves(DeleteShareGroupStateRequest, (0, 0))
async def delete_share_group_state(
    ctx: Context, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    return _Response(
        results=[
            _Response.DeleteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    _delete(ctx, ShareKey(request.group_id, bytes(topic.topic_id), entry.partition))
                    for entry in topic.partitions
                ],
            )
            for topic in named_topics(request)
        ]
    )


def _delete(ctx: Context, key: ShareKey) -> DeleteShareGroupStateResponse.PartitionResult:
    error = check_partition(ctx, key) or ctx.broker.share_coordinator.delete(key)
    return _Response.PartitionResult(
        partition=key.partition, error_code=error, error_message=state_message(error)
    )
