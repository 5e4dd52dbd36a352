"""AlterConfigs, API key 33: replace the settings of a resource, all at once."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int8, Int16, Int32, String


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    """Response to :class:`AlterConfigsRequest`."""

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = field(default_factory=list)


class AlterConfigsRequest(Request[AlterConfigsResponse], api_key=33, versions="0-2", flexible="2+"):
    """Request to replace the settings of a resource. IncrementalAlterConfigs is newer."""

    class AlterConfigsResource(Struct):
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        configs: list[AlterConfigsRequest.AlterableConfig] = field(default_factory=list)

    class AlterableConfig(Struct):
        name: String = field(default="")
        value: String | None = field(nullable="0+", default="")

    resources: list[AlterConfigsRequest.AlterConfigsResource] = field(default_factory=list)
    validate_only: Bool = field(default=False)
