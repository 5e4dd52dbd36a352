"""A topic of the cluster's own state, whose leaders coordinate what is stored in it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.broker._broker_node import BrokerNode, RunningBroker
from kohort.broker.cluster._topics import Partition, Topic
from kohort.records import NewRecord, RecordBatch, encode_batch


class _Coordinator(Protocol):
    """A coordinator of a broker, with the partitions that it has loaded."""

    @property
    def partitions(self) -> Container[int]:
        """The loaded partitions."""
        ...

    def unload(self, partition: int) -> None:
        """Forget what a partition stores."""
        ...


C = TypeVar("C", bound=_Coordinator)


class CoordinatedCluster(Protocol):
    """Parts of the cluster's state that each kind of coordinator needs."""

    brokers: Mapping[int, RunningBroker]

    @property
    def nodes(self) -> list[BrokerNode]:
        """The registered brokers."""
        ...

    def now_ms(self) -> int:
        """Return wall-clock milliseconds."""
        ...


class CoordinatedTopic:
    """The coordinators of a topic. ``topic`` returns it, and creates it on its first use."""

    def __init__(self, cluster: CoordinatedCluster, topic: Callable[[], Topic]) -> None:
        self._cluster = cluster
        self._topic = topic

    def partition(self, index: int) -> Partition:
        """Return a partition of the topic."""
        return self._topic().partitions[index]

    def node(self, index: int) -> BrokerNode | None:
        """Return the broker that leads a partition, None if there is none now."""
        leader = self.partition(index).leader
        return next((node for node in self._cluster.nodes if node.id == leader), None)

    def broker(self, index: int) -> RunningBroker | None:
        """Return the broker that leads a partition, None if it does not run."""
        return self._cluster.brokers.get(self.partition(index).leader)

    def append(self, index: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Append keys and values to a partition."""
        now_ms = self._cluster.now_ms()
        data = encode_batch([NewRecord(now_ms, key, value) for key, value in records])
        self.partition(index).append(RecordBatch.of(data), now_ms)

    def move(
        self, partition: Partition, of: Callable[[RunningBroker], C], load: Callable[[C], object]
    ) -> None:
        """Let the coordinator of the new leader load a partition, and the others unload it."""
        for broker in self._cluster.brokers.values():
            coordinator = of(broker)
            if broker.node.id == partition.leader:
                load(coordinator)
            elif partition.index in coordinator.partitions:
                coordinator.unload(partition.index)
