"""The leaders of the partitions that a share consumer is to read."""

from __future__ import annotations

from kohort.share.machine._membership import IdPartition, ShareMembership
from kohort.transport import ClusterClient, ClusterMetadata
from kohort.types import TopicPartition

ByNode = dict[int, frozenset[IdPartition]]


class AssignedLeaders:
    """The assigned partitions by their leader. It belongs to the event loop of its engine."""

    def __init__(self, cluster: ClusterClient, membership: ShareMembership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._known: tuple[ClusterMetadata, frozenset[IdPartition], ByNode] | None = None
        """The result for some metadata and an assignment, if each partition has a leader."""

    def current(self) -> ByNode | None:
        """Return the result of by_node() if it is known and each partition has a leader."""
        if (known := self._known) is not None:
            metadata, assignment, found = known
            if metadata is self._cluster.metadata and assignment is self._membership.assignment:
                return found
        return None

    def by_node(self) -> ByNode:
        """Return the partitions with a leader by its node. For the others, refresh the metadata."""
        if (current := self.current()) is not None:
            return current
        metadata, assignment = self._cluster.metadata, self._membership.assignment
        self._known = None
        found: dict[int, set[IdPartition]] = {}
        is_complete = True
        for topic_id, number in assignment:
            topic = metadata.topic_by_id(topic_id)
            leader = None
            if topic is not None:
                leader = metadata.leader(TopicPartition(topic.name, number))
            if leader is None:
                is_complete = False
                self._cluster.request_refresh()
            else:
                found.setdefault(leader.node, set()).add((topic_id, number))
        wanted = {node: frozenset(partitions) for node, partitions in found.items()}
        if is_complete:
            self._known = metadata, assignment, wanted
        return wanted
