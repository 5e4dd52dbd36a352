"""DeleteTopics, API key 20: delete topics by name, from version 6 on also by id."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, String, Uuid


class DeleteTopicsResponse(Response, api_key=20, versions="1-6", flexible="4+"):
    """Response to :class:`DeleteTopicsRequest`."""

    class DeletableTopicResult(Struct):
        name: String | None = field(nullable="6+", default="")
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        error_code: Int16 = field(default=0)
        error_message: String | None = field("5+", nullable="5+", default=None, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = field(default_factory=list)


class DeleteTopicsRequest(Request[DeleteTopicsResponse], api_key=20, versions="1-6", flexible="4+"):
    """Request to delete topics by name, from version 6 on also by id."""

    class DeleteTopicState(Struct):
        name: String | None = field("6+", nullable="6+", default=None)
        topic_id: Uuid = field("6+", default=ZERO_UUID)

    topics: list[DeleteTopicsRequest.DeleteTopicState] = field("6+", default_factory=list)
    topic_names: list[String] = field("1-5", default_factory=list, ignorable=True)
    timeout_ms: Int32 = field(default=0)
