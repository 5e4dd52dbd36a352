"""CreatePartitions (API 37), versions 0-3."""

from __future__ import annotations

from collections import Counter

from kohort.broker.apis._registry import Context, serves
from kohort.broker.configs._cluster_config import MAX_PARTITIONS
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse

_Requested = CreatePartitionsRequest.CreatePartitionsTopic
_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


@serves(CreatePartitionsRequest, (0, 3))
async def create_partitions(
    ctx: Context, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times = Counter(requested.name for requested in request.topics)
    return CreatePartitionsResponse(
        results=[
            _grow(ctx, requested, request.validate_only)
            if times[name] == 1
            else _Result(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="The topic is named twice.",
            )
            for name, requested in {
                requested.name: requested for requested in request.topics
            }.items()
        ]
    )


def _grow(ctx: Context, requested: _Requested, validate_only: bool) -> _Result:
    cluster = ctx.broker.cluster

    def refused(code: ErrorCode, message: str | None) -> _Result:
        return _Result(name=requested.name, error_code=code, error_message=message)

    if not ctx.allows(AclOperation.ALTER, ResourceType.TOPIC, requested.name):
        return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    topic = cluster.topics.get(requested.name)
    if topic is None:
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    new = requested.count - len(topic.partitions)
    if new <= 0:
        return refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic currently has {len(topic.partitions)} partition(s); "
            f"{requested.count} would not be an increase.",
        )
    if requested.count > MAX_PARTITIONS:
        return refused(ErrorCode.INVALID_PARTITIONS, f"More than {MAX_PARTITIONS} partitions.")
    assignments = None
    if requested.assignments is not None:
        assignments = [list(entry.broker_ids) for entry in requested.assignments]
        nodes = {node.id for node in cluster.nodes}
        sound = all(
            chosen and nodes.issuperset(chosen) and len(set(chosen)) == len(chosen)
            for chosen in assignments
        )
        if len(assignments) != new or not sound:
            return refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{new} new partition(s) need as many assignments, to live brokers.",
            )
    if not validate_only:
        cluster.add_partitions(topic, requested.count, assignments)
    return _Result(name=requested.name)
