"""Produce (0), versions 3-13; 0-13 are advertised, as Kafka does for librdkafka's sake.

Version 7 takes zstd, 8 tells errors of single records, 9 is flexible, 10 tells the new leader
beside NOT_LEADER_OR_FOLLOWER, 13 names topics by id. Since version 3 there is one batch to a
partition, of message format 2. acks=0 has no answer; an error then ends the connection.
"""

from __future__ import annotations

from kohort.errors import CorruptBatchError, ErrorCode
from kohort.protocol import Buffer
from kohort.protocol.messages import ProduceRequest, ProduceResponse
from kohort.records import Compression, RecordBatch
from kohort.testing._topics import Partition, Topic
from kohort.testing.apis._registry import CloseConnection, Context, serves
from kohort.testing.log import AppendError

_Answer = ProduceResponse.PartitionProduceResponse


@serves(ProduceRequest, (3, 13), advertised=(0, 13))
async def produce(ctx: Context, request: ProduceRequest) -> ProduceResponse | None:
    response = ProduceResponse()
    leaders: set[int] = set()
    for data in request.topic_data:
        topic = ctx.broker.cluster.topics.find(data.name, bytes(data.topic_id))
        answers = [
            _partition(ctx, request, topic, entry.index, entry.records)
            for entry in data.partition_data
        ]
        leaders.update(answer.current_leader.leader_id for answer in answers)
        response.responses.append(
            ProduceResponse.TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=answers
            )
        )
    if request.acks == 0:
        if any(a.error_code for topic in response.responses for a in topic.partition_responses):
            raise CloseConnection("an acks=0 produce request failed")
        return None
    if ctx.version >= 10:
        response.node_endpoints = [
            ProduceResponse.NodeEndpoint(
                node_id=node.id, host=node.host, port=node.port, rack=node.rack
            )
            for node in ctx.broker.cluster.nodes
            if node.id in leaders
        ]
    return response


def _partition(
    ctx: Context, request: ProduceRequest, topic: Topic | None, index: int, records: Buffer | None
) -> _Answer:
    try:
        if request.acks not in (-1, 0, 1):
            raise AppendError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
        if topic is None and ctx.version >= 13:
            raise AppendError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id is not known.")
        if topic is not None and topic.is_internal:
            raise AppendError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot append to internal topic {topic.name}",
            )
        partition = ctx.broker.led_partition(topic, index)
        if isinstance(partition, ErrorCode):
            return _refused(ctx, topic, index, partition)
        batch = checked_batch(records, ctx.version)
        result = partition.append(batch, ctx.broker.cluster.now_ms())
    except AppendError as error:
        return _error(ctx, index, error.code, str(error))
    ctx.broker.cluster.changed()
    return _Answer(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.timestamp,
        log_start_offset=partition.log.start_offset,
    )


def checked_batch(records: Buffer | None, version: int) -> RecordBatch:
    """The one batch of a request, found sound; AppendError if it is not."""
    try:
        batch = RecordBatch.of(b"" if records is None else records)
        header = batch.header
    except CorruptBatchError as error:
        raise AppendError(ErrorCode.INVALID_RECORD, str(error)) from error
    try:
        batch.check_crc()
        compression = header.compression
    except CorruptBatchError as error:
        raise AppendError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if compression is Compression.ZSTD and version < 7:
        raise AppendError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"{header.count} records do not fill offsets up to +{header.last_offset_delta}",
        )
    if header.is_control:
        raise AppendError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write markers")
    if header.is_transactional:
        raise AppendError(ErrorCode.INVALID_TXN_STATE, "The partition is in no transaction")
    return batch


def _refused(ctx: Context, topic: Topic | None, index: int, error: ErrorCode) -> _Answer:
    answer = _error(ctx, index, error, None)
    moved = ctx.version >= 10 and error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if moved and topic is not None:
        partition: Partition = topic.partitions[index]
        answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return answer


def _error(ctx: Context, index: int, error: ErrorCode, message: str | None) -> _Answer:
    return _Answer(index=index, error_code=error, base_offset=-1, error_message=message)
