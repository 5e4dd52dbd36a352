"""InitProducerId (22), versions 0-5. Version 3 lets a producer bring the id that it has (KIP-360).

Without a transactional id each request gets a new producer id.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from kohort.testing.apis._registry import Context, serves


@serves(InitProducerIdRequest, (0, 5))
async def init_producer_id(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # As a broker without the feature: a producer takes it as final and says so.
        error = ErrorCode.UNSUPPORTED_VERSION
        if not request.transactional_id:
            error = ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=ctx.broker.cluster.new_producer_id())
