"""WriteShareGroupState (API 85), versions 0-1: a leader writes changes of share-partitions.

Version 1 adds the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from functools import partial

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import by_partition, has_valid_offsets, state_message
from kohort.broker.share import RecordState, ShareKey, StateBatch
from kohort.errors import ErrorCode
from kohort.protocol.messages import WriteShareGroupStateRequest, WriteShareGroupStateResponse

_Response = WriteShareGroupStateResponse
_Entry = WriteShareGroupStateRequest.PartitionData
_UNKNOWN = "Write operation on uninitialized share partition not allowed."
_STORED = frozenset(RecordState) - {RecordState.ACQUIRED}


@serves(WriteShareGroupStateRequest, (0, 1))
async def write_share_group_state(
    ctx: Context, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    return _Response(
        results=by_partition(request, _Response.WriteStateResult, partial(_write, ctx))
    )


def _write(
    ctx: Context, key: ShareKey, entry: _Entry
) -> WriteShareGroupStateResponse.PartitionResult:
    batches = [
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in entry.state_batches
    ]
    error, message = ErrorCode.INVALID_REQUEST, None
    valid = has_valid_offsets([(batch.first, batch.last) for batch in batches])
    if valid and all(batch.state in _STORED and batch.deliveries >= 0 for batch in batches):
        error = ctx.broker.share_coordinator.write(
            key,
            entry.state_epoch,
            entry.leader_epoch,
            entry.start_offset,
            entry.delivery_complete_count,
            batches,
        )
        message = state_message(error, _UNKNOWN)
    return _Response.PartitionResult(
        partition=entry.partition,
        error_code=error,
        error_message=message or state_message(error),
    )
