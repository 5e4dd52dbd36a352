"""ShareRecord, a record with the lock that its delivery came with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from kohort.records import (
    ConsumerRecord,
    K,
    V,
    as_message_type,
    learn_locks,
    lock_records,
    turn_into,
)
from kohort.records._record import RecordFields
from kohort.share.machine._acquired import Hold


class ShareRecord(ConsumerRecord[K, V]):
    """A record that a share group has delivered, with the lock of its delivery.

    Its other attributes are those of :class:`~kohort.ConsumerRecord`. A copy, or a record that was
    pickled, is a ConsumerRecord, because the lock stays with its consumer.
    """

    __module__ = "kohort"

    __slots__ = ()

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of this record, 1 for the first, as far as the leader knows."""
        return hold_of(self).delivery_count

    @property
    def lock_deadline(self) -> float:
        """Time when the lock expires, in seconds of the event loop's clock.

        That is ``time.monotonic()`` for ShareConsumer and on asyncio. renew() moves it.
        """
        return hold_of(self).deadline_of(self.offset)

    def __repr__(self) -> str:
        fields = super().__repr__().removeprefix("ConsumerRecord(").removesuffix(")")
        return f"ShareRecord({fields}, delivery_count={self.delivery_count})"


if not TYPE_CHECKING:
    ShareRecord = as_message_type(ShareRecord)  # freed as fast as other records
learn_locks(Hold)


def hold_of(record: ShareRecord[Any, Any]) -> Hold:
    """Return the lock of a record. It is after the values that the records of a batch share."""
    hold: Hold = record._origin[3]  # type: ignore[misc]
    return hold


def share_records(
    records: Iterable[ConsumerRecord[Any, Any]], holds: Mapping[int, Hold]
) -> list[ShareRecord[Any, Any]]:
    """Make share records of those that have a lock, in place.

    A hold refers to no record, so the garbage collector need not know of these records either.
    """
    found: list[Any] = []
    plain: object = None
    last: Hold | None = None
    shared: Any = None
    for record in records:
        hold = holds.get(record.offset)
        if hold is None:
            continue  # the lock is lost
        if hold is not last or record._origin is not plain:
            last, plain = hold, record._origin
            shared = (*record._origin, hold)
        _put_origin(record, shared)
        found.append(record)
    turn_into(ShareRecord, found)
    return found


def share_all(records: list[ConsumerRecord[Any, Any]], hold: Hold) -> list[ShareRecord[Any, Any]]:
    """Make share records of records with one lock, in place."""
    lock_records(ShareRecord, records, hold)
    return cast("list[ShareRecord[Any, Any]]", records)


_put_origin: Any = RecordFields.__dict__["_origin"].__set__
