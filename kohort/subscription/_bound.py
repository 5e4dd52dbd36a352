"""The topics that positions belong to. A position is invalid after its topic is recreated."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from kohort.subscription._history import NO_ID, Recreation, TopicHistory
from kohort.subscription._iteration_run import NO_RUN
from kohort.subscription._partition import PartitionState, RecreatedPartition
from kohort.types import OffsetAndMetadata, TopicPartition


class BoundPositions:
    """The assigned partitions, and the id of the topic that each position belongs to."""

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.history: TopicHistory = TopicHistory()
        self._run = NO_RUN
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._recreated: set[TopicPartition] = set()
        self._touched: dict[TopicPartition, None] = {}

    def _new_epoch(self) -> int:
        raise NotImplementedError

    def note_topic_ids(self, ids: Mapping[str, bytes]) -> list[Recreation]:
        """Note the topic ids of the metadata, and return the topics that were recreated since.

        Their positions are kept, but no longer used for fetches or commits. A first position that
        is being looked up by a rule is looked up again.
        """
        with self.lock:
            self._run.apply()
            found = self.history.note_ids(ids)
            recreated_topics = {each.topic for each in found}
            for tp, state in self._partitions.items():
                self.touch(tp)
                if state.position is None:
                    if tp.topic in recreated_topics and state.is_first:
                        state.epoch, state.reset = self._new_epoch(), None
                    continue
                if tp.topic in recreated_topics:
                    self.history.note_deleted_offsets(
                        tp, {state.position, state.consumed or 0} - {0}
                    )
                if state.topic_id == NO_ID or tp.topic in recreated_topics:
                    known = self.history.confirmed_id(tp.topic)
                    self._bind(tp, state, known if state.topic_id == NO_ID else state.topic_id)
            return found

    def touch(self, tp: TopicPartition) -> None:
        """Note a change that may affect fetches of a partition. The caller holds the lock."""
        self._touched[tp] = None

    def touch_all(self) -> None:
        """Call :meth:`touch` for every assigned partition, under the lock."""
        with self.lock:
            self._touched.update(dict.fromkeys(self._partitions))

    def take_touched(self) -> dict[TopicPartition, None]:
        """Return and forget the touched partitions in order. The caller holds the lock."""
        touched, self._touched = self._touched, {}
        return touched

    def _bind(self, tp: TopicPartition, state: PartitionState, topic_id: bytes) -> None:
        state.topic_id = topic_id
        self.history.note_position(tp, topic_id)
        state.is_recreated = self.history.is_former(tp.topic, topic_id)
        if state.is_recreated:
            self._recreated.add(tp)

    def recreated_partitions(self) -> list[RecreatedPartition]:
        """Return the partitions with positions in topics that were recreated since."""
        if not self._recreated:
            return []
        with self.lock:
            self._run.apply()
            self._recreated = {
                tp for tp in self._recreated if (s := self._partitions.get(tp)) and s.is_recreated
            }
            return [
                RecreatedPartition(
                    tp,
                    state.epoch,
                    state.position,
                    state.topic_id,
                    self.history.current_id(tp.topic),
                )
                for tp in sorted(self._recreated)
                if (state := self._partitions[tp]).position is not None
            ]

    def note_committing(
        self,
        partitions: Mapping[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, bytes],
    ) -> None:
        """Note offsets that are committed or about to be, and the ids of their topics."""
        with self.lock:
            for tp, at in partitions.items():
                if not self.history.is_former(tp.topic, ids.get(tp, NO_ID)):
                    self.history.note_offset(tp, at.offset)

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Return the topic ids of the positions, or the current ids without a position."""
        with self.lock:
            return {
                tp: state.topic_id
                if (state := self._partitions.get(tp)) is not None and state.topic_id != NO_ID
                else self.history.current_id(tp.topic)
                for tp in partitions
            }
