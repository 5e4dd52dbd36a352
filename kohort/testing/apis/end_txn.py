"""EndTxn (26), versions 0-5.

Version 2 knows PRODUCER_FENCED. With version 5 a producer goes by transaction version 2 (KIP-890):
each end gives it a new epoch, and it may abort where no transaction is open.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import EndTxnRequest, EndTxnResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.transactions import ProducerEpoch


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
