"""The values of a subscription: the state of a partition, and views of many partitions."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from kohort.config import reset_duration_ms
from kohort.errors import KafkaError
from kohort.subscription._history import NO_ID
from kohort.types import TopicPartition


class SubscriptionMode(Enum):
    """The source of a consumer's partitions. Only one is possible at a time."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    MANUAL = "manual"


class _ResetFields(NamedTuple):
    """Fields of a reset."""

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


class PartitionState:
    """The state of one assigned partition. The subscription's lock guards every field."""

    __slots__ = (
        "consumed",
        "consumed_epoch",
        "epoch",
        "fetch_end",
        "fetch_leader_epoch",
        "fetch_offset",
        "fetched_at",
        "high_watermark",
        "is_first",
        "is_recreated",
        "is_unsubscribed",
        "last_error",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "paused",
        "pending_revocation",
        "position",
        "reset",
        "topic_id",
        "topic_partition",
        "withheld",
    )

    def __init__(self, topic_partition: TopicPartition, epoch: int) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.epoch: int = epoch
        """A number that assign, seek and reset change. Fetches of another epoch are dropped."""
        self.position: int | None = None
        """The next offset to return to the caller, or None until it is known."""
        self.fetch_offset: int | None = None
        """The next offset to fetch, at or after the position."""
        self.fetch_end: int | None = None
        """The offset at which fetching ends, or None without an end."""
        self.consumed: int | None = None
        """The position for automatic commits, as of note_consumed()."""
        self.consumed_epoch: int = -1
        self.leader_epoch: int = -1
        """The epoch of the last batch before the position or of the committed offset, or -1."""
        self.fetch_leader_epoch: int = -1
        """The epoch of the last batch that was fetched, or -1."""
        self.paused: bool = False
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
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.fetched_at: float | None = None
        """The time of the latest response that names it; see Fetcher.fetched_at()."""
        self.withheld: tuple[int, float] | None = None
        """The offset and time since which responses lack records before the end of the log."""
        self.last_error: KafkaError | None = None
        """The latest error of a fetch or look-up, or None after a success."""

    @property
    def is_leaving(self) -> bool:
        """True if the partition is still assigned, but will be revoked."""
        return self.pending_revocation or self.is_unsubscribed

    @property
    def is_deliverable(self) -> bool:
        """True if buffered records may be returned to the caller."""
        return not self.paused and not self.is_leaving

    @property
    def is_fetchable(self) -> bool:
        """True if more records may be fetched."""
        return self.position is not None and self.is_deliverable and not self.is_recreated

    @property
    def awaits_position(self) -> bool:
        """True while neither a position is known nor a reset is pending."""
        return self.position is None and self.reset is None and not self.is_leaving

    @property
    def at_fetch_end(self) -> bool:
        """True if all records before ``fetch_end`` were fetched."""
        end, offset = self.fetch_end, self.fetch_offset
        return end is not None and offset is not None and offset >= end

    def fetch_target(self) -> FetchTarget | None:
        """Return the next offset to fetch, or None while the partition must not be fetched."""
        offset = self.fetch_offset
        if offset is None or not self.is_fetchable or self.at_fetch_end:
            return None
        return FetchTarget(
            self.topic_partition, self.epoch, offset, self.fetch_leader_epoch, self.topic_id
        )

    def move_to(self, offset: int, leader_epoch: int) -> None:
        """Set position and fetch offset to an offset."""
        self.position = self.fetch_offset = offset
        self.leader_epoch = self.fetch_leader_epoch = leader_epoch
        self.reset = None
        self.is_first = self.is_recreated = False
        self.note_consumed()

    def note_consumed(self) -> None:
        """Note that the caller has processed all records it received."""
        self.consumed, self.consumed_epoch = self.position, self.leader_epoch


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
