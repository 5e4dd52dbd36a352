"""AlterReplicaLogDirs, API key 34, KIP-113: move replicas between the disks of one broker."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, String


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="1-2", flexible="2+"):
    """Response to :class:`AlterReplicaLogDirsRequest`."""

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: String = field(default="")
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = field(
            default_factory=list
        )

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = field(
        default_factory=list
    )


class AlterReplicaLogDirsRequest(
    Request[AlterReplicaLogDirsResponse], api_key=34, versions="1-2", flexible="2+"
):
    """Request to move replicas between the disks of one broker (KIP-113)."""

    class AlterReplicaLogDir(Struct):
        path: String = field(default="")
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = field(
            default_factory=list
        )

    class AlterReplicaLogDirTopic(Struct):
        name: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = field(default_factory=list)
