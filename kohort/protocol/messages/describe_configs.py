"""DescribeConfigs, API key 32: settings of topics, brokers and groups."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int8, Int16, Int32, String


class DescribeConfigsResponse(Response, api_key=32, versions="1-4", flexible="4+"):
    """Response to :class:`DescribeConfigsRequest`."""

    class DescribeConfigsResult(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = field(
            default_factory=list
        )

    class DescribeConfigsResourceResult(Struct):
        name: String = field(default="")
        value: String | None = field(nullable="0+", default="")
        read_only: Bool = field(default=False)
        config_source: Int8 = field(default=-1, ignorable=True)
        is_sensitive: Bool = field(default=False)
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field(
            default_factory=list, ignorable=True
        )
        config_type: Int8 = field("3+", default=0, ignorable=True)
        documentation: String | None = field("3+", nullable="0+", default="", ignorable=True)

    class DescribeConfigsSynonym(Struct):
        name: String = field(default="")
        value: String | None = field(nullable="0+", default="")
        source: Int8 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = field(default_factory=list)


class DescribeConfigsRequest(
    Request[DescribeConfigsResponse], api_key=32, versions="1-4", flexible="4+"
):
    """Settings of topics, brokers and groups."""

    class DescribeConfigsResource(Struct):
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        configuration_keys: list[String] | None = field(nullable="0+", default_factory=list)

    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = field("3+", default=False)
