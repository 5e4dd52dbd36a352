"""FindCoordinator, API key 10: find the coordinator of a group or a transaction.

The key type is 0 for a group, 1 for a transaction, 2 for a share group's partition.
Version 4 takes several keys at once (KIP-699).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    """Response to :class:`FindCoordinatorRequest`."""

    class Coordinator(Struct):
        key: String = field("4+", default="")
        node_id: Int32 = field("4+", default=0)
        host: String = field("4+", default="")
        port: Int32 = field("4+", default=0)
        error_code: Int16 = field("4+", default=0)
        error_message: String | None = field("4+", nullable="4+", default="", ignorable=True)

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", nullable="1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[FindCoordinatorResponse.Coordinator] = field("4+", default_factory=list)


class FindCoordinatorRequest(
    Request[FindCoordinatorResponse], api_key=10, versions="0-6", flexible="3+"
):
    """Request for the coordinator of a group or a transaction."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default_factory=list)
