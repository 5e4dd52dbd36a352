"""DeleteShareGroupState (API 86), version 0: delete the states of share-partitions."""

from __future__ import annotations

from functools import partial

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import by_partition, check_partition, state_message
from kohort.broker.share import ShareKey
from kohort.protocol.messages import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse

_Response = DeleteShareGroupStateResponse


@serves(DeleteShareGroupStateRequest, (0, 0))
async def delete_share_group_state(
    ctx: Context, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    return _Response(
        results=by_partition(request, _Response.DeleteStateResult, partial(_delete, ctx))
    )


def _delete(
    ctx: Context, key: ShareKey, _entry: object
) -> DeleteShareGroupStateResponse.PartitionResult:
    error = check_partition(ctx, key) or ctx.broker.share_coordinator.delete(key)
    return _Response.PartitionResult(
        partition=key.partition, error_code=error, error_message=state_message(error)
    )
