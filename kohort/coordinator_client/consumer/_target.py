"""The assignment that the coordinator wants a member to own, by topic ids and by names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.coordinator_client.consumer._member import ConsumerMemberData
from kohort.coordinator_client.machine._commands import IdPartition
from kohort.types import TopicPartition


class TargetAssignment:
    """The latest assignment of the coordinator.

    A partition of a recreated topic differs from the earlier one of the same name and number. It is
    revoked under the old id and added under the new one.
    """

    def __init__(self, member: ConsumerMemberData) -> None:
        self._member = member
        self._partitions: frozenset[IdPartition] = frozenset()
        self._regex = ""
        self._names: dict[bytes, str] = {}
        self._current_ids: Mapping[str, bytes] = {}
        self.version = 0
        """Number of assignments received."""

    def replace(self, partitions: Iterable[IdPartition], regex: str = "") -> None:
        """Set the assignment of a response, which replaces the earlier one.

        ``regex`` is the pattern that the coordinator had for it.
        """
        self._regex = regex
        self._partitions = frozenset(partitions)
        self.version += 1

    def keep(self, regex: str) -> None:
        """Keep the assignment of a changed subscription that leads to the same partitions.

        ``regex`` is the pattern that the coordinator has now.
        """
        self._regex = regex

    @property
    def is_empty(self) -> bool:
        """True if the member is to own nothing."""
        return not self._partitions

    def note_names(self, names: Mapping[bytes, str]) -> None:
        """Note names of topics. The names of topics outside of the assignment are forgotten."""
        needed = {topic_id for topic_id, _ in self._partitions}
        known = {**self._names, **names}
        self._names = {topic_id: known[topic_id] for topic_id in known.keys() & needed}

    def unresolved(self) -> frozenset[bytes]:
        """Return the ids of topics whose names are unknown. Their partitions are left out."""
        return frozenset(
            topic_id for topic_id, _ in self._partitions if topic_id not in self._names
        )

    def is_changed(self) -> bool:
        """True if partitions must be revoked or added."""
        return bool(self.revoked() or self.added())

    def revoked(self) -> frozenset[TopicPartition]:
        """Return the owned partitions that are not in the assignment."""
        member = self._member
        return frozenset(
            tp for tp in member.owned if member.id_partition(tp) not in self._partitions
        )

    def note_current_ids(self, ids: Mapping[str, bytes]) -> None:
        """Note the topic ids that the metadata has."""
        self._current_ids = ids

    def recreated(self) -> frozenset[TopicPartition]:
        """Return the owned partitions of topics that were deleted and created again since."""
        found = set()
        for tp in self._member.owned:
            topic_id, _ = self._member.id_partition(tp)
            current = self._current_ids.get(tp.topic, topic_id)
            if any(current) and current != topic_id:
                found.add(tp)
        return frozenset(found)

    def added(self) -> dict[TopicPartition, bytes]:
        """Return the partitions to own newly, with the ids of their topics.

        Topics that were subscribed to before are left out, because the coordinator revokes them as
        soon as it has the new subscription.
        """
        found = {
            TopicPartition(self._names[topic_id], number): topic_id
            for topic_id, number in sorted(self._partitions)
            if topic_id in self._names and self._is_subscribed(self._names[topic_id])
        }
        return {tp: topic_id for tp, topic_id in found.items() if tp not in self._member.owned}

    def _is_subscribed(self, topic: str) -> bool:
        return self._member.is_subscribed(topic, self._regex)
