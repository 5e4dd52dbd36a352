"""AddPartitionsToTxn (24), versions 0-5.

Up to version 3 it is a producer's, for one transaction; then a broker's, for several, and may only
ask whether the partitions are in (``verify_only``, KIP-890). Version 2 knows PRODUCER_FENCED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.errors import ErrorCode
from kohort.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.security import AclOperation, ResourceType
from kohort.testing.transactions import Place, ProducerEpoch

_Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Answer = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


@serves(AddPartitionsToTxnRequest, (0, 5))
async def add_partitions_to_txn(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if ctx.version >= 4:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[_of_broker(ctx, asked) for asked in request.transactions]
        )
    producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    topics = request.v3_and_below_topics
    places = _places(topics)
    errors = _add(ctx, request.v3_and_below_transactional_id, producer, places, version=0)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_answers(topics, errors))


def _of_broker(
    ctx: Context, asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
    producer = ProducerEpoch(asked.producer_id, asked.producer_epoch)
    places = _places(asked.topics)
    transactions = ctx.broker.transactions
    if asked.verify_only:
        errors: Mapping[Place, ErrorCode] = _unknown(ctx, places) or {
            place: transactions.verify(asked.transactional_id, producer, place) for place in places
        }
    else:
        errors = _add(ctx, asked.transactional_id, producer, places, version=2)
    return AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id, topic_results=_answers(asked.topics, errors)
    )


def _places(topics: Sequence[_Asked]) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _add(
    ctx: Context,
    transactional_id: str,
    producer: ProducerEpoch,
    places: Sequence[Place],
    version: int,
) -> Mapping[Place, ErrorCode]:
    """All of them or, if one is not there, none."""
    if unknown := _unknown(ctx, places):
        return unknown
    error = ctx.broker.transactions.add(transactional_id, producer, places, version)
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(places, error)


def _unknown(ctx: Context, places: Sequence[Place]) -> Mapping[Place, ErrorCode]:
    """Errors of all partitions if one is unknown or refused; nothing if none is."""
    topics = ctx.broker.cluster.topics
    errors: dict[Place, ErrorCode] = {}
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


def _answers(topics: Sequence[_Asked], errors: Mapping[Place, ErrorCode]) -> list[_Topic]:
    return [
        _Topic(
            name=topic.name,
            results_by_partition=[
                _Answer(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
