"""DescribeClientQuotas, API key 48: list the quotas of users, clients and addresses."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Float64, Int8, Int16, Int32, String


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    """Response to :class:`DescribeClientQuotasRequest`."""

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = field(default_factory=list)
        values: list[DescribeClientQuotasResponse.ValueData] = field(default_factory=list)

    class EntityData(Struct):
        entity_type: String = field(default="")
        entity_name: String | None = field(nullable="0+", default="")

    class ValueData(Struct):
        key: String = field(default="")
        value: Float64 = field(default=0.0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default="")
    entries: list[DescribeClientQuotasResponse.EntryData] | None = field(
        nullable="0+", default_factory=list
    )


class DescribeClientQuotasRequest(
    Request[DescribeClientQuotasResponse], api_key=48, versions="0-1", flexible="1+"
):
    """Request to list the quotas of entities that all components match."""

    class ComponentData(Struct):
        entity_type: String = field(default="")
        match_type: Int8 = field(default=0)
        match: String | None = field(nullable="0+", default="")

    components: list[DescribeClientQuotasRequest.ComponentData] = field(default_factory=list)
    strict: Bool = field(default=False)
