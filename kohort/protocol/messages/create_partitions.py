"""CreatePartitions, API key 37: add partitions to topics."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int16, Int32, String


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    """Response to :class:`CreatePartitionsRequest`."""

    class CreatePartitionsTopicResult(Struct):
        name: String = field(default="")
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = field(
        default_factory=list
    )


class CreatePartitionsRequest(
    Request[CreatePartitionsResponse], api_key=37, versions="0-3", flexible="2+"
):
    """Request to add partitions to topics."""

    class CreatePartitionsTopic(Struct):
        name: String = field(default="")
        count: Int32 = field(default=0)
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field(
            nullable="0+", default_factory=list
        )

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[Int32] = field(default_factory=list)

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=0)
    validate_only: Bool = field(default=False)
