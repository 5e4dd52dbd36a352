"""InitializeShareGroupState (API 83), version 0: store new states, or reset present ones."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_states import named_topics, state_message
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
        results=[
            _Response.InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    _initialize(ctx, request.group_id, bytes(topic.topic_id), entry)
                    for entry in topic.partitions
                ],
            )
            for topic in named_topics(request)
        ]
    )


def _initialize(
    ctx: Context, group_id: str, topic_id: bytes, entry: _Entry
) -> InitializeShareGroupStateResponse.PartitionResult:
    key = ShareKey(group_id, topic_id, entry.partition)
    coordinator = ctx.broker.share_coordinator
    error = coordinator.initialize(key, entry.state_epoch, entry.start_offset)
    return _Response.PartitionResult(
        partition=entry.partition, error_code=error, error_message=state_message(error)
    )
