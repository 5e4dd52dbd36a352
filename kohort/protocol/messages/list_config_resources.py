"""ListConfigResources, API key 74: names of the resources with settings."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    """Response to :class:`ListConfigResourcesRequest`."""

    class ConfigResource(Struct):
        resource_name: String = field(default="")
        resource_type: Int8 = field("1+", default=16, ignorable=True)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    config_resources: list[ListConfigResourcesResponse.ConfigResource] = field(default_factory=list)


class ListConfigResourcesRequest(
    Request[ListConfigResourcesResponse], api_key=74, versions="0-1", flexible="0+"
):
    """Request for the names of the resources with settings."""

    resource_types: list[Int8] = field("1+", default_factory=list)
