"""TxnOffsetCommit (API 28), versions 0-6.

- Version 3 adds the producer's member and generation in the group (KIP-447).
- Version 4 adds TRANSACTION_ABORTABLE.
- Version 5 adds the partition of ``__consumer_offsets`` to the transaction (KIP-890).
- Version 6 uses topic ids instead of names, and adds GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH
  (KIP-1319).
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import CONSUMER_OFFSETS, Partition
from kohort.broker.groups import OffsetToCommit
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.transactions import ProducerEpoch
from kohort.errors import ErrorCode
from kohort.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Result = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


@serves(TxnOffsetCommitRequest, (0, 6))
async def txn_offset_commit(
    ctx: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    topics = ctx.broker.cluster.topics
    offsets: list[OffsetToCommit] = []
    results: list[_Result] = []
    response = TxnOffsetCommitResponse()
    for requested in request.topics:
        topic_result = _Topic(name=requested.name, topic_id=requested.topic_id)
        response.topics.append(topic_result)
        by_id = ctx.version >= 6
        topic = topics.find("" if by_id else requested.name, bytes(requested.topic_id))
        name = requested.name if topic is None else topic.name
        unknown_id = by_id and topic is None
        readable = unknown_id or ctx.allows(AclOperation.READ, ResourceType.TOPIC, name)
        for entry in requested.partitions:
            result = _Result(partition_index=entry.partition_index)
            topic_result.partitions.append(result)
            if not readable:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if unknown_id:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            if topic is None or not 0 <= entry.partition_index < len(topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            results.append(result)
            offsets.append(
                OffsetToCommit(
                    topic=topic.name,
                    topic_id=topic.id,
                    partition=entry.partition_index,
                    offset=entry.committed_offset,
                    leader_epoch=entry.committed_leader_epoch,
                    metadata=entry.committed_metadata or "",
                )
            )
    if offsets:
        for result, error in zip(results, _commit(ctx, request, offsets), strict=True):
            result.error_code = error
    return response


def _commit(
    ctx: Context, request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit]
) -> list[ErrorCode]:
    cluster = ctx.broker.cluster
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    error = ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID
    if error is ErrorCode.NONE and cluster.topics.get(CONSUMER_OFFSETS) is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is not ErrorCode.NONE:
        return [error] * len(offsets)
    error = ctx.broker.coordinator.check(request.group_id)
    partition = cluster.group_partition(request.group_id)
    if error is ErrorCode.NONE:
        error = _join_transaction(ctx, request, partition, producer)
    if error is not ErrorCode.NONE:
        return [error] * len(offsets)
    errors, records = ctx.broker.coordinator.commit_in_transaction(request, offsets, ctx.version)
    if records:
        cluster.transaction_router.append_offsets(partition, producer, records)
    return errors


def _join_transaction(
    ctx: Context, request: TxnOffsetCommitRequest, partition: Partition, producer: ProducerEpoch
) -> ErrorCode:
    """Check or add the partition, unless the transaction has records in it already."""
    if partition.log.producers.has_open_transaction(*producer):
        return ErrorCode.NONE
    error = ctx.broker.cluster.transaction_router.join_transaction(
        request.transactional_id,
        producer,
        (CONSUMER_OFFSETS, partition.index),
        adds=ctx.version >= 5,
    )
    if error is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and ctx.version < 4:
        return ErrorCode.INVALID_TXN_STATE
    return error
