"""The cluster itself: topics, brokers and what they share. Runs in one event loop."""

from __future__ import annotations

import base64
import itertools
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import anyio

from kohort.protocol import Buffer
from kohort.records import NewRecord, RecordBatch, encode_batch
from kohort.testing._broker import Broker, Node
from kohort.testing._configs import ClusterConfig
from kohort.testing._dispatch import ReceivedRequest
from kohort.testing._hashes import coordinator_partition
from kohort.testing._server import listen, serve_broker
from kohort.testing._topics import CONSUMER_OFFSETS, Partition, Topic, Topics
from kohort.testing.groups import (
    PARTITIONS,
    ClassicGroup,
    GroupCoordinator,
    GroupEnvironment,
    Records,
)

_REMEMBERED_REQUESTS = 10_000
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class ClusterCore:
    """Made and used inside of one event loop, whose clock it goes by.

    ``changed`` is called after everything that an observer might wait for.
    """

    def __init__(self, config: ClusterConfig, changed: Callable[[], None] = lambda: None) -> None:
        self.config = config
        self.changed = changed
        self.rng = random.Random(config.seed)
        self._epoch_ms = int((time.time() - anyio.current_time()) * 1000)
        self.cluster_id = _base64_id(self.rng)
        self.requests: deque[ReceivedRequest] = deque(maxlen=_REMEMBERED_REQUESTS)
        self._listeners: list[tuple[Broker, socket.socket]] = []
        self._producer_ids = itertools.count()
        host = config.advertised_host or _ANY_ADDRESS.get(config.host, config.host)
        nodes = [Node(index + 1, host) for index in range(config.brokers)]
        self.topics = Topics([node.id for node in nodes], self.rng, self._elected)
        self.brokers = {node.id: self._make_broker(node) for node in nodes}
        for name, partitions in config.topics.items():
            self.create_topic(name, partitions)

    def listen(self) -> None:
        """Open the brokers' ports; OSError, and none is open, if one of them cannot be had."""
        with ExitStack() as opened:
            for index, broker in enumerate(self.brokers.values()):
                listener = listen(broker, self.config.port_of(index))
                self._listeners.append((broker, opened.enter_context(listener)))
            opened.pop_all()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as group:
            for broker, listener in self._listeners:
                group.start_soon(serve_broker, broker, listener)

    def _make_broker(self, node: Node) -> Broker:
        env = GroupEnvironment(self.config.groups, self.rng, self._epoch_ms)
        coordinator = GroupCoordinator(env, self._append_group_records, lambda: self.changed())
        return Broker(self, node, coordinator)

    def now_ms(self) -> int:
        """Wall-clock time that goes as the loop's clock goes."""
        return self._epoch_ms + int(anyio.current_time() * 1000)

    # Brokers

    @property
    def nodes(self) -> list[Node]:
        """The brokers that are there."""
        return [broker.node for broker in self.brokers.values()]

    @property
    def controller_id(self) -> int:
        return next(iter(self.brokers), -1)

    def received(
        self, node_id: int, request: str, version: int, client_id: str, client_host: str
    ) -> None:
        """Note a request for whoever wants to know what came."""
        api = request.removesuffix("Request")
        at = anyio.current_time()
        self.requests.append(ReceivedRequest(node_id, api, version, client_id, client_host, at))

    def new_producer_id(self) -> int:
        return next(self._producer_ids)

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """What is not given is the cluster's default; the name is known to be free and legal."""
        if name == CONSUMER_OFFSETS:
            return self._offsets_topic()
        topic = self.topics.create(
            name,
            self.config.default_partitions if partitions is None else partitions,
            replication_factor or self.config.default_replication_factor,
            configs or {},
            assignments,
        )
        self.changed()
        return topic

    def add_partitions(
        self, topic: Topic, total: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.topics.add_partitions(topic, total, assignments)
        self.changed()

    def delete_topic(self, topic: Topic) -> None:
        self.topics.delete(topic)
        for broker in self.brokers.values():
            broker.coordinator.forget_topic(topic.name)
        self.changed()

    def _elected(self, partition: Partition) -> None:
        """Groups go with the leadership of their partition of ``__consumer_offsets``."""
        if partition.topic.name != CONSUMER_OFFSETS:
            return
        for broker in self.brokers.values():
            coordinator = broker.coordinator
            if broker.node.id == partition.leader:
                coordinator.load(partition.index, _keys_and_values(partition))
            elif partition.index in coordinator.partitions:
                coordinator.unload(partition.index)

    # Groups

    def _offsets_topic(self) -> Topic:
        """``__consumer_offsets``, made when a group is first asked for."""
        topic = self.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": "104857600",
            }
            factor = self.config.default_replication_factor
            topic = self.topics.create(CONSUMER_OFFSETS, PARTITIONS, factor, configs)
        return topic

    def group(self, group_id: str) -> ClassicGroup | None:
        """The group, wherever it is; nothing is made by asking."""
        found = (broker.coordinator.groups.get(group_id) for broker in self.brokers.values())
        return next((group for group in found if group is not None), None)

    def coordinator_node(self, group_id: str) -> Node | None:
        """The broker that coordinates the group, None if there is none now."""
        partition = self._offsets_topic().partitions[coordinator_partition(group_id, PARTITIONS)]
        broker = self.brokers.get(partition.leader)
        return None if broker is None else broker.node

    def transaction_coordinator_node(self, transactional_id: str) -> Node | None:
        nodes = self.nodes
        return nodes[coordinator_partition(transactional_id, PARTITIONS) % len(nodes)]

    def _append_group_records(self, index: int, records: Records) -> None:
        partition = self._offsets_topic().partitions[index]
        now = self.now_ms()
        batch = encode_batch([NewRecord(now, key, value) for key, value in records])
        partition.append(RecordBatch.of(batch), now)


def _keys_and_values(partition: Partition) -> Iterator[tuple[Buffer | None, Buffer | None]]:
    for batch in partition.log.batches():
        if not batch.header.is_control:
            for record in batch.records():
                yield record.key, record.value


def _base64_id(rng: random.Random) -> str:
    """22 characters, as Kafka writes its ids."""
    raw = rng.getrandbits(128).to_bytes(16, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
