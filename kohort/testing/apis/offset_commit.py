"""OffsetCommit (8), versions 2-10.

Versions 2-4 carry a retention time, which is not used; 6 adds leader epochs (KIP-320), 7 static
members. Up to 9 topics go by name, from 10 on by id. A generation for a group that is not there is
ILLEGAL_GENERATION before version 9, GROUP_ID_NOT_FOUND from then on.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.groups import OffsetToCommit


@serves(OffsetCommitRequest, (2, 10))
async def offset_commit(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    topics = ctx.broker.cluster.topics
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if ctx.version >= 10 else None
    commits: list[OffsetToCommit] = []
    answers: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
    response = OffsetCommitResponse()
    for asked in request.topics:
        topic = topics.find(asked.name, bytes(asked.topic_id))
        partitions = []
        for entry in asked.partitions:
            answer = OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=entry.partition_index
            )
            partitions.append(answer)
            if topic is None or not 0 <= entry.partition_index < len(topic.partitions):
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_code = unknown if unknown and topic is None else missing
                continue
            answers.append(answer)
            commits.append(
                OffsetToCommit(
                    topic=topic.name,
                    topic_id=topic.id,
                    partition=entry.partition_index,
                    offset=entry.committed_offset,
                    leader_epoch=entry.committed_leader_epoch,
                    metadata=entry.committed_metadata or "",
                )
            )
        response.topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=asked.name, topic_id=asked.topic_id, partitions=partitions
            )
        )
    if commits:
        errors = ctx.broker.coordinator.commit(request, commits, ctx.version)
        for answer, error in zip(answers, errors, strict=True):
            answer.error_code = error
    return response
