"""DescribeCluster, API key 60: cluster id, controller and brokers."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int8, Int16, Int32, String


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    """Response to :class:`DescribeClusterRequest`."""

    class DescribeClusterBroker(Struct):
        broker_id: Int32 = field(default=0)
        host: String = field(default="")
        port: Int32 = field(default=0)
        rack: String | None = field(nullable="0+", default=None)
        is_fenced: Bool = field("2+", default=False)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = field(default="")
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: Int32 = field(default=-2147483648)


class DescribeClusterRequest(
    Request[DescribeClusterResponse], api_key=60, versions="0-2", flexible="0+"
):
    """Cluster id, controller and brokers."""

    include_cluster_authorized_operations: Bool = field(default=False)
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)
