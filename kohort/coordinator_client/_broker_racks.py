"""The racks of the brokers, as far as the consumer has seen them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kohort.coordinator_client._cluster_view import MetadataView
from kohort.coordinator_client.assignors import ClusterTopics
from kohort.types import TopicPartition


class BrokerRacks:
    """The racks of the brokers, for assignments and for their comparison with new metadata.

    The metadata leaves out a broker that is away, and its replicas stay. Its rack is the last known
    one. If it was never known, it stays unknown until the next assignment. So neither the restart
    of a broker nor its return is a change of racks.
    """

    def __init__(self) -> None:
        self._racks: dict[int, str | None] = {}
        self._unknown: set[int] = set()
        """Brokers whose racks the latest assignment did not know."""

    def for_assignment(self, metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
        """Return the partitions of these topics with all known racks."""
        self._note(metadata)
        self._unknown = {
            node
            for name in names
            if name in metadata.topics
            for partition in metadata.topics[name].partitions.values()
            for node in partition.replicas
            if node not in self._racks
        }
        return self._topics(metadata, names)

    def for_comparison(self, metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
        """Return the partitions with the racks that the latest assignment could know."""
        self._note(metadata)
        return self._topics(metadata, names)

    def _note(self, metadata: MetadataView) -> None:
        self._racks.update((node, broker.rack) for node, broker in metadata.brokers.items())

    def _topics(self, metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
        counts = known_topics(metadata, names)
        racks_by_nodes: dict[Collection[int], frozenset[str]] = {}

        def racks_of(replicas: Collection[int]) -> frozenset[str]:
            if replicas not in racks_by_nodes:
                known = (self._racks.get(node) for node in replicas if node not in self._unknown)
                racks_by_nodes[replicas] = frozenset(rack for rack in known if rack)
            return racks_by_nodes[replicas]

        racks = {
            TopicPartition(name, number): racks_of(partition.replicas)
            for name in counts.partitions
            for number, partition in metadata.topics[name].partitions.items()
        }
        return ClusterTopics(counts.partitions, racks)


def known_topics(metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
    """Return the partitions of these topics that the metadata contains, without racks.

    Topics without partitions are left out.
    """
    found = {name: metadata.topics[name].partitions for name in names if name in metadata.topics}
    return ClusterTopics({name: len(each) for name, each in found.items() if each})
