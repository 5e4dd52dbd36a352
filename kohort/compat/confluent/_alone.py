"""Values and errors for where confluent-kafka is not installed, of the same shape."""

from __future__ import annotations

from functools import total_ordering
from typing import TYPE_CHECKING, Any, Final

from kohort.errors import ErrorCode

OFFSET_INVALID: Final = -1001

LOCAL: dict[str, tuple[int, str]] = {
    "_BAD_MSG": (-199, "Local: Bad message format"),
    "_BAD_COMPRESSION": (-198, "Local: Invalid compressed data"),
    "_DESTROY": (-197, "Local: Broker handle destroyed for termination"),
    "_FAIL": (-196, "Local: Communication failure with broker"),
    "_TRANSPORT": (-195, "Local: Broker transport failure"),
    "_CRIT_SYS_RESOURCE": (-194, "Local: Critical system resource failure"),
    "_RESOLVE": (-193, "Local: Host resolution failure"),
    "_MSG_TIMED_OUT": (-192, "Local: Message timed out"),
    "_PARTITION_EOF": (-191, "Broker: No more messages"),
    "_UNKNOWN_PARTITION": (-190, "Local: Unknown partition"),
    "_FS": (-189, "Local: File or filesystem error"),
    "_UNKNOWN_TOPIC": (-188, "Local: Unknown topic"),
    "_ALL_BROKERS_DOWN": (-187, "Local: All broker connections are down"),
    "_INVALID_ARG": (-186, "Local: Invalid argument or configuration"),
    "_TIMED_OUT": (-185, "Local: Timed out"),
    "_QUEUE_FULL": (-184, "Local: Queue full"),
    "_ISR_INSUFF": (-183, "Local: ISR count insufficient"),
    "_NODE_UPDATE": (-182, "Local: Broker node update"),
    "_SSL": (-181, "Local: SSL error"),
    "_WAIT_COORD": (-180, "Local: Waiting for coordinator"),
    "_UNKNOWN_GROUP": (-179, "Local: Unknown group"),
    "_IN_PROGRESS": (-178, "Local: Operation in progress"),
    "_PREV_IN_PROGRESS": (-177, "Local: Previous operation in progress"),
    "_EXISTING_SUBSCRIPTION": (-176, "Local: Existing subscription"),
    "_ASSIGN_PARTITIONS": (-175, "Local: Assign partitions"),
    "_REVOKE_PARTITIONS": (-174, "Local: Revoke partitions"),
    "_CONFLICT": (-173, "Local: Conflicting use"),
    "_STATE": (-172, "Local: Erroneous state"),
    "_UNKNOWN_PROTOCOL": (-171, "Local: Unknown protocol"),
    "_NOT_IMPLEMENTED": (-170, "Local: Not implemented"),
    "_AUTHENTICATION": (-169, "Local: Authentication failure"),
    "_NO_OFFSET": (-168, "Local: No offset stored"),
    "_OUTDATED": (-167, "Local: Outdated"),
    "_TIMED_OUT_QUEUE": (-166, "Local: Timed out in queue"),
    "_UNSUPPORTED_FEATURE": (-165, "Local: Required feature not supported by broker"),
    "_WAIT_CACHE": (-164, "Local: Awaiting cache update"),
    "_INTR": (-163, "Local: Operation interrupted"),
    "_KEY_SERIALIZATION": (-162, "Local: Key serialization error"),
    "_VALUE_SERIALIZATION": (-161, "Local: Value serialization error"),
    "_KEY_DESERIALIZATION": (-160, "Local: Key deserialization error"),
    "_VALUE_DESERIALIZATION": (-159, "Local: Value deserialization error"),
    "_PARTIAL": (-158, "Local: Partial response"),
    "_READ_ONLY": (-157, "Local: Read-only object"),
    "_NOENT": (-156, "Local: No such entry"),
    "_UNDERFLOW": (-155, "Local: Read underflow"),
    "_INVALID_TYPE": (-154, "Local: Invalid type"),
    "_RETRY": (-153, "Local: Retry operation"),
    "_PURGE_QUEUE": (-152, "Local: Purged in queue"),
    "_PURGE_INFLIGHT": (-151, "Local: Purged in flight"),
    "_FATAL": (-150, "Local: Fatal error"),
    "_INCONSISTENT": (-149, "Local: Inconsistent state"),
    "_GAPLESS_GUARANTEE": (-148, "Local: Gap-less ordering would not be guaranteed if proceeding"),
    "_MAX_POLL_EXCEEDED": (
        -147,
        "Local: Maximum application poll interval (max.poll.interval.ms) exceeded",
    ),
    "_UNKNOWN_BROKER": (-146, "Local: Unknown broker"),
    "_NOT_CONFIGURED": (-145, "Local: Functionality not configured"),
    "_FENCED": (-144, "Local: This instance has been fenced by a newer instance"),
    "_APPLICATION": (-143, "Local: Application generated error"),
    "_ASSIGNMENT_LOST": (-142, "Local: Group partition assignment lost"),
    "_NOOP": (-141, "Local: No operation performed"),
    "_AUTO_OFFSET_RESET": (-140, "Local: No offset to automatically reset to"),
    "_LOG_TRUNCATION": (-139, "Local: Partition log truncation detected"),
    "_INVALID_DIFFERENT_RECORD": (
        -138,
        "Local: an invalid record in the same batch caused the failure of this message too",
    ),
    "_DESTROY_BROKER": (-137, "Local: Broker handle destroyed without termination"),
}
"""Errors of the client itself by name: the code, and the text of confluent-kafka."""

