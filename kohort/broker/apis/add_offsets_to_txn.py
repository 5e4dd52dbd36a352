"""AddOffsetsToTxn (API 25), versions 0-4.

It adds the group's partition of ``__consumer_offsets`` to the transaction. PRODUCER_FENCED exists
since version 2; before it is INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import CONSUMER_OFFSETS
from kohort.broker.transactions import ProducerEpoch
from kohort.errors import ErrorCode
from kohort.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@serves(AddOffsetsToTxnRequest, (0, 4))
async def add_offsets_to_txn(
    ctx: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    index = ctx.broker.cluster.group_partition(request.group_id).index
    error = ctx.broker.transactions.add_partitions(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        [(CONSUMER_OFFSETS, index)],
    )
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)
