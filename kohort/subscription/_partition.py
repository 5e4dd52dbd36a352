"""The values of a subscription: the state of a partition, and views of many partitions."""

from __future__ import annotations

import copy
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from kohort.config import reset_duration_ms
from kohort.errors import KafkaError
from kohort.subscription._topic_ids import NO_ID
from kohort.types import NamedTuple, TopicPartition

MAX_EPOCHS = 16
"""Maximum number of changes of a partition's leader epoch that are known."""


class SubscriptionMode(Enum):
    """The source of a consumer's partitions. Only one is possible at a time."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker pattern"
    """A pattern that the brokers evaluate, so that the topics are those of the assignment."""
    MANUAL = "manual"


class _ResetFields(NamedTuple):
    """Fields of a reset. A named tuple has no constants, and a dataclass is slow to import."""

    value: str
    duration_ms: int | None = None
    """The largest age of the first record to read (KIP-1106), or None."""


class OffsetReset(_ResetFields):
    """The rule for partitions without a valid position (``auto_offset_reset``)."""

    __slots__ = ()

    EARLIEST: ClassVar[OffsetReset]
    LATEST: ClassVar[OffsetReset]
    NONE: ClassVar[OffsetReset]

    @property
    def reads_recreated(self) -> bool:
        """True if a recreated topic is read from its beginning. Otherwise an error is raised."""
        return self in (OffsetReset.EARLIEST, OffsetReset.LATEST)

    @classmethod
    def from_option(cls, option: str) -> OffsetReset:
        """Return the rule for a value of the option."""
        return cls(option, reset_duration_ms(option))


OffsetReset.EARLIEST = OffsetReset("earliest")
OffsetReset.LATEST = OffsetReset("latest")
OffsetReset.NONE = OffsetReset("none")


class Watermarks(NamedTuple):
    """The offsets of a partition's log, as in its latest response. -1 means unknown."""

    high_watermark: int = -1
    """The offset after the last replicated record."""
    last_stable_offset: int = -1
    """The offset of the first record of an open transaction, or the high watermark."""
    log_start_offset: int = -1


class NextFetch:
    """The offset at which the next fetch starts. It runs ahead of the caller's position."""

    __slots__ = ("end", "leader_epoch", "offset")

    def __init__(
        self, offset: int | None = None, leader_epoch: int = -1, end: int | None = None
    ) -> None:
        self.offset: int | None = offset
        """The next offset to fetch, at or after the position, or None until it is known."""
        self.leader_epoch: int = leader_epoch
        """The epoch of the last batch that was fetched, or -1."""
        self.end: int | None = end
        """The offset at which fetching ends, or None without an end."""

    @property
    def is_at_end(self) -> bool:
        """True if all records before ``end`` were fetched."""
        return self.end is not None and self.offset is not None and self.offset >= self.end

    def copy(self) -> NextFetch:
        """Return a copy."""
        return NextFetch(self.offset, self.leader_epoch, self.end)


class FetchStatus:
    """The outcome of the latest fetches and look-ups of a partition."""

    __slots__ = ("fetched_at", "last_error", "log_end", "started_at_end", "watermarks", "withheld")

    def __init__(self) -> None:
        self.watermarks: Watermarks | None = None
        """The offsets of the log by the latest response, or None before the first one."""
        self.fetched_at: float | None = None
        """The time of the latest response that names it; see Fetcher.fetched_at()."""
        self.withheld: tuple[int, float] | None = None
        """The offset and time since which responses lack records before the end of the log."""
        self.last_error: KafkaError | None = None
        """The latest error of a fetch or look-up, or None after a success."""
        self.started_at_end: int | None = None
        """The offset at which reading started by the rule "latest", or None."""
        self.log_end: tuple[int, int] | None = None
        """The end of the log that the caller looked up, and the leader epoch of the response."""

    def note_response(self, watermarks: Watermarks, at: float) -> None:
        """Note a response without an error."""
        self.last_error = None
        self.fetched_at = at
        self.watermarks = watermarks

    def note_no_records(self, offset: int | None, watermarks: Watermarks, at: float) -> None:
        """Note that a response with room for more has no records at the offset of the fetch.

        The broker withholds records if its log has more, as a damaged log does.
        """
        end = watermarks.high_watermark
        if 0 <= watermarks.last_stable_offset < end:
            end = watermarks.last_stable_offset  # read_committed does not return later records
        if offset is None or end <= offset:
            self.withheld = None
        elif self.withheld is None or self.withheld[0] != offset:
            self.withheld = offset, at

    def copy(self) -> FetchStatus:
        """Return a copy."""
        found = FetchStatus()
        found.watermarks, found.fetched_at = self.watermarks, self.fetched_at
        found.withheld, found.last_error = self.withheld, self.last_error
        found.started_at_end, found.log_end = self.started_at_end, self.log_end
        return found


