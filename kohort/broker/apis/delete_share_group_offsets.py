"""DeleteShareGroupOffsets (API 92), version 0: delete the states of topics in an empty group."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.apis._share_states import change_refusal, state_message
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse

_Response = DeleteShareGroupOffsetsResponse
_Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@serves(DeleteShareGroupOffsetsRequest, (0, 0))
async def delete_share_group_offsets(
    ctx: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    coordinator, group_id = ctx.broker.coordinator, request.group_id
    error, message = change_refusal(ctx, group_id)
    if error is not ErrorCode.NONE:
        return _Response(error_code=error, error_message=message)
    group = coordinator.share_groups.get(group_id)
    if group is None:
        return _Response(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} not found."
        )
    responses: list[_Topic] = []
    deleted: list[bytes] = []
    for asked in request.topics:
        topic = ctx.broker.cluster.topics.get(asked.topic_name)
        response = _Topic(topic_name=asked.topic_name, topic_id=topic.id if topic else ZERO_UUID)
        responses.append(response)
        if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, asked.topic_name):
            response.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.error_message = refusal_message(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic is None:
            response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.error_message = state_message(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            deleted.append(topic.id)
    errors = coordinator.delete_share_states(group, deleted)
    for response in responses:
        response.error_code = errors.get(bytes(response.topic_id), response.error_code)
    return _Response(responses=responses)
