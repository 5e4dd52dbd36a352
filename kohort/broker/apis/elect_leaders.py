"""ElectLeaders (API 43), versions 0-2. It elects the preferred replica or any live replica.

Version 0 elects preferred leaders only. Null for the partitions means all of them. The response
then omits partitions that need no election.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import NO_LEADER, Partition
from kohort.errors import ErrorCode
from kohort.protocol.messages import ElectLeadersRequest, ElectLeadersResponse

_PREFERRED, _UNCLEAN = 0, 1

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Result = ElectLeadersResponse.PartitionResult


@serves(ElectLeadersRequest, (0, 2))
async def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    known = request.election_type in (_PREFERRED, _UNCLEAN)
    topics = ctx.broker.cluster.topics
    if request.topic_partitions is None:
        requested = [(topic.name, list(range(len(topic.partitions)))) for topic in topics if known]
    else:
        requested = [(each.topic, each.partitions) for each in request.topic_partitions]
    results = []
    for name, indexes in requested:
        found = [_elect(ctx, name, index, request.election_type) for index in indexes]
        if request.topic_partitions is None:
            found = [one for one in found if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(_Topic(topic=name, partition_result=found))
    # Kafka responds to an empty list before it checks the type of the election.
    wrong = not known and request.topic_partitions != []
    return ElectLeadersResponse(
        error_code=ErrorCode.INVALID_REQUEST if wrong else ErrorCode.NONE,
        replica_election_results=results,
    )


def _elect(ctx: Context, topic: str, index: int, kind: int) -> _Result:
    partition = ctx.broker.cluster.topics.partition(topic, index)
    if kind not in (_PREFERRED, _UNCLEAN):
        return _refused(index, ErrorCode.INVALID_REQUEST, f"Election type {kind} is unknown.")
    if partition is None:
        message = f"There is no partition {topic}-{index}."
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return _elect_preferred(ctx, partition) if kind == _PREFERRED else _elect_any(ctx, partition)


def _elect_preferred(ctx: Context, partition: Partition) -> _Result:
    cluster, preferred = ctx.broker.cluster, partition.replicas[0]
    if partition.leader == preferred:
        return _not_needed(partition)
    if preferred not in partition.isr or not cluster.is_live(preferred):
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return _refused(partition.index, code, f"Broker {preferred} is not in sync.")
    cluster.move_leader(partition, preferred)
    return _Result(partition_id=partition.index, error_message=None)


def _elect_any(ctx: Context, partition: Partition) -> _Result:
    cluster = ctx.broker.cluster
    if partition.leader != NO_LEADER:
        return _not_needed(partition)
    live = [replica for replica in partition.replicas if cluster.is_live(replica)]
    if not live:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return _refused(partition.index, code, "None of the replicas is live.")
    cluster.move_leader(partition, live[0])
    return _Result(partition_id=partition.index, error_message=None)


def _not_needed(partition: Partition) -> _Result:
    message = "The partition has this leader already."
    return _refused(partition.index, ErrorCode.ELECTION_NOT_NEEDED, message)


def _refused(index: int, code: ErrorCode, message: str) -> _Result:
    return _Result(partition_id=index, error_code=code, error_message=message)
