"""AddPartitionsToTxn (API 24), versions 0-5.

Up to version 3 producers send it for one transaction. Later versions are sent by brokers for
several transactions. They may only verify that the partitions were added (``verify_only``,
KIP-890). PRODUCER_FENCED exists since version 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.errors import ErrorCode
from kohort.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.security import AclOperation, ResourceType
from kohort.testing.transactions import ProducerEpoch, TransactionPartition

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
    places = _places(topics)
    errors = _add(ctx, request.v3_and_below_transactional_id, producer, places, version=0)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(topics, errors))


def _of_broker(
    ctx: Context, requested: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
    producer = ProducerEpoch(requested.producer_id, requested.producer_epoch)
    places = _places(requested.topics)
    transactions = ctx.broker.transactions
    if requested.verify_only:
        errors: Mapping[TransactionPartition, ErrorCode] = _unknown(ctx, places) or {
            place: transactions.verify_partition(requested.transactional_id, producer, place)
            for place in places
        }
    else:
        errors = _add(ctx, requested.transactional_id, producer, places, version=2)
    return AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=requested.transactional_id,
        topic_results=_topic_results(requested.topics, errors),
    )


def _places(topics: Sequence[_Requested]) -> list[TransactionPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _add(
    ctx: Context,
    transactional_id: str,
    producer: ProducerEpoch,
    places: Sequence[TransactionPartition],
    version: int,
) -> Mapping[TransactionPartition, ErrorCode]:
    """Add all partitions, or none if one of them does not exist."""
    if unknown := _unknown(ctx, places):
        return unknown
    error = ctx.broker.transactions.add_partitions(transactional_id, producer, places, version)
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(places, error)


def _unknown(
    ctx: Context, places: Sequence[TransactionPartition]
) -> Mapping[TransactionPartition, ErrorCode]:
    """Return errors of all partitions if one is unknown or refused, else nothing."""
    topics = ctx.broker.cluster.topics
    errors: dict[TransactionPartition, ErrorCode] = {}
    for place in places:
        # Brokers have been authorized for the whole request.
        refused = ctx.version < 4 and not ctx.allows(
            AclOperation.WRITE, ResourceType.TOPIC, place[0]
        )
        if refused:
            errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topics.partition(*place) is None:
            errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return {}
    return {place: errors.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}


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
