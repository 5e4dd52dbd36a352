"""AddPartitionsToTxn (API 24), versions 0-5.

Up to version 3 producers send it for one transaction. Later versions are sent by brokers for
several transactions. They may only verify that the partitions were added (``verify_only``,
KIP-890). PRODUCER_FENCED exists since version 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.transactions import ProducerEpoch, TransactionPartition
from kohort.errors import ErrorCode
from kohort.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_Requested = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


@serves(AddPartitionsToTxnRequest, (0, 5))
async def add_partitions_to_txn(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if ctx.version >= 4:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                _of_broker(ctx, requested) for requested in request.transactions
            ]
        )
    producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    topics = request.v3_and_below_topics
    topic_partitions = _topic_partitions(topics)
    errors = _add(ctx, request.v3_and_below_transactional_id, producer, topic_partitions, version=0)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(topics, errors))


def _of_broker(
    ctx: Context, requested: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
    producer = ProducerEpoch(requested.producer_id, requested.producer_epoch)
    topic_partitions = _topic_partitions(requested.topics)
    transactions = ctx.broker.transactions
    if requested.verify_only:
        errors: Mapping[TransactionPartition, ErrorCode] = _unknown(ctx, topic_partitions) or {
            topic_partition: transactions.verify_partition(
                requested.transactional_id, producer, topic_partition
            )
            for topic_partition in topic_partitions
        }
    else:
        errors = _add(ctx, requested.transactional_id, producer, topic_partitions, version=2)
    return AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=requested.transactional_id,
        topic_results=_topic_results(requested.topics, errors),
    )


def _topic_partitions(topics: Sequence[_Requested]) -> list[TransactionPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _add(
    ctx: Context,
    transactional_id: str,
    producer: ProducerEpoch,
    topic_partitions: Sequence[TransactionPartition],
    version: int,
) -> Mapping[TransactionPartition, ErrorCode]:
    """Add all partitions, or none if one of them does not exist."""
    if unknown := _unknown(ctx, topic_partitions):
        return unknown
    error = ctx.broker.transactions.add_partitions(
        transactional_id, producer, topic_partitions, version
    )
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(topic_partitions, error)


def _unknown(
    ctx: Context, topic_partitions: Sequence[TransactionPartition]
) -> Mapping[TransactionPartition, ErrorCode]:
    """Return errors of all partitions if one is unknown or refused, else nothing."""
    topics = ctx.broker.cluster.topics
    errors: dict[TransactionPartition, ErrorCode] = {}
    for topic_partition in topic_partitions:
        # Brokers have been authorized for the whole request.
        refused = ctx.version < 4 and not ctx.allows(
            AclOperation.WRITE, ResourceType.TOPIC, topic_partition[0]
        )
        if refused:
            errors[topic_partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topics.partition(*topic_partition) is None:
            errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return {}
    return {
        topic_partition: errors.get(topic_partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
        for topic_partition in topic_partitions
    }


def _topic_results(
    topics: Sequence[_Requested], errors: Mapping[TransactionPartition, ErrorCode]
) -> list[_Topic]:
    return [
        _Topic(
            name=topic.name,
            results_by_partition=[
                _Result(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
