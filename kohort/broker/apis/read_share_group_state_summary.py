"""ReadShareGroupStateSummary (API 87), versions 0-1: read where share-partitions begin.

Version 1 adds the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import named_topics, state_message
from kohort.broker.share import ShareKey
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

_Response = ReadShareGroupStateSummaryResponse


@serves(ReadShareGroupStateSummaryRequest, (0, 1))
async def read_share_group_state_summary(
    ctx: Context, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    return _Response(
        results=[
            _Response.ReadStateSummaryResult(
                topic_id=topic.topic_id,
                partitions=[
                    _read(
                        ctx,
                        ShareKey(request.group_id, bytes(topic.topic_id), entry.partition),
                        entry.leader_epoch,
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in named_topics(request)
        ]
    )


def _read(
    ctx: Context, key: ShareKey, leader_epoch: int
) -> ReadShareGroupStateSummaryResponse.PartitionResult:
    found = ctx.broker.share_coordinator.summary(key, leader_epoch)
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
