"""Messages, partitions and errors of confluent-kafka: its own classes where it is installed.

A message that a consumer returns is the record of kohort itself with another class. Change of a
class copies nothing, so ``consume()`` costs little more than ``poll()`` of kohort.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kohort import ConsumerRecord, OffsetAndMetadata
from kohort import TopicPartition as NativePartition
from kohort.compat._peer import peer_name
from kohort.compat.confluent import _alone
from kohort.compat.confluent._alone import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    ThrottleEvent,
    TopicPartition,
)
from kohort.records import MessageRecord, as_message_type, turn_into

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "KafkaError",
    "KafkaException",
    "Message",
    "ThrottleEvent",
    "TopicPartition",
    "failure",
    "native",
    "natives",
    "offset_of",
    "partition",
    "to_commit",
    "to_messages",
]

OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2

_MODULE = "confluent_kafka.cimpl"
if not TYPE_CHECKING:
    KafkaError = peer_name(_MODULE, "KafkaError") or KafkaError
    KafkaException = peer_name(_MODULE, "KafkaException") or KafkaException
    Message = peer_name(_MODULE, "Message") or Message
    ThrottleEvent = peer_name("confluent_kafka", "ThrottleEvent") or ThrottleEvent
    TopicPartition = peer_name(_MODULE, "TopicPartition") or TopicPartition

HAS_PEER: Final = Message is not _alone.Message
_record_type: Any = ConsumerRecord
_offset_of = _record_type.offset.__get__


@as_message_type
class ConsumedMessage(MessageRecord):
    """A record with the methods of a Message, which it counts as for ``isinstance()``.

    It has no constructor: :func:`to_messages` turns records into messages.
    """

    __module__ = "kohort.compat.confluent"
    __slots__ = ()

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type[Message]:
            return Message

    def _arguments(self) -> tuple[Any, ...]:
        """Return the arguments that make an equal Message."""
        return (
            self.topic(),
            self.partition(),
            self.offset(),
            self.key(),
            self.value(),
            self.headers(),
            self.error(),
            self.timestamp(),
            -1.0,
            self._origin[0],
        )

    def __len__(self) -> int:
        value = self.value()
        return 0 if value is None else len(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ConsumerRecord):
            return self._arguments() == getattr(other, "_arguments", tuple)()
        if isinstance(other, Message):
            return Message(*self._arguments()) == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # its parts can be replaced

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, self._arguments()

    def __repr__(self) -> str:
        return f"<Message {self.topic()}-{self.partition()} at {self.offset()}>"


def to_messages(records: list[Any]) -> None:
    """Turn records into messages, in place."""
    turn_into(ConsumedMessage, records)


def offset_of(record: Any) -> int:
    """Return the offset of a record, which may be a message already."""
    found: int = _offset_of(record)
    return found


class FailedPartition(TopicPartition):
    """A TopicPartition with an error, which Python cannot set on confluent-kafka's own."""

    __module__ = "kohort.compat.confluent"
    error: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    __hash__ = TopicPartition.__hash__


def partition(
    topic: str,
    number: int,
    offset: int = OFFSET_INVALID,
    *,
    metadata: str | None = None,
    leader_epoch: int = -1,
    error: KafkaError | None = None,
) -> TopicPartition:
    """Return a TopicPartition, with an error if there is one."""
    more: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    if leader_epoch >= 0:
        more["leader_epoch"] = leader_epoch
    if error is None:
        return TopicPartition(topic, number, offset, **more)
    failed = FailedPartition(topic, number, offset, **more)
    failed.error = error
    return failed


def native(tp: TopicPartition) -> NativePartition:
    """Return kohort's partition. Raise TypeError for anything else than a TopicPartition."""
    if not isinstance(tp, TopicPartition):
        raise TypeError(f"expected {TopicPartition.__name__}")
    return NativePartition(tp.topic, tp.partition)


def natives(partitions: Iterable[TopicPartition]) -> list[NativePartition]:
    """Return kohort's partitions of a list. Raise TypeError if it is none."""
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    return [native(tp) for tp in partitions]


def to_commit(tp: TopicPartition) -> OffsetAndMetadata:
    """Return the offset of a partition as kohort commits it.

    The zero byte after its metadata is confluent-kafka's, which reads too far without it.
    """
    epoch = getattr(tp, "leader_epoch", None)
    metadata = "" if tp.metadata is None else f"{tp.metadata}\0"
    return OffsetAndMetadata(tp.offset, metadata, -1 if epoch is None else epoch)


def committed_metadata(at: OffsetAndMetadata) -> str | None:
    """Return the metadata of a committed offset without its zero byte, or None without any."""
    return at.metadata.removesuffix("\0") if at.metadata else None


def failure(name: str, reason: str) -> KafkaException:
    """Return an exception with the code of a name."""
    return KafkaException(KafkaError(getattr(KafkaError, name), reason))
