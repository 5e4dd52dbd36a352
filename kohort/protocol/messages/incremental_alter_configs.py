"""IncrementalAlterConfigs, API key 44, KIP-339: change single settings of a resource."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int8, Int16, Int32, String


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    """Response to :class:`IncrementalAlterConfigsRequest`."""

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")

    throttle_time_ms: Int32 = field(default=0)
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = field(
        default_factory=list
    )


class IncrementalAlterConfigsRequest(
    Request[IncrementalAlterConfigsResponse], api_key=44, versions="0-1", flexible="1+"
):
    """Request to change single settings of a resource (KIP-339)."""

    class AlterConfigsResource(Struct):
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = field(default_factory=list)

    class AlterableConfig(Struct):
        name: String = field(default="")
        config_operation: Int8 = field(default=0)
        value: String | None = field(nullable="0+", default="")

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = field(
        default_factory=list
    )
    validate_only: Bool = field(default=False)
