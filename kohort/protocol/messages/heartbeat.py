"""Heartbeat, API key 12: stay in a classic group.

Version 3 adds static members (KIP-345).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Int16, Int32, String


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    """Response to :class:`HeartbeatRequest`."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)


class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+"):
    """Request to stay in a classic group."""

    group_id: String = field(default="")
    generation_id: Int32 = field(default=0)
    member_id: String = field(default="")
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