class PartitionState:
    """The state of one assigned partition. The subscription's lock guards every field."""

    __slots__ = (
        "consumed",
        "consumed_epoch",
        "epoch",
        "epoch_starts",
        "is_first",
        "is_recreated",
        "is_unsubscribed",
        "leader_epoch",
        "next_fetch",
        "paused_by",
        "pending_revocation",
        "position",
        "reset",
        "status",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, epoch: int) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.epoch: int = epoch
        """A number that assign, seek and reset change. Fetches of another epoch are dropped."""
        self.position: int | None = None
        """The next offset to return to the caller, or None until it is known."""
        self.next_fetch: NextFetch = NextFetch()
        """The offset at which the next fetch starts."""
        self.consumed: int | None = None
        """The position for automatic commits, as of note_consumed()."""
        self.consumed_epoch: int = -1
        self.leader_epoch: int = -1
        """The epoch of the last batch before the position or of the committed offset, or -1."""
        self.epoch_starts: tuple[tuple[int, int], ...] = ()
        """(offset, epoch) where the leader epoch of the returned records has changed."""
        self.paused_by: frozenset[str | None] = frozenset()
        """The owners of the pauses. None is the owner of pause() without a name."""
        self.pending_revocation: bool = False
        """True if the partition is assigned and committed, but no longer fetched or delivered."""
        self.is_unsubscribed: bool = False
        """True from the end of the topic's subscription until its return or the revocation."""
        self.reset: OffsetReset | None = None
        """The rule by which the position must be looked up, or None."""
        self.is_first: bool = False
        """True if the reset gives the first position, because there is no committed offset."""
        self.topic_id: bytes = NO_ID
        """The id of the topic that the position belongs to."""
        self.is_recreated: bool = False
        """True if the topic has another id by now. The position is neither used nor committed."""
        self.status: FetchStatus = FetchStatus()
        """The outcome of the latest fetches and look-ups."""

    @property
    def is_leaving(self) -> bool:
        """True if the partition is still assigned, but will be revoked."""
        return self.pending_revocation or self.is_unsubscribed

    @property
    def paused(self) -> bool:
        """True while any owner pauses the partition."""
        return bool(self.paused_by)

    @property
    def is_deliverable(self) -> bool:
        """True if buffered records may be returned to the caller."""
        return not (self.paused_by or self.pending_revocation or self.is_unsubscribed)

    @property
    def is_fetchable(self) -> bool:
        """True if more records may be fetched."""
        return self.position is not None and not (
            self.paused_by or self.pending_revocation or self.is_unsubscribed or self.is_recreated
        )

    @property
    def awaits_position(self) -> bool:
        """True while neither a position is known nor a reset is pending."""
        return self.position is None and self.reset is None and not self.is_leaving

    @property
    def watermarks(self) -> Watermarks | None:
        """The offsets of the log by the latest response, or None before the first one."""
        return self.status.watermarks

    def fetch_target(self) -> FetchTarget | None:
        """Return the next offset to fetch, or None while the partition must not be fetched."""
        fetch = self.next_fetch
        offset, end = fetch.offset, fetch.end
        if offset is None or not self.is_fetchable or (end is not None and offset >= end):
            return None
        # The class itself would be a call of Python.
        return tuple.__new__(
            FetchTarget,
            (self.topic_partition, self.epoch, offset, fetch.leader_epoch, self.topic_id),
        )

    def move_to(self, offset: int, leader_epoch: int) -> None:
        """Set position and fetch offset to an offset."""
        self.position = self.next_fetch.offset = offset
        self.leader_epoch = self.next_fetch.leader_epoch = leader_epoch
        self.epoch_starts = ((offset - 1, leader_epoch),)
        self.reset = None
        self.is_first = self.is_recreated = False
        self.note_consumed()

    def note_consumed(self) -> None:
        """Note that the caller has processed all records it received."""
        self.consumed, self.consumed_epoch = self.position, self.leader_epoch

    def note_epochs(self, *starts: tuple[int, int]) -> None:
        """Note offsets from which the records have another leader epoch."""
        self.epoch_starts = (*self.epoch_starts, *starts)[-MAX_EPOCHS:]

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before an offset; -1 if it is unknown.

        Never return an earlier epoch than that of the record. The record would look truncated.
        """
        if self.is_recreated:
            return -1
        if self.position is None or offset > self.position:
            # This consumer has not returned the record, but another process may have read it. The
            # leader that gave the end has the record, and its epoch is at least the record's.
            end, epoch = self.status.log_end or (-1, -1)
            return epoch if offset <= end else -1
        if offset == self.position:
            return self.leader_epoch
        starts = reversed(self.epoch_starts)
        return next((epoch for start, epoch in starts if start < offset), -1)

    def copy(self) -> PartitionState:
        """Return a copy that later changes do not affect."""
        found = copy.copy(self)
        found.next_fetch, found.status = self.next_fetch.copy(), self.status.copy()
        return found


class FetchTarget(NamedTuple):
    """The next offset to fetch of a partition."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    leader_epoch: int = -1
    """The leader epoch of the batch before the offset, or -1."""
    topic_id: bytes = NO_ID
    """The id of the topic that the offset belongs to."""


class RecreatedPartition(NamedTuple):
    """A partition with a position in a topic that was deleted and created again."""

    topic_partition: TopicPartition
    epoch: int
    position: int
    old_id: bytes
    new_id: bytes


class PendingReset(NamedTuple):
    """A partition whose position must be looked up."""

    topic_partition: TopicPartition
    epoch: int
    strategy: OffsetReset
    is_first: bool = False
    """True for a first position. Another rule may apply to a new partition."""
    topic_id: bytes = NO_ID
    """The current id of the topic."""


class SubscriptionSnapshot(NamedTuple):
    """An immutable copy of the whole state, for explanations and metrics."""

    mode: SubscriptionMode
    topics: frozenset[str]
    pattern: str | None
    partitions: MappingProxyType[TopicPartition, PartitionState]
