"""The lag of a group in records and in seconds, from what the brokers returned. No I/O.

Lag in seconds is the age of the oldest record that is not done. It is the time now minus the
timestamp of the record at the committed offset, or 0 if there is no such record. It is as true as
the timestamps are. CreateTime is the clock of the producers, and LogAppendTime that of the brokers.

Rules:

1. What is unknown is None, and never a guess.
2. A timestamp in the future counts as now, with the flag ``future``.
3. An offset before the log's start counts from the start, with the flag ``offsets-lost``.
4. With read_committed the log ends at its last stable offset.
5. In a share group the oldest record that is not done is unknown, so its age is, too.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kohort.admin._results import AdminResults, GroupDescription, MemberDescription, ShareOffset
from kohort.records import LOG_APPEND_TIME
from kohort.types import NamedTuple, TopicPartition

LagFlag: TypeAlias = Literal["future", "offsets-lost", "no-read"]
TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]


class LogBounds(NamedTuple):
    """Offsets of a log."""

    start: int
    """First offset."""
    end: int
    """Offset after the last record."""
    stable: int
    """Last stable offset, before the first record of an open transaction."""


class OldestRecord(NamedTuple):
    """Timestamp of the oldest record that is not done, in ms, and its type as in a record."""

    timestamp: int
    timestamp_type: int


class PartitionLag(NamedTuple):
    """Progress of a group in a partition."""

    committed: int | None
    """Committed offset, or the start offset in a share group. None without one."""
    start: int
    """First offset of the log."""
    end: int
    """Offset after the last record, or the last stable offset with read_committed."""
    records: int | None
    """Offsets from the committed one to the end. None without a committed offset.

    In a share group it is the number of records that are not done, as far as the brokers report it.
    """
    seconds: float | None
    """Age of the oldest record that is not done; 0 without one, and None if it is unknown."""
    timestamp: int | None
    """Timestamp of that record in ms, or None."""
    timestamp_type: TimestampType | None
    """Clock of the timestamp: ``CreateTime`` is the producer's, ``LogAppendTime`` the broker's."""
    flags: tuple[LagFlag, ...]
    """``future`` for a timestamp after now, ``offsets-lost`` for records that are deleted.

    ``no-read``: ``seconds`` is unknown because the user lacks READ on the topic.
    """
    owner: MemberDescription | None
    """Member that owns the partition, or None. Members of a share group own none."""
    reason: str
    """Why the group does not move there, in a few words."""


class GroupLag(NamedTuple):
    """State of a group, and its progress in each partition that it owns or has committed."""

    group: GroupDescription
    partitions: AdminResults[TopicPartition, PartitionLag]

    @property
    def records(self) -> int | None:
        """Sum of the known lags in records, or None if none is known."""
        known = [each.records for each in self.partitions.values() if each.records is not None]
        return sum(known) if known else None

    @property
    def seconds(self) -> float | None:
        """Largest known lag in seconds, or None if none is known."""
        known = [each.seconds for each in self.partitions.values() if each.seconds is not None]
        return max(known, default=None)


def next_unread(committed: int | None, bounds: LogBounds, end: int) -> int | None:
    """Return the offset of the oldest record that is not done, or None if there is none."""
    if committed is None or committed >= end:
        return None
    return max(committed, bounds.start)


def partition_lag(
    committed: int | None,
    bounds: LogBounds,
    oldest: OldestRecord | None,
    owner: MemberDescription | None,
    now: float,
    *,
    read_committed: bool = False,
    has_members: bool = True,
) -> PartitionLag:
    """Return the progress in a partition. ``now`` has seconds since the epoch.

    ``oldest`` is the record from :func:`next_unread` on, or None if no record follows.
    """
    end = bounds.stable if read_committed else bounds.end
    records = None if committed is None else max(0, end - committed)
    position = next_unread(committed, bounds, end)
    flags: list[LagFlag] = []
    seconds: float | None = None
    if committed is not None and committed < bounds.start:
        flags.append("offsets-lost")
    known = None if oldest is None or oldest.timestamp < 0 else oldest
    if known is not None and position is not None:
        age = now - known.timestamp / 1000
        if age < 0:
            flags.append("future")
        seconds = max(0.0, age)
    elif committed is not None and oldest is None:
        seconds = 0.0
    return PartitionLag(
        committed,
        bounds.start,
        end,
        records,
        seconds,
        None if known is None else known.timestamp,
        None if known is None else _type_name(known.timestamp_type),
        tuple(flags),
        owner,
        _reason(committed, bounds, end, owner, has_members),
    )


def share_lag(at: ShareOffset, bounds: LogBounds, readers: int) -> PartitionLag:
    """Return the progress of a share group in a partition that ``readers`` members have."""
    if bounds.start == bounds.end:  # the brokers report no lag of a log that was never read
        at = at._replace(lag=0)
    seconds = 0.0 if at.lag == 0 else None
    reason = _share_reason(at, bounds, readers)
    return PartitionLag(
        at.start, bounds.start, bounds.end, at.lag, seconds, None, None, (), None, reason
    )


def _share_reason(at: ShareOffset, bounds: LogBounds, readers: int) -> str:
    if at.start is not None and at.start > bounds.end:
        return f"the start is after the end of the log: {bounds.end}"
    if at.lag == 0:
        return "at the end"
    if not readers:
        return "no member has the partition"
    if at.start is None:
        return "no member has acknowledged a record yet"
    return "behind" if at.lag is not None else "the brokers report no lag"


def _type_name(timestamp_type: int) -> TimestampType:
    return "LogAppendTime" if timestamp_type == LOG_APPEND_TIME else "CreateTime"


def _reason(
    committed: int | None,
    bounds: LogBounds,
    end: int,
    owner: MemberDescription | None,
    has_members: bool,
) -> str:
    if owner is None:
        unowned = "no owner" if has_members else "no owner: the group has no members"
        return "at the end" if committed is not None and committed >= bounds.end else unowned
    if committed is None:
        return "the owner has committed nothing"
    if committed >= bounds.end:
        return "at the end"
    if committed < bounds.start:
        return f"offsets lost: the log starts at {bounds.start}"
    if committed >= bounds.stable:
        return f"a transaction is open from offset {bounds.stable} on"
    return "behind"


def stuck_reason(before: PartitionLag | None, after: PartitionLag, seconds: float) -> str:
    """Return the reason after a second look, some seconds after the first one."""
    if after.reason != "behind" or before is None or before.owner is None or after.owner is None:
        return after.reason
    if before.owner.member_id != after.owner.member_id:
        return "behind: the owner changed"
    if before.committed != after.committed:
        return "behind: the owner moves"
    return f"the owner has not committed for {seconds:g} s"
