"""OffsetCommit (8), versions 2-10.

Versions 2-4 may say how long the offsets are to be kept; 6 adds leader epochs (KIP-320), 7 static
members. Up to 9 topics go by name, from 10 on by id. A generation for a group that is not there is
ILLEGAL_GENERATION before version 9, GROUP_ID_NOT_FOUND from then on.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from kohort.testing._topics import Topic
from kohort.testing.apis._registry import Context, serves
from kohort.testing.groups import OffsetToCommit
from kohort.testing.security import AclOperation, ResourceType

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Answer = OffsetCommitResponse.OffsetCommitResponsePartition


@serves(OffsetCommitRequest, (2, 10))
async def offset_commit(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    topics = ctx.broker.cluster.topics
    commits: list[OffsetToCommit] = []
    answers: list[_Answer] = []
    # What is not there comes first in the answer: topics, and partitions of a topic.
    unknown: list[_Topic] = []
    known: list[_Topic] = []
    for asked in request.topics:
        topic = topics.find(asked.name, bytes(asked.topic_id))
        result = _Topic(name=asked.name, topic_id=asked.topic_id)
        error = _problem(ctx, asked.name, topic)
        if topic is None or error is not ErrorCode.NONE:
            result.partitions = [_answer(entry, error) for entry in asked.partitions]
            unknown.append(result)
            continue
        missing = []
        for entry in asked.partitions:
            if not 0 <= entry.partition_index < len(topic.partitions):
                missing.append(_answer(entry, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            answer = _answer(entry, ErrorCode.NONE)
            result.partitions.append(answer)
            answers.append(answer)
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
        result.partitions = missing + result.partitions
        known.append(result)
    if commits:
        errors = ctx.broker.coordinator.commit(request, commits, ctx.version)
        for answer, error in zip(answers, errors, strict=True):
            answer.error_code = error
    return OffsetCommitResponse(topics=unknown + known)


def _problem(ctx: Context, name: str, topic: Topic | None) -> ErrorCode:
    """Return the error for a whole topic. Rights are looked at first where it goes by name."""
    if topic is None and ctx.version >= 10:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name if topic else name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(entry: OffsetCommitRequest.OffsetCommitRequestPartition, error: ErrorCode) -> _Answer:
    return _Answer(partition_index=entry.partition_index, error_code=error)
