"""CreateTopics, API key 19: create topics."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


class CreateTopicsResponse(Response, api_key=19, versions="2-7", flexible="5+"):
    """Response to :class:`CreateTopicsRequest`."""

    class CreatableTopicResult(Struct):
        name: String = field(default="")
        topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="", ignorable=True)
        topic_config_error_code: Int16 = field("5+", tag=0, default=0, ignorable=True)
        num_partitions: Int32 = field("5+", default=-1, ignorable=True)
        replication_factor: Int16 = field("5+", default=-1, ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field(
            "5+", nullable="5+", default_factory=list, ignorable=True
        )

    class CreatableTopicConfigs(Struct):
        name: String = field("5+", default="")
        value: String | None = field("5+", nullable="5+", default="")
        read_only: Bool = field("5+", default=False)
        config_source: Int8 = field("5+", default=-1, ignorable=True)
        is_sensitive: Bool = field("5+", default=False)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[CreateTopicsResponse.CreatableTopicResult] = field(default_factory=list)


class CreateTopicsRequest(Request[CreateTopicsResponse], api_key=19, versions="2-7", flexible="5+"):
    """Request to create topics."""

    class CreatableTopic(Struct):
        name: String = field(default="")
        num_partitions: Int32 = field(default=0)
        replication_factor: Int16 = field(default=0)
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = field(
            default_factory=list
        )
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = field(default_factory=list)

    class CreatableReplicaAssignment(Struct):
        partition_index: Int32 = field(default=0)
        broker_ids: list[Int32] = field(default_factory=list)

    class CreatableTopicConfig(Struct):
        name: String = field(default="")
        value: String | None = field(nullable="0+", default="")

    topics: list[CreateTopicsRequest.CreatableTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)
