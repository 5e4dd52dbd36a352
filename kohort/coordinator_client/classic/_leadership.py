"""The member's view of the group's topics, which it compares with those of the assignment."""

from __future__ import annotations

from kohort.coordinator_client.assignors import ClusterTopics
from kohort.coordinator_client.machine._commands import DescribeAssignment, WatchTopics
from kohort.coordinator_client.machine._member import MANY_CHANGES
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.transport import escaped


class Leadership:
    """The topics that this member watches for the group, and those of the assignment.

    The leader watches the topics of all members. Followers watch none.

    A consumer group names no leader to its classic members, because the coordinator watches the
    topics. It may become classic without a rebalance, and then it has a leader that does not know
    of it. So these members watch their own topics. After a change they look the assignment up.

    A restarted static member gets the assignment of its former process. The coordinator begins no
    rebalance for another subscription, and the leader does not know of it. So a follower that gets
    nothing of a topic looks the assignment up, and watches its own topics.

    A static leader that restarts in a stable group keeps the old assignment, too (KIP-814). Topics
    may have changed since then, and its rights. So it looks the assignment up once.

    No member does so after a restart if the assignor is the user's, which may leave partitions out.
    A member that finds partitions without an owner joins again.
    """

    def __init__(self, pending: PendingCommands) -> None:
        self.is_leader = False
        """True if this member is the leader of its generation and watches the group's topics."""
        self._is_assigning = False
        """True until the leader's assignor has run, so that no topics can differ from its own."""
        self._pending = pending
        self._watched: frozenset[str] | None = None
        self._is_hosted = False
        """True for a member without a leader, until its group is known to be classic."""
        self._needs_description = False
        self._assigned: ClusterTopics | None = None
        self._unknown: frozenset[str] = frozenset()
        """Topics of an earlier process's assignment that are not in the metadata yet."""

    def start(self, topics: frozenset[str], *, keeps_assignment: bool) -> None:
        """Watch the group's topics. ``keeps_assignment`` means that there is one already."""
        self.is_leader = True
        self._is_assigning = not keeps_assignment
        self._watch(topics, is_assigned=keeps_assignment)

    def start_without_leader(self, topics: frozenset[str]) -> None:
        """Watch the member's own topics in a group that names no leader."""
        self._is_hosted = True
        self._watch(topics, is_assigned=True)

    def start_after_restart(self, topics: frozenset[str]) -> None:
        """Watch the topics of a static follower, whose assignment may be older than them."""
        if self._watched is None:
            self._watch(topics, is_assigned=True)
            self.look_up_assignment()

    def _watch(self, topics: frozenset[str], *, is_assigned: bool) -> None:
        self._watched = topics
        self._pending.emit(WatchTopics(topics))
        if is_assigned:
            self._unknown = topics

    def stop(self) -> None:
        if self._watched is not None:
            self.is_leader, self._watched = False, None
            self._is_assigning = False
            self._is_hosted = self._needs_description = False
            self._assigned, self._unknown = None, frozenset()
            self._pending.forget(Role.DESCRIBE)
            self._pending.emit(WatchTopics(frozenset()))

    def look_up_assignment(self) -> None:
        """Request the assignment that the group has. A failed request is repeated later."""
        self._needs_description = True
        if not self._pending.waits_for(Role.DESCRIBE):
            token = self._pending.start(Role.DESCRIBE)
            self._pending.emit(DescribeAssignment(token, self._watched or frozenset()))

    def retry_look_up(self) -> None:
        """Repeat a look-up that failed. Called after each heartbeat."""
        if self._needs_description:
            self.look_up_assignment()

    def note_described(self, topics: ClusterTopics | None) -> None:
        """Note the topics and partitions that the members have. None means unknown."""
        self._needs_description = False
        if topics is not None:
            self.note_assigned(topics)

    def note_assigned(self, topics: ClusterTopics) -> None:
        """Note the topics and partitions of the assignment."""
        self._is_hosted = self._is_assigning = False
        self._assigned, self._unknown = topics, frozenset()

    def describe_change(self, topics: ClusterTopics, covered: frozenset[str] | None) -> str | None:
        """Return how the topics differ from those of the assignment, or None if they are equal.

        A member without a leader looks the assignment up first. The assignor may fetch the first
        metadata of its topics, which is no change. The topics are compared again after it has run.
        """
        if self._watched is None or self._is_assigning:
            return None
        change = self._difference(topics, covered)
        if self._is_hosted:
            self._unknown = frozenset()  # a topic that appears later is a change
        if self._needs_description or (change and self._is_hosted):
            self.look_up_assignment()
        return None if self._is_hosted else change

    def _difference(self, topics: ClusterTopics, covered: frozenset[str] | None) -> str | None:
        assigned, self._assigned = self._assigned, topics
        first = self._unknown if covered is None else self._unknown & covered
        if first:
            # The member learns which partitions an assignment covers that it has not made.
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
