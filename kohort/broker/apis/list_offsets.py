"""ListOffsets (API 2), versions 1-11.

Version 2 adds the isolation level, version 4 leader epochs. These timestamps are special:

- -1 is the end, and -2 the start.
- -3 is the record of the largest timestamp, since version 7.
- -4 is the start of the local log, since version 8.
- -5 is the end of the tiered log, since version 9.
- -6 is the start of records to be tiered, since version 11.

Nothing is tiered here. A timestamp after all records gets offset -1 without an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import is_visible
from kohort.broker.cluster._topics import Partition
from kohort.broker.log import TimestampedOffset
from kohort.errors import ErrorCode
from kohort.protocol.messages import ListOffsetsRequest, ListOffsetsResponse

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING = range(-1, -7, -1)
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _PENDING: 11}

_READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, _READ_COMMITTED)

_Requested = ListOffsetsRequest.ListOffsetsPartition
_Result = ListOffsetsResponse.ListOffsetsPartitionResponse


@serves(ListOffsetsRequest, (1, 11))
async def list_offsets(ctx: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics: dict[str, list[_Requested]] = {}
    for topic in request.topics:
        topics.setdefault(topic.name, []).extend(topic.partitions)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=name, partitions=_topic(ctx, name, partitions, request.isolation_level)
            )
            for name, partitions in topics.items()
        ]
    )


def _topic(
    ctx: Context, name: str, partitions: Sequence[_Requested], isolation_level: int
) -> list[_Result]:
    """Return one result for each partition; a partition that is requested twice is refused."""
    times = Counter(requested.partition_index for requested in partitions)
    once = {requested.partition_index: requested for requested in partitions}
    if not is_visible(ctx, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [_Result(partition_index=index, error_code=error) for index in once]
    if isolation_level not in _ISOLATION_LEVELS:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        return [_Result(partition_index=index, error_code=error) for index in once]
    committed = isolation_level == _READ_COMMITTED
    return [
        _partition(ctx, name, requested, committed)
        if times[index] == 1
        else _Result(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
        for index, requested in once.items()
    ]


def _partition(ctx: Context, name: str, requested: _Requested, committed: bool) -> _Result:
    topic = ctx.broker.cluster.topics.get(name)
    found = ctx.broker.led_partition(
        topic, requested.partition_index, requested.current_leader_epoch
    )
    if isinstance(found, ErrorCode):
        return _Result(partition_index=requested.partition_index, error_code=found)
    if requested.timestamp < _PENDING or ctx.version < _SINCE.get(requested.timestamp, 0):
        return _Result(partition_index=found.index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    offset = _look_up(found, requested.timestamp, committed)
    if offset is None:
        return _Result(partition_index=found.index)
    return _Result(
        partition_index=found.index,
        offset=offset.offset,
        timestamp=offset.timestamp,
        leader_epoch=offset.leader_epoch if ctx.version >= 4 else -1,
    )


def _look_up(partition: Partition, timestamp: int, committed: bool) -> TimestampedOffset | None:
    log = partition.log
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == _LATEST:
        return TimestampedOffset(end, -1, partition.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampedOffset(log.start_offset, -1, log.epochs.epoch_of(log.start_offset))
    if timestamp in (_LATEST_TIERED, _PENDING):
        return None
    if timestamp == _MAX_TIMESTAMP:
        found = log.max_timestamp()
    else:
        found = log.offset_for_time(timestamp)
    return None if found is None or found.offset >= end else found
