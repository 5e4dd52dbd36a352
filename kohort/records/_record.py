"""``ConsumerRecord``: what poll() hands out, and what batches decode to."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""The headers of a record, in order; a name may occur more than once."""

Origin: TypeAlias = tuple[int, int, int | None]
"""What the records of a batch have in common: leader epoch, timestamp type, checksum."""

NO_TIMESTAMP = -1
NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

_FIELDS = (
    "topic",
    "partition",
    "leader_epoch",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "serialized_header_size",
)


class RecordDraft(Generic[K, V]):
    """A record while it is being filled; it becomes a ConsumerRecord by change of its class.

    Storing into slots is several times as fast as anything that goes round a ``__setattr__`` that
    refuses, so the attributes live here and the refusal in the subclass, which adds no slot. There
    are few of them, because each costs time in each record: what all records of a batch have in
    common and is seldom read is one tuple, and sizes that follow from the bytes are not kept.
    """

    __slots__ = (
        "_origin",
        "_sizes",
        "headers",
        "key",
        "offset",
        "partition",
        "timestamp",
        "topic",
        "value",
    )

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: Headers
    _origin: Origin
    _sizes: tuple[int, int, int] | None
    """Serialized sizes of key, value, headers; None: those of the key and value, no headers."""


class ConsumerRecord(RecordDraft[K, V]):
    """One record as a consumer gets it; immutable, compared by value, hashed by its place.

    ``timestamp`` is in milliseconds since the epoch, -1 if unknown; ``timestamp_type`` 0 for
    CreateTime, 1 for LogAppendTime, -1 in message format 0, which has no timestamps;
    ``leader_epoch`` -1 if unknown. The sizes are those of the serialized bytes, -1 for a null key
    or value and for no headers. ``checksum`` is that of a message of format 0 or 1, else None:
    records have had none of their own since format 2.
    """

    __module__ = "kohort"

    __slots__ = ()

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        offset: int,
        timestamp: int = NO_TIMESTAMP,
        timestamp_type: int = CREATE_TIME,
        key: K | None = None,
        value: V | None = None,
        headers: Headers = (),
        leader_epoch: int = -1,
        checksum: int | None = None,
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
        serialized_header_size: int = -1,
    ) -> None:
        put = object.__setattr__
        put(self, "topic", topic)
        put(self, "partition", partition)
        put(self, "offset", offset)
        put(self, "timestamp", timestamp)
        put(self, "key", key)
        put(self, "value", value)
        put(self, "headers", headers)
        put(self, "_origin", (leader_epoch, timestamp_type, checksum))
        sizes = (serialized_key_size, serialized_value_size, serialized_header_size)
        put(self, "_sizes", sizes)

    @property
    def leader_epoch(self) -> int:
        """Of the leader that appended the batch; -1 if unknown."""
        return self._origin[0]

    @property
    def timestamp_type(self) -> int:
        """0: CreateTime, 1: LogAppendTime, -1: there is no timestamp."""
        return self._origin[1]

    @property
    def checksum(self) -> int | None:
        """Of a message of format 0 or 1, else None: since format 2 the batch has one."""
        return self._origin[2]

    @property
    def serialized_key_size(self) -> int:
        """Bytes; -1 for null."""
        return _size(self.key) if self._sizes is None else self._sizes[0]

    @property
    def serialized_value_size(self) -> int:
        """Bytes; -1 for null."""
        return _size(self.value) if self._sizes is None else self._sizes[1]

    @property
    def serialized_header_size(self) -> int:
        """Bytes of names and values; -1 without headers."""
        return -1 if self._sizes is None else self._sizes[2]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ConsumerRecord is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ConsumerRecord is immutable: cannot delete {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        # A deserialized value may well be a dict, and equal records are at the same place.
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, _values(self)

    def __replace__(self, **changes: Any) -> ConsumerRecord[Any, Any]:
        """What ``copy.replace`` calls (Python 3.13)."""
        return ConsumerRecord(**{name: getattr(self, name) for name in _FIELDS} | changes)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_short(getattr(self, name))}" for name in _FIELDS)
        return f"ConsumerRecord({fields})"


Record: TypeAlias = ConsumerRecord[bytes, bytes]
"""A record with its key and value as they were in the batch."""


def restore(*values: Any) -> ConsumerRecord[Any, Any]:
    """A record from all of its values in the order of the slots (what unpickling calls)."""
    return ConsumerRecord(**dict(zip(_FIELDS, values, strict=True)))


def deserialized(record: Record, key: K | None, value: V | None) -> ConsumerRecord[K, V]:
    """The same record with its key and value deserialized; the sizes stay those of the bytes."""
    draft: RecordDraft[K, V] = RecordDraft()
    draft.topic = record.topic
    draft.partition = record.partition
    draft.offset = record.offset
    draft.timestamp = record.timestamp
    draft.key = key
    draft.value = value
    draft.headers = record.headers
    draft._origin = record._origin
    draft._sizes = record._sizes or (_size(record.key), _size(record.value), -1)
    draft.__class__ = ConsumerRecord
    return cast("ConsumerRecord[K, V]", draft)


def _size(data: Any) -> int:
    return -1 if data is None else len(data)


def _values(record: RecordDraft[Any, Any]) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in _FIELDS)


def _short(value: object) -> str:
    """repr of a value, cut in the middle where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}...{text[-30:]}"
