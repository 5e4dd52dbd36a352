"""ApiVersions, API key 18: the APIs that a broker serves, with their versions.

The header of the response is always version 0. So is the body of the response to a version that
the broker does not know (KIP-511).

Version 5 names the cluster and the broker that the client means to reach (KIP-1242).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int16, Int32, Int64, String


class ApiVersionsResponse(Response, api_key=18, versions="0-5", flexible="3+"):
    """Response to :class:`ApiVersionsRequest`."""

    class ApiVersion(Struct):
        api_key: Int16 = field(default=0)
        min_version: Int16 = field(default=0)
        max_version: Int16 = field(default=0)

    class SupportedFeatureKey(Struct):
        name: String = field("3+", default="")
        min_version: Int16 = field("3+", default=0)
        max_version: Int16 = field("3+", default=0)

    class FinalizedFeatureKey(Struct):
        name: String = field("3+", default="")
        max_version_level: Int16 = field("3+", default=0)
        min_version_level: Int16 = field("3+", default=0)

    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersionsResponse.ApiVersion] = field(default_factory=list)
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = field(
        "3+", tag=0, default_factory=list, ignorable=True
    )
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = field(
        "3+", tag=2, default_factory=list, ignorable=True
    )
    zk_migration_ready: Bool = field("3+", tag=3, default=False, ignorable=True)


class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=18, versions="0-5", flexible="3+"):
    """Request for the APIs that a broker serves, with their versions."""

    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)
    cluster_id: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)
