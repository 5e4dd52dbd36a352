"""InitializeShareGroupState (API 83), version 0: store new states, or reset present ones."""

from __future__ import annotations

from functools import partial

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import by_partition, state_message
from kohort.broker.share import ShareKey
from kohort.protocol.messages import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

_Response = InitializeShareGroupStateResponse
_Entry = InitializeShareGroupStateRequest.PartitionData


@serves(InitializeShareGroupStateRequest, (0, 0))
async def initialize_share_group_state(
    ctx: Context, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    return _Response(
        results=by_partition(request, _Response.InitializeStateResult, partial(_initialize, ctx))
    )


def _initialize(
    ctx: Context, key: ShareKey, entry: _Entry
) -> InitializeShareGroupStateResponse.PartitionResult:
    coordinator = ctx.broker.share_coordinator
    error = coordinator.initialize(key, entry.state_epoch, entry.start_offset)
    return _Response.PartitionResult(
        partition=entry.partition, error_code=error, error_message=state_message(error)
    )
