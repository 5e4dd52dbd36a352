"""EndTxn (API 26), versions 0-5.

PRODUCER_FENCED exists since version 2. Version 5 uses transaction version 2 (KIP-890). Each end
then gives the producer a new epoch, and it may abort without an open transaction.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.transactions import ProducerEpoch
from kohort.errors import ErrorCode
from kohort.protocol.messages import EndTxnRequest, EndTxnResponse


@serves(EndTxnRequest, (0, 5))
async def end_txn(ctx: Context, request: EndTxnRequest) -> EndTxnResponse:
    version = 2 if ctx.version >= 5 else 0
    error, producer = ctx.broker.transactions.end_transaction(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        request.committed,
        version,
    )
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(
        error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
