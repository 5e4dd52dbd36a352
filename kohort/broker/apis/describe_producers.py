"""DescribeProducers (API 61), version 0. It returns producers of partitions that the
broker leads.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.configs._topic_settings import is_legal_name
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode, broker_error
from kohort.protocol.messages import DescribeProducersRequest, DescribeProducersResponse

_Result = DescribeProducersResponse.PartitionResponse


@serves(DescribeProducersRequest, (0, 0))
async def describe_producers(
    ctx: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_partition(ctx, topic.name, i) for i in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(ctx: Context, topic: str, index: int) -> _Result:
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _Result(partition_index=index, error_code=code, error_message=refusal_message(code))
    found = ctx.broker.cluster.topics.get(topic)
    if found is None:
        legal = is_legal_name(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        return _Result(
            partition_index=index, error_code=code, error_message=str(broker_error(code))
        )
    partition = ctx.broker.led_partition(found, index)
    if isinstance(partition, ErrorCode):
        return _Result(partition_index=index, error_code=partition)
    return _Result(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.first_offset,
            )
            for producer_id, producer in partition.log.producers.items()
        ],
    )
