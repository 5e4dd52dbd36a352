"""TxnOffsetCommit (28), versions 0-5.

Version 3 tells of which member and generation of the group the producer is (KIP-447), 4 knows
TRANSACTION_ABORTABLE, 5 adds the partition of ``__consumer_offsets`` to the transaction by itself
(KIP-890).
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kohort.testing._topics import CONSUMER_OFFSETS, Partition
from kohort.testing.apis._registry import Context, serves
from kohort.testing.groups import OffsetToCommit
from kohort.testing.security import AclOperation, ResourceType
from kohort.testing.transactions import ProducerEpoch

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Answer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


@serves(TxnOffsetCommitRequest, (0, 5))
async def txn_offset_commit(
    ctx: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    topics = ctx.broker.cluster.topics
    offsets: list[OffsetToCommit] = []
    answers: list[_Answer] = []
    response = TxnOffsetCommitResponse()
    for asked in request.topics:
        result = _Topic(name=asked.name)
        response.topics.append(result)
        topic = topics.get(asked.name)
        readable = ctx.allows(AclOperation.READ, ResourceType.TOPIC, asked.name)
        for entry in asked.partitions:
            answer = _Answer(partition_index=entry.partition_index)
            result.partitions.append(answer)
            if not readable:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if topic is None or not 0 <= entry.partition_index < len(topic.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            answers.append(answer)
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
        for answer, error in zip(answers, _commit(ctx, request, offsets), strict=True):
            answer.error_code = error
    return response


def _commit(
    ctx: Context, request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit]
) -> list[ErrorCode]:
    cluster = ctx.broker.cluster
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    error = ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID
    error = error or ctx.broker.coordinator.check(request.group_id)
    partition = cluster.group_partition(request.group_id)
    if error is ErrorCode.NONE:
        error = _join_transaction(ctx, request, partition, producer)
    if error is not ErrorCode.NONE:
        return [error] * len(offsets)
    errors, records = ctx.broker.coordinator.commit_in_transaction(request, offsets)
    if records:
        cluster.transacting.append_offsets(partition, producer, records)
    return errors


def _join_transaction(
    ctx: Context, request: TxnOffsetCommitRequest, partition: Partition, producer: ProducerEpoch
) -> ErrorCode:
    """As with other writes, what has begun in a partition is not asked for again."""
    if partition.log.producers.in_transaction(*producer):
        return ErrorCode.NONE
    error = ctx.broker.cluster.transacting.join(
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
