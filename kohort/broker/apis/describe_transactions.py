"""DescribeTransactions (API 65), version 0, of KIP-664."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import is_visible
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

_State = DescribeTransactionsResponse.TransactionState


@serves(DescribeTransactionsRequest, (0, 0))
async def describe_transactions(
    ctx: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(ctx, name) for name in request.transactional_ids]
    )


def _describe(ctx: Context, transactional_id: str) -> _State:
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _State(
            transactional_id=transactional_id,
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    coordinator = ctx.broker.transactions
    error = coordinator.check(transactional_id)
    transaction = coordinator.transactions.get(transactional_id)
    if not transactional_id:
        error = ErrorCode.INVALID_REQUEST
    elif error is ErrorCode.NONE and transaction is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if transaction is None or error is not ErrorCode.NONE:
        return _State(transactional_id=transactional_id, error_code=error)
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        if is_visible(ctx, topic):
            topics.setdefault(topic, []).append(index)
    return _State(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )
