"""AlterShareGroupOffsets (API 91), version 0: set where a group without members begins.

As in Kafka an unknown group is created, and any offset is accepted.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.apis._share_states import change_refusal, state_message
from kohort.broker.groups import StateTopic
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse

_Response = AlterShareGroupOffsetsResponse
_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Partition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


@serves(AlterShareGroupOffsetsRequest, (0, 0))
async def alter_share_group_offsets(
    ctx: Context, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    coordinator, group_id = ctx.broker.coordinator, request.group_id
    error, message = change_refusal(ctx, group_id)
    if error is not ErrorCode.NONE:
        return _Response(error_code=error, error_message=message)
    topics: dict[bytes, StateTopic] = {}
    starts: dict[tuple[bytes, int], int] = {}
    responses: list[_Topic] = []
    for asked in request.topics:
        topic = ctx.broker.cluster.topics.get(asked.topic_name)
        allowed = ctx.allows(AclOperation.READ, ResourceType.TOPIC, asked.topic_name)
        response = _Topic(topic_name=asked.topic_name, topic_id=topic.id if topic else ZERO_UUID)
        responses.append(response)
        for each in asked.partitions:
            index = each.partition_index
            entry = _Partition(partition_index=index)
            response.partitions.append(entry)
            if not allowed:
                entry.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                entry.error_message = refusal_message(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None or not 0 <= index < len(topic.partitions):
                entry.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                entry.error_message = state_message(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known = topics.get(topic.id, StateTopic(topic.name, frozenset()))
                topics[topic.id] = known._replace(partitions=known.partitions | {index})
                starts[topic.id, index] = each.start_offset
    if topics:
        errors = coordinator.set_share_starts(group_id, topics, starts)
        for response in responses:
            for entry in response.partitions:
                found = errors.get((bytes(response.topic_id), entry.partition_index))
                if found is not None:
                    entry.error_code = found
    return _Response(responses=responses)
