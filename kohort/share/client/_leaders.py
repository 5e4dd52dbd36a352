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

    def by_node(self) -> ByNode:
        """Return the partitions with a leader by its node. For the others, refresh the metadata."""
        metadata, assignment = self._cluster.metadata, self._membership.assignment
        if (known := self._known) is not None:
            if known[0] is metadata and known[1] is assignment:
                return known[2]
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
