"""The ids of topics over the life of a consumer (KIP-516), and which offsets belong to which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kohort.types import TopicPartition

NO_ID = bytes(16)
"""Stands for the id of a topic if brokers have none (before 2.8), or it is not known yet."""


class Recreation(NamedTuple):
    """A topic that was deleted and created again."""

    topic: str
    old_id: bytes
    new_id: bytes


class TopicHistory:
    """The id that each topic has now, and what belongs to the ids before it.

    Ids are unique, so an id that was replaced never comes back: a broker that still names it lags
    behind. The subscription's lock guards all of it.
    """

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._former: dict[str, set[bytes]] = {}
        self._unconfirmed: dict[str, bytes] = {}
        self._logged: dict[str, bytes] = {}
        self._positions: dict[TopicPartition, bytes] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._deleted_offsets: dict[TopicPartition, set[int]] = {}

    def current_id(self, topic: str, /) -> bytes:
        """The id that the topic has now; NO_ID if it has none, or it is not known."""
        return self._ids.get(topic, NO_ID)

    def is_former(self, topic: str, topic_id: bytes, /) -> bool:
        """True if the topic had this id and has another one now."""
        return topic_id in self._former.get(topic, ())

    def note_ids(self, ids: Mapping[str, bytes]) -> list[Recreation]:
        """Take the ids that brokers name; returns the topics that were recreated since."""
        found = []
        for topic, new in ids.items():
            old = self._ids.get(topic, NO_ID)
            if new in (old, NO_ID) or self.is_former(topic, new):
                continue
            self._ids[topic] = new
            if old != NO_ID:
                self._former.setdefault(topic, set()).add(old)
                found.append(Recreation(topic, old, new))
                for tp in [tp for tp in self._offsets if tp.topic == topic]:
                    self.note_deleted_offsets(tp, [self._offsets.pop(tp)])
        return found

    def needs_log(self, topic: str, topic_id: bytes, /) -> bool:
        """True once for each id: the recreation has not been logged yet."""
        logged, self._logged[topic] = self._logged.get(topic), topic_id
        return logged != topic_id

    def mark_unconfirmed(self, topic: str, topic_id: bytes, /) -> None:
        """A broker does not know this id: the topic may have another one by now."""
        self._unconfirmed[topic] = topic_id

    def confirmed_id(self, topic: str, /) -> bytes:
        """Return the same as :meth:`of`, but NO_ID if a broker does not know the id."""
        topic_id = self.current_id(topic)
        return NO_ID if self._unconfirmed.get(topic) == topic_id else topic_id

    # --- positions ------------------------------------------------------------------------------

    def note_position(self, tp: TopicPartition, topic_id: bytes) -> None:
        """The consumer has a position in the partition, of the topic with this id."""
        if topic_id != NO_ID:
            self._positions[tp] = topic_id

    def last_position_id(self, tp: TopicPartition) -> bytes:
        """The id of the topic that the latest position in the partition belonged to, or NO_ID."""
        return self._positions.get(tp, NO_ID)

    # --- committed offsets ----------------------------------------------------------------------

    def note_offset(self, tp: TopicPartition, offset: int) -> None:
        """This offset of the topic that is there now is committed, or is about to be."""
        self._offsets[tp] = offset
        if tp in self._deleted_offsets:
            self._deleted_offsets[tp].discard(offset)

    def note_deleted_offsets(self, tp: TopicPartition, offsets: Iterable[int]) -> None:
        """These offsets belong to a topic that was deleted."""
        self._deleted_offsets.setdefault(tp, set()).update(offsets)

    def is_deleted_offset(self, tp: TopicPartition, offset: int) -> bool:
        """True if the offset is known to belong to a topic that was deleted."""
        return offset in self._deleted_offsets.get(tp, ())
