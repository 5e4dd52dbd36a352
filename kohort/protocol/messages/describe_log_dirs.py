"""DescribeLogDirs, API key 35: sizes of the logs on a broker's disks."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int16, Int32, Int64, String


class DescribeLogDirsResponse(Response, api_key=35, versions="1-5", flexible="2+"):
    """Response to :class:`DescribeLogDirsRequest`."""

    class DescribeLogDirsResult(Struct):
        error_code: Int16 = field(default=0)
        log_dir: String = field(default="")
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = field(default_factory=list)
        total_bytes: Int64 = field("4+", default=-1, ignorable=True)
        usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
        is_cordoned: Bool = field("5+", default=False, ignorable=True)

    class DescribeLogDirsTopic(Struct):
        name: String = field(default="")
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = field(
            default_factory=list
        )

    class DescribeLogDirsPartition(Struct):
        partition_index: Int32 = field(default=0)
        partition_size: Int64 = field(default=0)
        offset_lag: Int64 = field(default=0)
        is_future_key: Bool = field(default=False)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = field(default_factory=list)


class DescribeLogDirsRequest(
    Request[DescribeLogDirsResponse], api_key=35, versions="1-5", flexible="2+"
):
    """Sizes of the logs on a broker's disks."""

    class DescribableLogDirTopic(Struct):
        topic: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = field(
        nullable="0+", default_factory=list
    )
