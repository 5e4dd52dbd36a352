"""ShareAcknowledge (API 79), versions 1-2.

Version 2 adds renewals of locks (KIP-1222).
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_requests import acknowledge, named_partitions, session_key
from kohort.broker.share import FINAL_EPOCH, INITIAL_EPOCH
from kohort.errors import ErrorCode
from kohort.protocol.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse

_Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse


@serves(ShareAcknowledgeRequest, (1, 2))
async def share_acknowledge(
    ctx: Context, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    member = session_key(request.group_id, request.member_id)
    if isinstance(member, ErrorCode):
        return ShareAcknowledgeResponse(error_code=member)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = ctx.broker.share_leader.sessions.use(member, epoch)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    topics: dict[bytes, _Topic] = {}
    for key, acks in named_partitions(member.group_id, request.topics):
        result = acknowledge(ctx, member, key, acks, renews=request.is_renew_ack)
        topic = topics.setdefault(key.topic_id, _Topic(topic_id=key.topic_id))
        topic.partitions.append(
            ShareAcknowledgeResponse.PartitionData(
                partition_index=key.partition,
                error_code=result.code,
                error_message=result.message,
            )
        )
    if epoch == FINAL_EPOCH:
        ctx.broker.share_leader.close_session(session)
    ctx.broker.cluster.changed()
    response = ShareAcknowledgeResponse(responses=list(topics.values()))
    if ctx.version >= 2:
        limits = ctx.broker.cluster.configs.groups.limits_of(member.group_id, ctx.broker.node)
        response.acquisition_lock_timeout_ms = limits.share_record_lock_duration_ms
    return response
