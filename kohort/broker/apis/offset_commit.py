"""OffsetCommit (API 8), versions 2-10.

- Versions 2-4 may have a retention time of the offsets.
- Version 6 adds leader epochs (KIP-320).
- Version 7 adds static members.
- Version 10 uses topic ids instead of names.

A generation for an unknown group is ILLEGAL_GENERATION before version 9, and GROUP_ID_NOT_FOUND
since then.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import Topic
from kohort.broker.groups import OffsetToCommit
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitRequest, OffsetCommitResponse

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Result = OffsetCommitResponse.OffsetCommitResponsePartition


@serves(OffsetCommitRequest, (2, 10))
async def offset_commit(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    topics = ctx.broker.cluster.topics
    commits: list[OffsetToCommit] = []
    results: list[_Result] = []
    # The response has unknown topics first, and unknown partitions of a topic first.
    unknown: list[_Topic] = []
    known: list[_Topic] = []
    for requested in request.topics:
        topic = topics.find(requested.name, bytes(requested.topic_id))
        topic_result = _Topic(name=requested.name, topic_id=requested.topic_id)
        error = _problem(ctx, requested.name, topic)
        if topic is None or error is not ErrorCode.NONE:
            topic_result.partitions = [_result(entry, error) for entry in requested.partitions]
            unknown.append(topic_result)
            continue
        missing = []
        for entry in requested.partitions:
            if not 0 <= entry.partition_index < len(topic.partitions):
                missing.append(_result(entry, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            result = _result(entry, ErrorCode.NONE)
            topic_result.partitions.append(result)
            results.append(result)
            commits.append(
                OffsetToCommit(
                    topic=topic.name,
                    topic_id=topic.id,
                    partition=entry.partition_index,
                    offset=entry.committed_offset,
                    leader_epoch=entry.committed_leader_epoch,
                    metadata=entry.committed_metadata or "",
                    retention_ms=request.retention_time_ms,
                )
            )
        topic_result.partitions = missing + topic_result.partitions
        known.append(topic_result)
    if commits:
        errors = ctx.broker.coordinator.commit(request, commits, ctx.version)
        for result, error in zip(results, errors, strict=True):
            result.error_code = error
    return OffsetCommitResponse(topics=unknown + known)


def _problem(ctx: Context, name: str, topic: Topic | None) -> ErrorCode:
    """Return the error for a whole topic. In versions with names rights are checked first."""
    if topic is None and ctx.version >= 10:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name if topic else name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _result(entry: OffsetCommitRequest.OffsetCommitRequestPartition, error: ErrorCode) -> _Result:
    return _Result(partition_index=entry.partition_index, error_code=error)
