"""Topics and partitions: names, ids, leaders and logs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kohort.broker.configs._topic_settings import TOPIC_DEFAULTS
from kohort.broker.log import AppendResult, PartitionLog, accepted_batch
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.records import RecordBatch
from kohort.types import NamedTuple

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_STATE})

NO_LEADER = -1


class Replica(NamedTuple):
    """A broker's copy of a partition; ``end_offset`` is the offset after its last record."""

    partition: Partition
    high_watermark: int
    last_stable_offset: int
    end_offset: int


@dataclass(eq=False, slots=True)
class Lag:
    """State of a follower that is behind the leader.

    ``end_offset`` is None for a follower that has all records but a lower high watermark.
    """

    high_watermark: int
    end_offset: int | None


class Partition:
    """A log with its leader and replicas. ``leader`` is a node id, -1 if there is none."""

    __slots__ = ("index", "isr", "lags", "leader", "leader_epoch", "log", "replicas", "topic")

    def __init__(self, topic: Topic, index: int, replicas: Sequence[int]) -> None:
        self.topic: Topic = topic
        self.index: int = index
        self.replicas: list[int] = list(replicas)
        self.isr: list[int] = list(replicas)
        self.leader: int = NO_LEADER
        self.leader_epoch: int = -1
        self.log: PartitionLog = PartitionLog()
        self.lags: dict[int, Lag] = {}
        """Lag by node id, of followers only."""

    @property
    def is_under_min_isr(self) -> bool:
        """True if fewer replicas are in sync than acks=all requires."""
        wanted = int(self.topic.config("min.insync.replicas"))
        return len(self.isr) < min(wanted, len(self.replicas))

    def lacks_records(self, node_id: int) -> bool:
        """True if a replica lacks records, so that it is not in sync."""
        lag = self.lags.get(node_id)
        return lag is not None and lag.end_offset is not None

    def replica(self, node_id: int) -> Replica:
        """Return the copy of a broker, which must be one of the replicas."""
        log, lag = self.log, self.lags.get(node_id)
        if lag is None:
            return Replica(self, log.high_watermark, log.last_stable_offset, log.end_offset)
        committed = lag.high_watermark
        stable = min(log.last_stable_offset, committed)
        end = log.end_offset if lag.end_offset is None else lag.end_offset
        return Replica(self, committed, stable, end)

    def set_leader(self, node_id: int) -> None:
        """Set a new leader or none, with the next epoch. Records that the new leader lacks are
        lost.
        """
        if (lag := self.lags.pop(node_id, None)) is not None and lag.end_offset is not None:
            self._truncate(lag.end_offset)
        self.leader = node_id
        self.leader_epoch += 1
        if node_id != NO_LEADER:
            self.log.epochs.assign(self.leader_epoch, self.log.end_offset)
        self.topic.on_leader_changed(self)
        self.log.notify()

    def _truncate(self, end: int) -> None:
        self.log.truncate(end)
        for lag in self.lags.values():
            lag.high_watermark = min(lag.high_watermark, end)
            if lag.end_offset is not None:
                lag.end_offset = min(lag.end_offset, end)

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Compare with the leader epoch of a client's metadata; -1 is not compared."""
        if epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        if epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def append(self, batch: RecordBatch, now_ms: int) -> AppendResult:
        """Append one whole batch as the leader; AppendError if the topic refuses it."""
        if not self.topic.is_internal:
            batch = accepted_batch(batch, self.topic.config, now_ms)
        broker_time = self.topic.config("message.timestamp.type") == "LogAppendTime"
        return self.log.append(batch, self.leader_epoch, now_ms if broker_time else None)


def _ignore_leader_change(_: Partition) -> None:
    """Do nothing: the callback of a topic that is in no cluster."""


