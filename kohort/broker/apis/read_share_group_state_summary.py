"""ReadShareGroupStateSummary (API 87), versions 0-1: read where share-partitions begin.

Version 1 adds the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from functools import partial

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import by_partition, state_message
from kohort.broker.share import ShareKey
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

_Response = ReadShareGroupStateSummaryResponse
_Entry = ReadShareGroupStateSummaryRequest.PartitionData


@serves(ReadShareGroupStateSummaryRequest, (0, 1))
async def read_share_group_state_summary(
    ctx: Context, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    return _Response(
        results=by_partition(request, _Response.ReadStateSummaryResult, partial(_read, ctx))
    )


def _read(
    ctx: Context, key: ShareKey, entry: _Entry
) -> ReadShareGroupStateSummaryResponse.PartitionResult:
    found = ctx.broker.share_coordinator.summary(key, entry.leader_epoch)
    if isinstance(found, ErrorCode):
        return _Response.PartitionResult(
            partition=key.partition, error_code=found, error_message=state_message(found)
        )
    return _Response.PartitionResult(
        partition=key.partition,
        state_epoch=found.state_epoch,
        leader_epoch=found.leader_epoch,
        start_offset=found.start,
        delivery_complete_count=found.complete,
    )
