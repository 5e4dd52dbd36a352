"""AlterReplicaLogDirs (API 34), versions 1-2. It moves replicas to another directory (KIP-113).

A broker has one directory here, so a replica is already in it, or the request fails.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.configs._broker_configs import LOG_FOLDER
from kohort.errors import ErrorCode
from kohort.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Result = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


@serves(AlterReplicaLogDirsRequest, (1, 2))
async def alter_replica_log_dirs(
    ctx: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    # A partition with two directories moves to the last one.
    wanted = {
        (topic.name, index): folder.path
        for folder in request.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    results: dict[str, _Topic] = {}
    for (topic, index), path in wanted.items():
        result = results.setdefault(topic, _Topic(topic_name=topic))
        code = _move(ctx, topic, index, path)
        result.partitions.append(_Result(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(ctx: Context, topic: str, index: int, path: str) -> ErrorCode:
    if path != LOG_FOLDER:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = ctx.broker.cluster.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    here = ctx.broker.node.id in partition.replicas
    return ErrorCode.NONE if here else ErrorCode.REPLICA_NOT_AVAILABLE
