"""ListTransactions (API 66), versions 0-2. It lists those that this broker coordinates (KIP-664).

Version 1 adds a filter by duration, version 2 one by a pattern of the transactional id.
"""

from __future__ import annotations

import re

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.transactions import TransactionState
from kohort.errors import ErrorCode
from kohort.protocol.messages import ListTransactionsRequest, ListTransactionsResponse

_TITLES = {state.title for state in TransactionState}


@serves(ListTransactionsRequest, (0, 2))
async def list_transactions(
    ctx: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in _TITLES]
    states = set(request.state_filters) - set(unknown)
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    if request.state_filters and not states:
        return response
    try:
        pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = ctx.broker.cluster.now_ms()
    for name, transaction in ctx.broker.transactions.transactions.items():
        producer_id, title = transaction.producer.producer_id, transaction.state.title
        if (
            (not states or title in states)
            and (not request.producer_id_filters or producer_id in request.producer_id_filters)
            and now_ms - transaction.started_ms > request.duration_filter
            and pattern.fullmatch(name)
            and ctx.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        ):
            response.transaction_states.append(
                ListTransactionsResponse.TransactionState(
                    transactional_id=name, producer_id=producer_id, transaction_state=title
                )
            )
    return response