_RENAMED: Final = {
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "NONE": "NO_ERROR",
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "INVALID_FETCH_SIZE": "INVALID_MSG_SIZE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "STALE_CONTROLLER_EPOCH": "STALE_CTRL_EPOCH",
    "INVALID_TOPIC_EXCEPTION": "TOPIC_EXCEPTION",
}
_CODES: Final = {
    **{name: code for name, (code, _) in LOCAL.items()},
    **{_RENAMED.get(each.name, each.name): int(each) for each in ErrorCode},
}
_NAMES: Final = {code: name for name, code in _CODES.items()}


if TYPE_CHECKING:

    class _Coded(type):
        """Type of KafkaError, which has the codes by their names."""

        def __getattr__(cls, name: str) -> int: ...

else:
    _Coded = type


@total_ordering
class KafkaError(metaclass=_Coded):
    """Error or event with a code. It is equal to its code, and to errors of the same code."""

    __module__ = "kohort.compat.confluent"

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = error
        self._reason = reason
        self._flags = (fatal, retriable, txn_requires_abort)

    def code(self) -> int:
        """Return the code of the error."""
        return self._code

    def name(self) -> str:
        """Return the name of the code."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """Return the text of the error."""
        if self._reason is not None:
            return self._reason
        name = self.name()
        return LOCAL[name][1] if name in LOCAL else f"Broker: {name}"

    def fatal(self) -> bool:
        """Return True if the client cannot continue."""
        return self._flags[0]

    def retriable(self) -> bool:
        """Return True if the operation may be repeated."""
        return self._flags[1]

    def txn_requires_abort(self) -> bool:
        """Return True if the transaction must be aborted."""
        return self._flags[2]

    def __repr__(self) -> str:  # type: ignore[valid-type]  # the method str() hides the type
        fatal = "FATAL," if self.fatal() else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, KafkaError) else other)

    def __lt__(self, other: Any) -> bool:
        less: bool = self._code < (other._code if isinstance(other, KafkaError) else other)
        return less

    def __hash__(self) -> int:
        return self._code


for _name, _code in _CODES.items():
    setattr(KafkaError, _name, _code)


class KafkaException(Exception):
    """Exception whose first argument is a KafkaError."""

    __module__ = "kohort.compat.confluent"


@total_ordering
class TopicPartition:
    """Partition of a topic with an offset. It is compared by topic and partition."""

    __module__ = "kohort.compat.confluent"

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic: str = topic
        self.partition: int = partition
        self.offset: int = offset
        self.metadata: str | None = metadata
        self.leader_epoch: int | None = leader_epoch
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},"
            f"offset={self.offset},leader_epoch={self.leader_epoch},error={self.error}}}"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))


class ThrottleEvent:
    """Delay of a response by a quota of a broker."""

    __module__ = "kohort.compat.confluent"

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name: str = broker_name
        self.broker_id: int = broker_id
        self.throttle_time: float = throttle_time

    def __str__(self) -> str:
        milliseconds = int(self.throttle_time * 1000)
        return f"{self.broker_name}/{self.broker_id} throttled for {milliseconds} ms"


class Message:  # noqa: PLW1641  # its parts can be replaced
    """Record, or an error in place of one, with methods for its parts."""

    __module__ = "kohort.compat.confluent"

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: Any = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = None if partition is None or partition < 0 else partition
        self._offset = None if offset is None or offset < 0 else offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp or (0, 0)
        self._latency = None if latency is None or latency < 0 else latency
        self._leader_epoch = None if leader_epoch is None or leader_epoch < 0 else leader_epoch
        self._delivery_count = delivery_count if (delivery_count or 0) > 0 else None

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the number of the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset."""
        return self._offset

    def key(self) -> Any:
        """Return the key."""
        return self._key

    def value(self) -> Any:
        """Return the value."""
        return self._value

    deserialized_key = key
    deserialized_value = value

    def headers(self) -> Any:
        """Return the headers as a list of pairs, or None without headers."""
        return self._headers

    def error(self) -> Any:
        """Return the error, or None for a record."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and the timestamp in milliseconds."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return None, because only produced messages have a latency."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader, or None if it is unknown."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return the number of deliveries in a share group, or None."""
        return self._delivery_count

    def set_topic(self, topic: str | None) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_error(self, error: Any) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and vars(self) == vars(other)
