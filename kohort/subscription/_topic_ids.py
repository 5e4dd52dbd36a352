"""The ids of topics over the life of a consumer (KIP-516), and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.types import NamedTuple, TopicPartition

NO_ID = bytes(16)
"""The value for a missing topic id. It is unknown, or the broker has none (before Kafka 2.8)."""


class Recreation(NamedTuple):
    """A topic that was deleted and created again."""

    topic: str
    old_id: bytes
    new_id: bytes


class TopicHistory:
    """The current id of each topic, and the positions and offsets of its former ids.

    Ids are unique, so a replaced id is never valid again. A broker that still returns it lags. The
    subscription's lock guards all state.
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
        """Return the current id of a topic, or NO_ID if it has none or is unknown."""
        return self._ids.get(topic, NO_ID)

    def is_former(self, topic: str, topic_id: bytes, /) -> bool:
        """True if the topic had this id and has another one now."""
        return topic_id in self._former.get(topic, ())

    def note_ids(self, ids: Mapping[str, bytes]) -> list[Recreation]:
        """Note the current ids of topics, and return the topics that were recreated since."""
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
        """True if the recreation has not been logged yet. The call counts as the log line."""
        logged, self._logged[topic] = self._logged.get(topic), topic_id
        return logged != topic_id

    def mark_unconfirmed(self, topic: str, topic_id: bytes, /) -> None:
        """Note that a broker does not know this id, so the topic may have a new one."""
        self._unconfirmed[topic] = topic_id

    def confirmed_id(self, topic: str, /) -> bytes:
        """Return :meth:`current_id`, or NO_ID if a broker does not know that id."""
        topic_id = self.current_id(topic)
        return NO_ID if self._unconfirmed.get(topic) == topic_id else topic_id

    # --- positions ------------------------------------------------------------------------------

    def note_position(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Note the id of the topic that the position in a partition belongs to."""
        if topic_id != NO_ID:
            self._positions[tp] = topic_id

    def last_position_id(self, tp: TopicPartition) -> bytes:
        """Return the topic id of the latest position in the partition, or NO_ID."""
        return self._positions.get(tp, NO_ID)

    # --- committed offsets ----------------------------------------------------------------------

    def note_offset(self, tp: TopicPartition, offset: int) -> None:
        """Note an offset of the current topic that is committed or about to be."""
        self._offsets[tp] = offset
        if tp in self._deleted_offsets:
            self._deleted_offsets[tp].discard(offset)

    def note_deleted_offsets(self, tp: TopicPartition, offsets: Iterable[int]) -> None:
        """Note offsets that belong to a deleted topic."""
        self._deleted_offsets.setdefault(tp, set()).update(offsets)

    def is_deleted_offset(self, tp: TopicPartition, offset: int) -> bool:
        """True if the offset is known to belong to a deleted topic."""
        return offset in self._deleted_offsets.get(tp, ())
