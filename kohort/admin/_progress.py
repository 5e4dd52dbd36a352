"""The requests for the lag of groups: their offsets, the bounds of the logs, and one batch each.

The batch at the committed offset of a lagging partition has the timestamp of its oldest record that
is not done. Holes and control batches lead to the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from kohort.admin._groups import SHARE, describe_group
from kohort.admin._lag import (
    GroupLag,
    LogBounds,
    OldestRecord,
    PartitionLag,
    next_unread,
    partition_lag,
    share_lag,
)
from kohort.admin._offsets import Committed, committed_offsets, log_offsets, partition_error
from kohort.admin._requests import AdminRequests
from kohort.admin._results import AdminResults, GroupDescription, ShareOffset
from kohort.admin._share_offsets import ShareOffsets, start_offsets
from kohort.errors import (
    KafkaError,
    LeaderNotAvailableError,
    ProtocolError,
    TopicAuthorizationFailedError,
    broker_error,
)
from kohort.fetcher import EARLIEST, LATEST
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.records import RecordSet
from kohort.transport import start_soon
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

PURPOSE = "lag"
"""The connections for batches, so that these delay no other request."""
FETCHES_AT_A_TIME = 32
MOST_BATCHES = 100
"""Batches without a record that are passed before the age counts as unknown."""
_LAST_BY_NAME = 12
"""Last version of Fetch with topic names."""

_NOT_READ = ShareOffset(None, None, -1)
_UNKNOWN = OldestRecord(-1, -1)
"""Record whose age is unknown."""


class Place(NamedTuple):
    """A position in a log, and the end to which a reader may read."""

    partition: TopicPartition
    offset: int
    end: int


class _Found(NamedTuple):
    group: GroupDescription
    committed: Committed
    starts: ShareOffsets
    """Start offsets of a share group, which commits none."""

    @property
    def partitions(self) -> set[TopicPartition]:
        """Partitions that members have, or that have an offset."""
        assigned = {tp for member in self.group.members for tp in member.partitions}
        return assigned.union(self.committed, self.starts)


async def group_lag(
    engine: Engine, group_ids: list[str], read_committed: bool, seconds: float
) -> AdminResults[str, GroupLag]:
    requests = await AdminRequests.begin(engine, seconds)

    async def look(group_id: str) -> _Found:
        group = await describe_group(requests, group_id)
        if group.type == SHARE:
            starts = await start_offsets(requests, engine, group_id, None)
            return _Found(group, AdminResults({}, {}), starts)
        committed = await committed_offsets(requests, group_id, None)
        return _Found(group, committed, AdminResults({}, {}))

    groups = await requests.groups(group_ids, look)
    wanted = sorted({tp for found in groups.values() for tp in found.partitions})
    bounds = await _bounds(requests, engine, wanted)
    places = {
        (group_id, tp): Place(tp, offset, _end(bounds[tp], read_committed))
        for group_id, found in groups.items()
        for tp, at in found.committed.items()
        if tp in bounds
        if (offset := next_unread(at.offset, bounds[tp], _end(bounds[tp], read_committed)))
        is not None
    }
    oldest = await _oldest_records(requests, sorted(set(places.values())), read_committed)
    now = (engine.config.wall_clock or time.time)()
    return AdminResults(
        {
            group_id: GroupLag(
                found.group,
                _partitions(group_id, found, bounds, places, oldest, read_committed, now),
            )
            for group_id, found in groups.items()
        },
        groups.errors,
    )


def _end(bounds: LogBounds, read_committed: bool) -> int:
    return bounds.stable if read_committed else bounds.end


def _partitions(
    group_id: str,
    found: _Found,
    bounds: AdminResults[TopicPartition, LogBounds],
    places: Mapping[tuple[str, TopicPartition], Place],
    oldest: AdminResults[Place, OldestRecord | None],
    read_committed: bool,
    now: float,
) -> AdminResults[TopicPartition, PartitionLag]:
    owners = found.group.owners()
    values: dict[TopicPartition, PartitionLag] = {}
    errors: dict[TopicPartition, KafkaError] = {**found.committed.errors, **found.starts.errors}
    for tp in sorted(found.partitions):
        place = places.get((group_id, tp))
        error = bounds.errors.get(tp) or (None if place is None else oldest.errors.get(place))
        is_denied = isinstance(error, TopicAuthorizationFailedError) and tp in bounds
        if error is not None and not is_denied:
            errors[tp] = error
            continue
        if found.group.type == SHARE:
            readers = sum(tp in member.partitions for member in found.group.members)
            start = found.starts.get(tp, _NOT_READ)
            values[tp] = share_lag(start, bounds[tp], readers)
            continue
        at = found.committed.get(tp)
        record = _UNKNOWN if is_denied else None if place is None else oldest[place]
        lag = partition_lag(
            None if at is None else at.offset,
            bounds[tp],
            record,
            owners.get(tp),
            now,
            read_committed=read_committed,
            has_members=bool(found.group.members),
        )
        values[tp] = lag._replace(flags=(*lag.flags, "no-read")) if is_denied else lag
    return AdminResults(values, errors)


async def _bounds(
    requests: AdminRequests, engine: Engine, partitions: Sequence[TopicPartition]
) -> AdminResults[TopicPartition, LogBounds]:
    """Return the bounds of logs. The ends are read first, so that no lag is larger than true."""
    ends = await log_offsets(requests, engine, dict.fromkeys(partitions, LATEST))
    stable = await log_offsets(requests, engine, dict.fromkeys(ends, LATEST), committed=True)
    starts = await log_offsets(requests, engine, dict.fromkeys(stable, EARLIEST))
    values: dict[TopicPartition, LogBounds] = {}
    for tp in starts:
        first, last, last_stable = starts[tp], ends[tp], stable[tp]
        assert first is not None and last is not None and last_stable is not None
        values[tp] = LogBounds(first.offset, last.offset, min(last.offset, last_stable.offset))
    return AdminResults(values, {**ends.errors, **stable.errors, **starts.errors})


async def _oldest_records(
    requests: AdminRequests, places: Sequence[Place], read_committed: bool
) -> AdminResults[Place, OldestRecord | None]:
    """Return the first record from each place on, or None if no record follows."""
    at_a_time = anyio.Semaphore(FETCHES_AT_A_TIME)

    async def attempt(
        remaining: Sequence[Place],
    ) -> Mapping[Place, OldestRecord | KafkaError | None]:
        found: dict[Place, OldestRecord | KafkaError | None] = {}

        async def one(place: Place) -> None:
            async with at_a_time:
                try:
                    found[place] = await _oldest(requests, place, read_committed)
                except KafkaError as error:
                    found[place] = error

        async with anyio.create_task_group() as tasks:
            for place in remaining:
                start_soon(tasks, one, place)
        return found

    return await requests.each(places, attempt, "the read of the oldest records")


async def _oldest(
    requests: AdminRequests, place: Place, read_committed: bool
) -> OldestRecord | None:
    offset = place.offset
    for _ in range(MOST_BATCHES):
        if offset >= place.end:
            return None
        partition = await _fetch(requests, place.partition, offset, read_committed)
        aborted = [
            (each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()
        ]
        batches = RecordSet(
            partition.records if partition.records is not None else b"",
            offset,
            aborted=aborted if read_committed else (),
        )
        if not batches.has_bytes:
            return None  # the rest of the log is empty, or was deleted meanwhile
        batches.read(1)
        if batches.records:
            record = batches.records[0]
            return OldestRecord(record.timestamp, record.timestamp_type)
        if batches.next_offset <= offset:
            raise ProtocolError(f"the broker returned no whole batch of {place.partition}")
        offset = batches.next_offset
    return _UNKNOWN


async def _fetch(
    requests: AdminRequests, tp: TopicPartition, offset: int, read_committed: bool
) -> FetchResponse.PartitionData:
    """Fetch one batch: a broker returns the first one whole, whatever its size."""
    leader = requests.cluster.metadata.leader(tp)
    if leader is None:
        raise LeaderNotAvailableError(f"{tp.topic}-{tp.partition} has no leader at present")
    message = FetchRequest(
        isolation_level=1 if read_committed else 0,
        topics=[
            FetchRequest.FetchTopic(
                topic=tp.topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=tp.partition, fetch_offset=offset, partition_max_bytes=1
                    )
                ],
            )
        ],
    )
    response = await requests.cluster.request(
        message,
        node=leader.node,
        purpose=PURPOSE,
        timeout_ms=requests.milliseconds,
        max_version=_LAST_BY_NAME,
    )
    if response.error_code:
        raise broker_error(response.error_code)
    partition = response.responses[0].partitions[0]
    if partition.error_code:
        raise partition_error("the read of the oldest record", tp, partition.error_code, "READ")
    return partition
