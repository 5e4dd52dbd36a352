"""ShareRecord, a record with the lock that its delivery came with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.records import ConsumerRecord, K, V
from kohort.records._record import RecordDraft, _size
from kohort.share.machine._acquired import Hold


class ShareRecord(ConsumerRecord[K, V]):
    """A record that a share group has delivered, with the lock of its delivery.

    Its other attributes are those of :class:`~kohort.ConsumerRecord`. A copy, or a record that was
    pickled, is a ConsumerRecord, because the lock stays with its consumer.
    """

    __module__ = "kohort"

    __slots__ = ("_hold",)

    if TYPE_CHECKING:  # hints are resolved in the module of the class, which is kohort
        _hold: Hold

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of this record, 1 for the first, as far as the leader knows."""
        return self._hold.delivery_count

    @property
    def lock_deadline(self) -> float:
        """Time when the lock expires, in seconds of the event loop's clock.

        That is ``time.monotonic()`` for ShareConsumer and on asyncio. renew() moves it.
        """
        return self._hold.deadline


class _Draft(ShareRecord[K, V], RecordDraft[K, V]):
    """A share record while it is filled, as :class:`RecordDraft` describes."""

    __slots__ = ()


def share_record(record: ConsumerRecord[Any, Any], hold: Hold) -> ShareRecord[Any, Any]:
    """Return the deserialized record with its lock."""
    draft: _Draft[Any, Any] = _Draft()
    draft.topic = record.topic
    draft.partition = record.partition
    draft.offset = record.offset
    draft.timestamp = record.timestamp
    draft.key = record.key
    draft.value = record.value
    draft.headers = record.headers
    draft._origin = record._origin
    draft._sizes = record._sizes or (_size(record.key), _size(record.value), -1)
    draft._hold = hold
    draft.__class__ = ShareRecord  # type: ignore[assignment]
    return draft
