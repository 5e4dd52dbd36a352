"""Headers of requests and responses."""

from __future__ import annotations

from kohort.protocol._struct import Message, field
from kohort.protocol._types import Int16, Int32, String


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """Header of a request. Version 1 is the old form, 2 the flexible one."""

    request_api_key: Int16 = field(default=0)
    request_api_version: Int16 = field(default=0)
    correlation_id: Int32 = field(default=0)
    client_id: String | None = field(nullable="1+", default="", flexible=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Header of a response. Version 0 is the old form, 1 the flexible one."""

    correlation_id: Int32 = field(default=0)
