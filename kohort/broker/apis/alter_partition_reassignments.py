"""AlterPartitionReassignments (API 45), versions 0-1. It sets other replicas (KIP-455).

All replicas share one log here, so a reassignment is complete before the response. There is never
one in progress to cancel.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import Partition
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

_Requested = AlterPartitionReassignmentsRequest.ReassignablePartition
_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


@serves(AlterPartitionReassignmentsRequest, (0, 1))
async def alter_partition_reassignments(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    allowed = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_message=None if request.topics else "",
        responses=[
            _Topic(
                name=topic.name,
                partitions=[
                    _reassign(ctx, topic.name, requested, may_resize=allowed)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassign(ctx: Context, topic: str, requested: _Requested, *, may_resize: bool) -> _Result:
    partition = ctx.broker.cluster.topics.partition(topic, requested.partition_index)
    result = _Result(partition_index=requested.partition_index, error_message=None)
    if partition is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = f"There is no partition {topic}-{requested.partition_index}."
    elif requested.replicas is None:
        result.error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    elif (problem := _problem(ctx, requested.replicas)) is not None:
        result.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        result.error_message = problem
    elif not may_resize and len(requested.replicas) != len(partition.replicas):
        result.error_code = ErrorCode.INVALID_REPLICATION_FACTOR
        result.error_message = "The replication factor would change."
    else:
        _move(ctx, partition, requested.replicas)
    return result


def _problem(ctx: Context, replicas: list[int]) -> str | None:
    """Return the problem of a list of replicas, None for a valid list."""
    if not replicas:
        return "The list of replicas is empty."
    if len(set(replicas)) < len(replicas):
        return f"A broker is listed twice: {replicas}."
    unknown = [replica for replica in replicas if replica not in ctx.broker.cluster.registry]
    return f"Brokers {unknown} are not registered." if unknown else None


def _move(ctx: Context, partition: Partition, replicas: list[int]) -> None:
    cluster = ctx.broker.cluster
    cluster.controller.reassign(partition, replicas)
    cluster.topics.mark_changed()
    cluster.changed()
