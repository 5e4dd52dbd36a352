"""InitProducerId (API 22), versions 0-5.

Version 3 lets a producer send its present id (KIP-360). Without a transactional id each request
gets a new producer id. With one the coordinator responds, and fences earlier producers.
PRODUCER_FENCED exists since version 4; before it is INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.transactions import ProducerEpoch
from kohort.errors import ErrorCode
from kohort.protocol.messages import InitProducerIdRequest, InitProducerIdResponse


@serves(InitProducerIdRequest, (0, 5))
async def init_producer_id(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    present = ProducerEpoch(request.producer_id, request.producer_epoch)
    if request.transactional_id == "" or (present.producer_id == -1) != (present.epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is None:
        router = ctx.broker.cluster.transaction_router
        return InitProducerIdResponse(producer_id=router.new_producer_id())
    error, given = ctx.broker.transactions.init_producer(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if present.producer_id == -1 else present,
    )
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=given.producer_id, producer_epoch=given.epoch
    )
