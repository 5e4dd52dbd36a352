"""The leader's view of the group's topics, which it compares with those of its assignment."""

from __future__ import annotations

from kohort.coordinator_client._commands import WatchTopics
from kohort.coordinator_client._member import MANY_CHANGES
from kohort.coordinator_client._pending_commands import PendingCommands
from kohort.coordinator_client.assignors import ClusterTopics
from kohort.transport import escaped


class Leadership:
    """The group's topics as its leader knows them. Other members know none."""

    def __init__(self, pending: PendingCommands) -> None:
        self.is_leader = False
        """True if this member is the leader of its generation and watches the group's topics."""
        self._pending = pending
        self._assigned: ClusterTopics | None = None
        self._unknown: frozenset[str] = frozenset()
        """Topics of an earlier process's assignment that are not in the metadata yet."""

    def start(self, topics: frozenset[str], *, keeps_assignment: bool) -> None:
        """Watch the group's topics. ``keeps_assignment`` means that there is one already."""
        self.is_leader = True
        self._pending.emit(WatchTopics(topics))
        if keeps_assignment:
            self._unknown = topics

    def stop(self) -> None:
        if self.is_leader:
            self.is_leader = False
            self._assigned, self._unknown = None, frozenset()
            self._pending.emit(WatchTopics(frozenset()))

    def note_assigned(self, topics: ClusterTopics) -> None:
        """Note the topics and partitions of the assignment."""
        self._assigned, self._unknown = topics, frozenset()

    def describe_change(self, topics: ClusterTopics, covered: frozenset[str] | None) -> str | None:
        """Return how the topics differ from those of the assignment, or None if they are equal."""
        if not self.is_leader:
            return None
        assigned, self._assigned = self._assigned, topics
        first = self._unknown if covered is None else self._unknown & covered
        if first:
            # A restarted static leader learns which partitions its group's assignment covers.
            self._unknown -= first
            assigned, topics = assigned and _without(assigned, first), _without(topics, first)
        if assigned is None or assigned == topics:
            return None
        names = assigned.partitions.keys() | topics.partitions.keys()
        changes = [
            f"{escaped(name)} {assigned.partitions.get(name, 0)} -> "
            f"{topics.partitions.get(name, 0)}"
            for name in sorted(names)
            if assigned.partitions.get(name, 0) != topics.partitions.get(name, 0)
        ]
        return f"partitions changed: {', '.join(changes[:MANY_CHANGES]) or 'racks'}"


def _without(known: ClusterTopics, names: frozenset[str]) -> ClusterTopics:
    """Return the topics without those of these names."""
    return ClusterTopics(
        {name: count for name, count in known.partitions.items() if name not in names},
        {tp: racks for tp, racks in known.racks.items() if tp.topic not in names},
    )
