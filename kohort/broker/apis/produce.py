"""Produce (API 0), versions 3-13. As in Kafka, 0-13 are advertised for librdkafka.

- Version 3 has one batch for each partition, of message format 2.
- Version 7 accepts zstd.
- Version 8 adds errors of single records.
- Version 9 is flexible.
- Version 10 adds the new leader to NOT_LEADER_OR_FOLLOWER.
- Version 11 adds TRANSACTION_ABORTABLE.
- Version 12 adds the partition to the producer's transaction (KIP-890).
- Version 13 uses topic ids.

Before version 12 the partition must be in the transaction already. acks=0 has no response. An
error then closes the connection.
"""

from __future__ import annotations

from kohort.broker.apis._registry import CloseConnection, Context, serves
from kohort.broker.cluster._topics import Partition, Topic
from kohort.broker.log import AppendError, single_batch
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.transactions import ProducerEpoch
from kohort.errors import ErrorCode
from kohort.protocol import Buffer
from kohort.protocol.messages import ProduceRequest, ProduceResponse
from kohort.records import Compression, RecordBatch

_Result = ProduceResponse.PartitionProduceResponse
_CODEC_BITS = 0x07
_NOT_JOINED = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Unable to verify the partition has been added to the "
    "transaction. The transaction's coordinator is not ready.",
}


@serves(ProduceRequest, (3, 13), advertised=(0, 13))
async def produce(ctx: Context, request: ProduceRequest) -> ProduceResponse | None:
    response = ProduceResponse()
    leaders: set[int] = set()
    may_transact = _may_transact(ctx, request)
    for data in request.topic_data:
        topic = ctx.broker.cluster.topics.find(data.name, bytes(data.topic_id))
        refused = None
        if not may_transact:
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not _may_write(ctx, data.name, topic):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results = [
            _partition(ctx, request, topic, entry.index, entry.records)
            if refused is None
            else _error(entry.index, refused)
            for entry in data.partition_data
        ]
        leaders.update(result.current_leader.leader_id for result in results)
        response.responses.append(
            ProduceResponse.TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=results
            )
        )
    if request.acks == 0:
        if any(a.error_code for topic in response.responses for a in topic.partition_responses):
            raise CloseConnection("an acks=0 produce request failed")
        return None
    if ctx.version >= 10:
        response.node_endpoints = [
            ProduceResponse.NodeEndpoint(
                node_id=node.id, host=node.host, port=ctx.port_of(node), rack=node.rack
            )
            for node in ctx.broker.cluster.nodes
            if node.id in leaders
        ]
    return response


def _may_transact(ctx: Context, request: ProduceRequest) -> bool:
    """Return False if records are of a transaction that the principal may not write."""
    if ctx.broker.cluster.authorizer is None:
        return True
    if not any(
        _is_transactional(entry.records)
        for data in request.topic_data
        for entry in data.partition_data
    ):
        return True
    name = request.transactional_id
    return name is not None and ctx.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def _is_transactional(records: Buffer | None) -> bool:
    try:
        return single_batch(records).header.is_transactional
    except AppendError:
        return False


def _may_write(ctx: Context, name: str, topic: Topic | None) -> bool:
    if topic is None and ctx.version >= 13:
        return True
    return ctx.allows(AclOperation.WRITE, ResourceType.TOPIC, name if topic is None else topic.name)


def _partition(
    ctx: Context, request: ProduceRequest, topic: Topic | None, index: int, records: Buffer | None
) -> _Result:
    known = topic is not None and 0 <= index < len(topic.partitions)
    if topic is None or not known:
        unknown = topic is None and ctx.version >= 13
        code = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _error(index, code)
    try:
        batch = _requested_batch(ctx, request, records)
    except AppendError as error:
        result = _error(index, error.code)
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            result.error_message = str(error)
        return result
    if request.acks not in (-1, 0, 1):
        return _error(index, ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.is_internal:
        return _error(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = ctx.broker.led_partition(topic, index)
    if isinstance(partition, ErrorCode):
        return _moved(ctx, topic.partitions[index], partition)
    start = partition.log.start_offset
    refused = _join_transaction(ctx, request, partition, batch)
    if refused is not ErrorCode.NONE:
        result = _error(index, refused)
        result.error_message = _NOT_JOINED.get(refused)
        return result
    try:
        if request.acks == -1 and partition.is_under_min_isr:
            raise AppendError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"only replicas {partition.isr} are in sync"
            )
        appended = partition.append(batch, ctx.broker.cluster.now_ms())
    except AppendError as error:
        return _not_appended(index, error, start)
    ctx.broker.cluster.changed()
    return _Result(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.timestamp,
        log_start_offset=start,
    )


def _join_transaction(
    ctx: Context, request: ProduceRequest, partition: Partition, batch: RecordBatch
) -> ErrorCode:
    """Check that the partition is in the transaction, or add it; return the error.

    A batch outside the transaction is refused, because no marker would end it.
    """
    header = batch.header
    producer = ProducerEpoch(header.producer_id, header.producer_epoch)
    if not header.is_transactional or partition.log.producers.has_open_transaction(*producer):
        return ErrorCode.NONE
    partition.log.producers.start_verification(header, bumps_epochs=ctx.version >= 12)
    error = ctx.broker.cluster.transaction_router.join_transaction(
        request.transactional_id or "",
        producer,
        (partition.topic.name, partition.index),
        adds=ctx.version >= 12,
    )
    if error is ErrorCode.TRANSACTION_ABORTABLE and ctx.version < 11:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and ctx.version < 12:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


def _requested_batch(ctx: Context, request: ProduceRequest, records: Buffer | None) -> RecordBatch:
    """Return the batch of a partition; AppendError for errors that do not depend on the log."""
    batch = single_batch(records)
    if batch.header.attributes & _CODEC_BITS == Compression.ZSTD and ctx.version < 7:
        raise AppendError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd requires version 7")
    if batch.header.is_transactional and request.transactional_id is None:
        raise AppendError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there is no transactional id"
        )
    return batch


def _moved(ctx: Context, partition: Partition, error: ErrorCode) -> _Result:
    result = _error(partition.index, error)
    if ctx.version >= 10 and error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        result.current_leader = ProduceResponse.LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return result


def _not_appended(index: int, error: AppendError, start: int) -> _Result:
    """Return the result of a refused batch.

    Only invalid records get messages. Some errors omit the log's start, as in Kafka.
    """
    result = _error(index, error.code)
    if error.code not in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE):
        result.log_start_offset = start
    if error.records:
        result.error_message = str(error)
        result.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=record, batch_index_error_message=str(error)
            )
            for record in error.records
        ]
    return result


def _error(index: int, error: ErrorCode) -> _Result:
    return _Result(index=index, error_code=error, base_offset=-1)
