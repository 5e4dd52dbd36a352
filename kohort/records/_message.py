# cython: auto_pickle=False
"""A record whose parts are methods, as a message of confluent-kafka has them.

:func:`turn_into` changes the class of records, which copies nothing. This module is also compiled,
as ``_message_c``. Its methods then read the slots of the record in C.
"""
# ruff: noqa: F403, F405 -- what is imported by * is what the compiled module has in C instead

from __future__ import annotations

from typing import Any, TypeVar

from kohort.records._primitives import *
from kohort.records._record import ConsumerRecord

T = TypeVar("T")

prepare_messages(ConsumerRecord)


def built_from() -> int:
    """Return the state of the source that this was compiled from, or 0 if it was not."""
    return build_state()


def turn_into(message_type: type[Any], records: list[Any]) -> None:
    """Change the class of records in place, to one that :func:`as_message_type` has returned."""
    change_class(records, message_type)


def lock_records(message_type: type[Any], records: list[Any], lock: object) -> None:
    """Do the same, and add a lock after the values that the records of a batch share."""
    put_lock(records, message_type, lock)


def learn_locks(lock_type: type[Any]) -> None:
    """Prepare for locks of this class, whose slots are those that :func:`mark_open` reads."""
    prepare_locks(lock_type)


def mark_open(records: tuple[Any, ...], owner: object, mark: int) -> bool:
    """Mark records whose lock is open, in one step for other threads.

    A lock has an ``owner``, its ``first`` offset, and in ``open`` a bytearray with a byte for each
    offset. ``open`` is None while it is closed. Return False unless all records are marked. Plain
    Python marks none, because it takes several steps.
    """
    return put_marks(records, owner, mark)


def as_message_type(message_type: type[T]) -> type[T]:
    """Return a subclass of ConsumerRecord, whose instances are freed as fast as records.

    It must have no slots. This is a decorator.
    """
    return freed_as_records(message_type)


class MessageRecord(ConsumerRecord[Any, Any]):
    """A record with the methods of a message. They hide the attributes of the record.

    Its methods ``set_...()`` replace parts, so instances are not immutable. An error is behind the
    values that the records of a batch share.
    """

    __slots__ = ()

    def topic(self) -> Any:  # type: ignore[override]
        """Return the topic."""
        return part_of(self, TOPIC)

    def partition(self) -> Any:  # type: ignore[override]
        """Return the number of the partition."""
        return part_of(self, PARTITION)

    def offset(self) -> Any:  # type: ignore[override]
        """Return the offset."""
        return part_of(self, OFFSET)

    def key(self) -> Any:
        """Return the key."""
        return part_of(self, KEY)

    def value(self) -> Any:
        """Return the value."""
        return part_of(self, VALUE)

    deserialized_key = key
    deserialized_value = value

    def headers(self) -> list[tuple[str, bytes | None]] | None:  # type: ignore[override]
        """Return the headers as a list of pairs, or None without headers."""
        headers = part_of(self, HEADERS)
        return None if not headers else list(headers)

    def error(self) -> Any:
        """Return None for a record, or the error that the program has set."""
        origin = part_of(self, ORIGIN)
        return None if len(origin) == 3 else origin[3]

    def timestamp(self) -> tuple[int, int]:  # type: ignore[override]
        """Return the type of the timestamp, and the timestamp in milliseconds."""
        origin = part_of(self, ORIGIN)
        return origin[1] + 1, part_of(self, TIMESTAMP)

    def latency(self) -> float | None:
        """Return None, because only produced messages have a latency."""
        return None

    def leader_epoch(self) -> int | None:  # type: ignore[override]
        """Return the epoch of the leader, or None if it is unknown."""
        origin = part_of(self, ORIGIN)
        epoch: int = origin[0]
        return None if epoch < 0 else epoch

    def delivery_count(self) -> int | None:
        """Return None, because only share groups count deliveries."""
        return None

    def set_topic(self, topic: Any) -> None:
        """Replace the topic."""
        put_part(self, TOPIC, topic)

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        put_part(self, KEY, key)

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        put_part(self, VALUE, value)

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        put_part(self, HEADERS, headers)

    def set_error(self, error: Any) -> None:
        """Replace the error."""
        put_part(self, ORIGIN, (*part_of(self, ORIGIN)[:3], error))
