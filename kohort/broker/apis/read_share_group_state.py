"""ReadShareGroupState (API 84), version 0: a leader reads the states of its share-partitions."""

from __future__ import annotations

from functools import partial

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import by_partition, state_message
from kohort.broker.share import ShareKey
from kohort.errors import ErrorCode
from kohort.protocol.messages import ReadShareGroupStateRequest, ReadShareGroupStateResponse

_Response = ReadShareGroupStateResponse
_Entry = ReadShareGroupStateRequest.PartitionData
_UNKNOWN = "Read operation on uninitialized share partition not allowed."


@serves(ReadShareGroupStateRequest, (0, 0))
async def read_share_group_state(
    ctx: Context, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    return _Response(results=by_partition(request, _Response.ReadStateResult, partial(_read, ctx)))


def _read(
    ctx: Context, key: ShareKey, entry: _Entry
) -> ReadShareGroupStateResponse.PartitionResult:
    found = ctx.broker.share_coordinator.read(key, entry.leader_epoch)
    if isinstance(found, ErrorCode):
        return _Response.PartitionResult(
            partition=key.partition, error_code=found, error_message=state_message(found, _UNKNOWN)
        )
    return _Response.PartitionResult(
        partition=key.partition,
        state_epoch=found.state_epoch,
        start_offset=found.start,
        state_batches=[
            _Response.StateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.state,
                delivery_count=batch.deliveries,
            )
            for batch in found.batches
        ],
    )
