"""DescribeCluster (API 60), versions 0-2.

Version 1 adds the endpoint type, 1 for brokers and 2 for controllers, which clients cannot reach
here. Version 2 adds fenced brokers.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import NOT_REQUESTED, cluster_operations
from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

_BROKERS, _CONTROLLERS = 1, 2


@serves(DescribeClusterRequest, (0, 2))
async def describe_cluster(
    ctx: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        wants_controllers = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if wants_controllers
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message=f"This is a broker, not an endpoint of type {request.endpoint_type}.",
            endpoint_type=_BROKERS,
        )
    cluster = ctx.broker.cluster
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=ctx.port_of(node), rack=node.rack
            )
            for node in cluster.nodes
        ],
        cluster_authorized_operations=(
            cluster_operations(ctx)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )
