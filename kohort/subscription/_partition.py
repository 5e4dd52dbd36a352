"""The values of a subscription: one partition's state, and what is read out of many."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from kohort.config import reset_duration_ms
from kohort.errors import KafkaError
from kohort.subscription._history import NO_ID
from kohort.types import TopicPartition


class SubscriptionMode(Enum):
    """How partitions come to a consumer; one way at a time."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    MANUAL = "manual"


class _ResetFields(NamedTuple):
    """Fields of a reset."""

    value: str
    duration_ms: int | None = None
    """At the first record that is not older than this (KIP-1106)."""


class OffsetReset(_ResetFields):
    """Where to start when there is no usable position (``auto_offset_reset``)."""

    __slots__ = ()

    EARLIEST: ClassVar[OffsetReset]
    LATEST: ClassVar[OffsetReset]
    NONE: ClassVar[OffsetReset]

    @property
    def reads_recreated(self) -> bool:
        """True if a topic that was recreated is read from its beginning; else that is an error."""
        return self in (OffsetReset.EARLIEST, OffsetReset.LATEST)

    @classmethod
    def from_option(cls, option: str) -> OffsetReset:
        """From the option as it is in the configuration."""
        return cls(option, reset_duration_ms(option))


OffsetReset.EARLIEST = OffsetReset("earliest")
OffsetReset.LATEST = OffsetReset("latest")
OffsetReset.NONE = OffsetReset("none")


class PartitionState:
    """One assigned partition. Every field belongs under the subscription's lock."""

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
        """Raised by assign, seek and reset; what was fetched under another epoch is dropped."""
        self.position: int | None = None
        """The next offset to hand to the caller; None until it is known."""
        self.fetch_offset: int | None = None
        """The next offset to ask a broker for; runs ahead of the position."""
        self.fetch_end: int | None = None
        """From here on nothing is asked for; None: without end."""
        self.consumed: int | None = None
        """The position that may be committed automatically; see note_consumed()."""
        self.consumed_epoch: int = -1
        self.leader_epoch: int = -1
        """Epoch of the last batch before the position, or of the committed offset; -1 unknown."""
        self.fetch_leader_epoch: int = -1
        """The epoch of the last batch that was fetched; -1 unknown."""
        self.paused: bool = False
        self.pending_revocation: bool = False
        """Still owned, its position still commits, but no longer fetched or delivered."""
        self.is_unsubscribed: bool = False
        """True if its topic is no longer subscribed to. Stays until it is again, or is revoked."""
        self.reset: OffsetReset | None = None
        """The position is to be looked up by this rule."""
        self.is_first: bool = False
        """The reset gives the first position, for lack of a committed offset."""
        self.topic_id: bytes = NO_ID
        """The id of the topic that the position belongs to."""
        self.is_recreated: bool = False
        """The topic has another id by now: the position is neither fetched at nor committed."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.fetched_at: float | None = None
        """Time of the latest response about it, by the core's clock; see Fetcher.fetched_at()."""
        self.withheld: tuple[int, float] | None = None
        """The offset from which on answers bring nothing though the log goes on, and since when."""
        self.last_error: KafkaError | None = None
        """The latest error of a fetch or look-up; None again after the next success."""

    @property
    def is_leaving(self) -> bool:
        """Still owned, but not for long."""
        return self.pending_revocation or self.is_unsubscribed

    @property
    def is_deliverable(self) -> bool:
        """What is there of it may be handed to the caller."""
        return not self.paused and not self.is_leaving

    @property
    def is_fetchable(self) -> bool:
        """More of it may be asked for."""
        return self.position is not None and self.is_deliverable and not self.is_recreated

    @property
    def awaits_position(self) -> bool:
        """True while neither a position is known nor a reset is pending."""
        return self.position is None and self.reset is None and not self.is_leaving

    @property
    def at_fetch_end(self) -> bool:
        """All that is wanted of it was fetched."""
        end, offset = self.fetch_end, self.fetch_offset
        return end is not None and offset is not None and offset >= end

    def fetch_target(self) -> FetchTarget | None:
        """The next offset to fetch; None while the partition must not be fetched."""
        offset = self.fetch_offset
        if offset is None or not self.is_fetchable or self.at_fetch_end:
            return None
        return FetchTarget(
            self.topic_partition, self.epoch, offset, self.fetch_leader_epoch, self.topic_id
        )

    def move_to(self, offset: int, leader_epoch: int) -> None:
        """Start anew at an offset, with nothing fetched beyond it."""
        self.position = self.fetch_offset = offset
        self.leader_epoch = self.fetch_leader_epoch = leader_epoch
        self.reset = None
        self.is_first = self.is_recreated = False
        self.note_consumed()

    def note_consumed(self) -> None:
        """The caller is done with all that it was given."""
        self.consumed, self.consumed_epoch = self.position, self.leader_epoch


class FetchTarget(NamedTuple):
    """What to ask for next of a partition that may be fetched."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    leader_epoch: int = -1
    """Of the batch before the offset; -1 unknown."""
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
    """A partition whose position is to be looked up."""

    topic_partition: TopicPartition
    epoch: int
    strategy: OffsetReset
    is_first: bool = False
    """It is the first position: a new partition may go by another rule."""
    topic_id: bytes = NO_ID
    """The id that the topic has now."""


class SubscriptionSnapshot(NamedTuple):
    """An immutable copy of everything, for explanations and metrics."""

    mode: SubscriptionMode
    topics: frozenset[str]
    pattern: str | None
    partitions: MappingProxyType[TopicPartition, PartitionState]
