"""DeleteTopics (API 20), versions 1-6. Version 6 accepts names or ids."""

from __future__ import annotations

from collections import Counter

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.apis.metadata import is_visible
from kohort.broker.cluster._topics import Topic
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse

_Result = DeleteTopicsResponse.DeletableTopicResult


@serves(DeleteTopicsRequest, (1, 6))
async def delete_topics(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if ctx.version >= 6:
        requested = Counter((topic.name, bytes(topic.topic_id)) for topic in request.topics)
    else:
        requested = Counter((name, ZERO_UUID) for name in request.topic_names)
    return DeleteTopicsResponse(
        responses=[
            _delete(ctx, name, topic_id)
            if times == 1
            else _Result(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="The topic is named twice.",
            )
            for (name, topic_id), times in requested.items()
        ]
    )


def _delete(ctx: Context, name: str | None, topic_id: bytes) -> _Result:
    cluster = ctx.broker.cluster
    if (name is None) == (topic_id == ZERO_UUID):
        return _Result(
            name=name,
            topic_id=topic_id,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Exactly one of topic name and topic id must be given.",
        )
    topic = cluster.topics.find(name, topic_id)
    refused = _refused(ctx, name, topic_id, topic)
    if refused is not None:
        return refused
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return _Result(
            name=name, topic_id=topic_id, error_code=unknown, error_message="No such topic."
        )
    if topic.is_internal:
        return _Result(
            name=topic.name,
            topic_id=topic.id,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Internal topics cannot be deleted.",
        )
    cluster.delete_topic(topic)
    return _Result(name=topic.name, topic_id=topic.id)


def _refused(
    ctx: Context, name: str | None, topic_id: bytes, topic: Topic | None
) -> _Result | None:
    """Return the result for a topic that may not be deleted; a hidden name stays hidden."""
    known = topic.name if topic is not None else name
    if known is None or ctx.allows(AclOperation.DELETE, ResourceType.CLUSTER):
        return None
    visible = is_visible(ctx, known)
    if visible and (topic is None or ctx.allows(AclOperation.DELETE, ResourceType.TOPIC, known)):
        return None
    return _Result(
        name=known if visible else name,
        topic_id=topic_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message=refusal_message(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    )
