"""ConsumerRecord, which batches decode to and poll() returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar

from kohort.records._compiled import compiled_module
from kohort.types import NamedTuple

if TYPE_CHECKING:
    import typing_extensions  # with defaults of type variables, as in Python 3.13

    K = typing_extensions.TypeVar("K", default=Any)
    V = typing_extensions.TypeVar("V", default=Any)
else:
    K, V = TypeVar("K"), TypeVar("V")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Headers of a record, in order. A name may occur more than once."""

Origin: TypeAlias = tuple[int, int, int | None]
"""Values that the records of a batch share: leader epoch, timestamp type, checksum."""

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


class SizesAndBytes(NamedTuple):
    """Serialized sizes of a record, with the bytes of its key and value for a dead letter."""

    key_size: int
    value_size: int
    header_size: int
    key: bytes | None
    value: bytes | None


class RecordFields(Generic[K, V]):
    """The slots of a record. Their annotations are resolved in this module.

    There are few slots, because each costs time in each record. One tuple has the seldom-read
    values that all records of a batch share, and sizes that follow from the bytes are not stored.
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
    _sizes: tuple[int, int, int] | SizesAndBytes | None
    """Serialized sizes of key, value and headers, or None to use key and value without headers."""


class ConsumerRecord(RecordFields[K, V]):
    """A record, immutable, compared by value and hashed by topic, partition and offset.

    - ``timestamp`` is in milliseconds since the epoch, or -1 if unknown.
    - ``timestamp_type`` is 0 for CreateTime and 1 for LogAppendTime. It is -1 in message format 0,
      which has no timestamps.
    - ``leader_epoch`` is -1 if unknown.
    - The sizes are those of the serialized bytes. They are -1 for null and without headers.
    - ``checksum`` is that of a message of format 0 or 1. Records of format 2 have none.
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
        """Epoch of the leader that appended the batch, or -1 if unknown."""
        return self._origin[0]

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime, or -1 without a timestamp."""
        return self._origin[1]

    @property
    def checksum(self) -> int | None:
        """Checksum of a message of format 0 or 1, or None. Since format 2 the batch has one."""
        return self._origin[2]

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key, or -1 for null."""
        return _size(self.key) if self._sizes is None else self._sizes[0]

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value, or -1 for null."""
        return _size(self.value) if self._sizes is None else self._sizes[1]

    @property
    def serialized_header_size(self) -> int:
        """Bytes of names and values, or -1 without headers."""
        return -1 if self._sizes is None else self._sizes[2]

    def _kept_bytes(self) -> tuple[bytes | None, bytes | None] | None:
        """Return the bytes of key and value, if deserialization kept them."""
        sizes = self._sizes
        return (sizes.key, sizes.value) if isinstance(sizes, SizesAndBytes) else None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ConsumerRecord is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ConsumerRecord is immutable: cannot delete {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        # A deserialized value may be a dict, and equal records have the same offset.
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, _values(self)

    def __replace__(self, **changes: Any) -> ConsumerRecord[Any, Any]:
        """Return a changed copy, for ``copy.replace`` of Python 3.13."""
        return ConsumerRecord(**{name: getattr(self, name) for name in _FIELDS} | changes)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_short(getattr(self, name))}" for name in _FIELDS)
        return f"ConsumerRecord({fields})"


if not TYPE_CHECKING and (_types := compiled_module("_record_type_c")):
    # A subclass that adds nothing but a deallocator, which reuses the memory (_record_type.h).
    ConsumerRecord = _types.own_type(ConsumerRecord)


class RecordDraft(ConsumerRecord[K, V]):
    """A record while it is filled. A change of its class makes it a ConsumerRecord.

    A store into slots is several times as fast as one that bypasses a ``__setattr__`` that raises.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self) -> None: ...

        def __setattr__(self, name: str, value: object) -> None: ...  # type: ignore[override]

    else:
        __init__ = object.__init__
        __setattr__, __delattr__ = object.__setattr__, object.__delattr__


Record: TypeAlias = ConsumerRecord[bytes, bytes]
"""Record with its key and value as bytes."""


def restore(*values: Any) -> ConsumerRecord[Any, Any]:
    """Return a record from its values in the order of the fields. Unpickling calls this."""
    return ConsumerRecord(**dict(zip(_FIELDS, values, strict=True)))


def deserialized(record: Record, key: K | None, value: V | None) -> ConsumerRecord[K, V]:
    """Return the record with deserialized key and value. The sizes stay those of the bytes."""
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
    draft.__class__ = ConsumerRecord  # type: ignore[assignment]
    return draft


def keep_bytes(changed: ConsumerRecord[K, V], record: Record) -> ConsumerRecord[K, V]:
    """Let the deserialized copy of a record refer to the bytes of the record, and return it."""
    sizes = record.serialized_key_size, record.serialized_value_size, record.serialized_header_size
    kept = SizesAndBytes(*sizes, record.key, record.value)
    object.__setattr__(changed, "_sizes", kept)
    return changed


def _size(data: Any) -> int:
    return -1 if data is None else len(data)


def _values(record: ConsumerRecord[Any, Any]) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in _FIELDS)


def _short(value: object) -> str:
    """Return the repr of a value, with the middle cut out if it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}...{text[-30:]}"
