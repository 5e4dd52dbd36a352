"""DescribeQuorum (API 55), versions 0-2. It returns the voters of the cluster's metadata.

Version 1 adds times, version 2 messages and the voters' addresses. Every broker is a voter here,
and the controller leads. There is no log of the metadata, so its offsets stay 0.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse

_METADATA_TOPIC = "__cluster_metadata"
_LISTENER = "CONTROLLER"

_Partition = DescribeQuorumResponse.PartitionData


@serves(DescribeQuorumRequest, (0, 2))
async def describe_quorum(ctx: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    found = False
    topics = []
    for topic in request.topics:
        partitions = []
        for requested in topic.partitions:
            known = topic.topic_name == _METADATA_TOPIC and requested.partition_index == 0
            partitions.append(_quorum(ctx) if known else _unknown(requested.partition_index))
            found = found or known
        topics.append(
            DescribeQuorumResponse.TopicData(topic_name=topic.topic_name, partitions=partitions)
        )
    nodes = _nodes(ctx) if found and ctx.version >= 2 else []
    return DescribeQuorumResponse(topics=topics, nodes=nodes)


def _quorum(ctx: Context) -> _Partition:
    cluster = ctx.broker.cluster
    now = cluster.now_ms()
    return _Partition(
        leader_id=cluster.controller_id,
        leader_epoch=cluster.registry.controller_epoch,
        current_voters=[
            DescribeQuorumResponse.ReplicaState(
                replica_id=node.id, last_fetch_timestamp=now, last_caught_up_timestamp=now
            )
            for node in cluster.nodes
        ],
    )


def _unknown(index: int) -> _Partition:
    return _Partition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="The partition is not of the metadata log.",
    )


def _nodes(ctx: Context) -> list[DescribeQuorumResponse.Node]:
    return [
        DescribeQuorumResponse.Node(
            node_id=node.id,
            listeners=[
                DescribeQuorumResponse.Listener(name=_LISTENER, host=node.host, port=node.port)
            ],
        )
        for node in ctx.broker.cluster.nodes
    ]