class Topic:
    """A topic of the cluster.

    ``on_leader_changed`` is called with each partition whose leader changes.
    """

    def __init__(
        self,
        name: str,
        topic_id: bytes,
        configs: Mapping[str, str],
        on_leader_changed: Callable[[Partition], None] = _ignore_leader_change,
        defaults: Mapping[str, str] = TOPIC_DEFAULTS,
    ) -> None:
        self.name = name
        self._defaults = defaults
        self.on_leader_changed = on_leader_changed
        self.id = topic_id
        self.configs: dict[str, str] = dict(configs)
        """Values that differ from the defaults."""
        self.partitions: list[Partition] = []

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def config(self, name: str) -> str:
        value = self.configs.get(name)
        return self._defaults[name] if value is None else value


class Topics:
    """All topics of the cluster.

    ``nodes``: id -> rack. ``on_leader_changed`` is called with each partition whose leader changes.
    ``is_live(node id)`` is True for brokers that may lead.
    """

    def __init__(
        self,
        nodes: Mapping[int, str | None],
        rng: random.Random,
        on_leader_changed: Callable[[Partition], None],
        is_live: Callable[[int], bool],
        defaults: Mapping[str, str] = TOPIC_DEFAULTS,
    ) -> None:
        self.defaults = defaults
        """Values of settings that a topic does not have."""
        self._racks = dict(nodes)
        self._is_live = is_live
        self._rng = rng
        self._on_leader_changed = on_leader_changed
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._placed = 0
        self.version: int = 0
        """Number of changes of topics and their partitions so far."""
        self.creation_version: int = 0
        """The version since which the newest topic exists."""

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def find(self, name: str | None, topic_id: bytes) -> Topic | None:
        """Return a topic by its id if there is one, else by its name."""
        if topic_id != ZERO_UUID:
            return self._by_id.get(topic_id)
        return None if name is None else self._by_name.get(name)

    def partitions(self) -> Iterator[Partition]:
        """Return the partitions of all topics."""
        for topic in self:
            yield from topic.partitions

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self._by_name.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic. ``assignments`` has the replicas of each partition, the leader first."""
        topic_id = self._rng.getrandbits(128).to_bytes(16, "big")
        topic = Topic(name, topic_id, configs, self._on_leader_changed, self.defaults)
        self._by_name[name] = self._by_id[topic.id] = topic
        if assignments is None:
            assignments = self._place(partitions, replication_factor)
        self._add(topic, assignments)
        self.creation_version = self.version
        return topic

    def add_partitions(
        self, topic: Topic, total: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Increase the partitions of a topic to ``total``."""
        if assignments is None:
            factor = len(topic.partitions[0].replicas)
            assignments = self._place(total - len(topic.partitions), factor)
        self._add(topic, assignments)

    def mark_changed(self) -> None:
        """Count a change of a topic, its partitions or their replicas."""
        self.version += 1

    def delete(self, topic: Topic) -> None:
        del self._by_name[topic.name], self._by_id[topic.id]
        self.mark_changed()
        for partition in topic.partitions:
            partition.leader = NO_LEADER
            partition.log.notify()

    def _place(self, partitions: int, replication_factor: int) -> list[list[int]]:
        """Return replicas for new partitions, with the leaders in rotation over all topics.

        So the brokers lead about the same number of partitions. The replicas of a partition are on
        as many racks as possible.
        """
        nodes = sorted(self._racks, key=lambda node: not self._is_live(node))
        placed = []
        for _ in range(partitions):
            first = self._placed % len(nodes)
            self._placed += 1
            left, replicas = nodes[first:] + nodes[:first], list[int]()
            for _ in range(replication_factor):
                used = [self._racks[node] for node in replicas]
                replicas.append(min(left, key=lambda node: used.count(self._racks[node])))
                left.remove(replicas[-1])
            placed.append(replicas)
        return placed

    def _add(self, topic: Topic, assignments: Sequence[Sequence[int]]) -> None:
        self.mark_changed()
        for replicas in assignments:
            partition = Partition(topic, len(topic.partitions), replicas)
            topic.partitions.append(partition)
            live = [replica for replica in partition.replicas if self._is_live(replica)]
            partition.isr = live or partition.isr
            partition.set_leader(live[0] if live else NO_LEADER)
