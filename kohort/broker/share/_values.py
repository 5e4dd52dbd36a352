"""Values of share-partitions: states of records, acknowledgements and settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kohort.errors import ErrorCode
from kohort.types import NamedTuple


class RecordState(IntEnum):
    """State of a record in a share-partition, with the numbers of Kafka's records.

    ``ARCHIVING``: the record is over, and its dead letter is not written yet.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """True for a record that is never delivered again and needs nothing more."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AckType(IntEnum):
    """Types of acknowledgements. ``GAP`` is for an offset without a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareKey(NamedTuple):
    """A partition of a topic, as one group sees it."""

    group_id: str
    topic_id: bytes
    partition: int


class Ack(NamedTuple):
    """Acknowledgement of a range: one type for all of its offsets, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]

    def type_of(self, offset: int) -> int:
        """Return the type for an offset of the range."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class Acquired(NamedTuple):
    """Offsets that a member has acquired, all with the same delivery count."""

    first: int
    last: int
    deliveries: int


class StateBatch(NamedTuple):
    """Offsets with one state and one delivery count, as ``__share_group_state`` stores them."""

    first: int
    last: int
    state: int
    deliveries: int


class Letter(NamedTuple):
    """An offset whose record goes to the dead letters of the group."""

    offset: int
    deliveries: int
    message: str


class ReadBatch(NamedTuple):
    """Offsets of a record batch that was read from the log.

    ``is_aborted``: its transaction was aborted, and the group reads committed records only.
    """

    first: int
    last: int
    is_aborted: bool = False


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of a group for its share-partitions, read at each use."""

    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    renews: bool = True
    has_letters: bool = False
    """True if the group has a topic for dead letters."""


class AckError(Exception):
    """Refusal of all acknowledgements of a partition in a request."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code: ErrorCode = code
        self.message: str | None = message
