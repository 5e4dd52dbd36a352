"""Random comparison of fetch sessions with full walks.

A request without a session reads all partitions. By the rules of KIP-227 the session's response
contains some of its results. Between the requests the cluster and the client change at random.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio
import pytest
import trio
import trio.testing

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.apis import Context
from kohort.broker.apis.fetch import fetch
from kohort.broker.cluster._topics import Partition
from kohort.broker.log import Marker
from kohort.broker.security import Acl
from kohort.errors import ErrorCode
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.records import NewRecord, RecordBatch, encode_batch
from kohort.testing import Authorization, MemoryCluster, Security
from tests.support.virtual import run_virtual

TOPICS = {"t": 3, "u": 2}
RACKS = ["a", "b", "c"]
USERS = ["User:a", "User:b"]
VERSIONS = {False: (7, 10, 11, 12), True: (13, 15, 16, 18)}
ACLS = [
    Acl(user, "READ", "TOPIC", topic, permission=permission)
    for user in USERS
    for topic in TOPICS
    for permission in ("ALLOW", "DENY")
]


class Key(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int


@dataclass
class Position:
    """Values of a partition in the client's requests, and those of the last response."""

    offset: int = 0
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20
    high_watermark: int = -1
    log_start: int = -1

    def as_request(self, number: int) -> FetchRequest.FetchPartition:
        return FetchRequest.FetchPartition(
            partition=number,
            fetch_offset=self.offset,
            current_leader_epoch=self.leader_epoch,
            last_fetched_epoch=self.last_fetched_epoch,
            partition_max_bytes=self.max_bytes,
        )


Entry = tuple[Key, FetchResponse.PartitionData]


def entries(response: FetchResponse) -> list[Entry]:
    found = []
    for topic in response.responses:
        for data in topic.partitions:
            data.records = bytes(data.records or b"")
            found.append((Key(topic.topic, bytes(topic.topic_id), data.partition_index), data))
    return found


@dataclass
class Limits:
    """The parts of a request that are not about one partition."""

    version: int
    user: str = USERS[0]
    rack: str = ""
    isolation: int = 0
    min_bytes: int = 1
    max_bytes: int = 1 << 20


@dataclass
class World:
    """The cluster, one client with a session on broker 1, and their random changes."""

    server: ClusterServer
    rng: random.Random
    limits: Limits
    session: tuple[int, int] = (0, 0)
    positions: dict[Key, Position] = field(default_factory=dict)
    named: set[Key] = field(default_factory=set)
    forgotten: set[Key] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)

    # Requests

    def request(self, keys: set[Key], session: tuple[int, int], max_wait_ms: int) -> FetchRequest:
        limits, requested = self.limits, [key for key in self.positions if key in keys]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation,
            rack_id=limits.rack,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchRequest.FetchTopic(
                    topic=key.topic,
                    topic_id=key.topic_id,
                    partitions=[self.positions[key].as_request(key.partition)],
                )
                for key in requested
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(
                    topic=key.topic, topic_id=key.topic_id, partitions=[key.partition]
                )
                for key in self.forgotten
            ],
        )

    async def send(self, request: FetchRequest, into: list[FetchResponse]) -> None:
        limits = self.limits
        context = Context(self.server.brokers[1], limits.version, "c", "/127.0.0.1", limits.user)
        response = await fetch(context, request)
        assert isinstance(response, FetchResponse)
        into.append(response)

    async def compare(self, changes: int) -> None:
        """Fetch by the session and by a full walk, with some changes while both wait."""
        is_first = self.session == (0, 0)
        named = set(self.positions) if is_first else self.named
        max_wait_ms = 1000 if changes else 0
        by_session, by_walk = list[FetchResponse](), list[FetchResponse]()
        sent = self.request(named, self.session, max_wait_ms)
        walk = self.request(set(self.positions), (0, -1), max_wait_ms)
        self.named, self.forgotten = set(), set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.send, walk, by_walk)
            tasks.start_soon(self.send, sent, by_session)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(changes):
                assert len(by_session) == len(by_walk)
                self.seen["waits"] += not by_walk
                if by_walk:
                    break
                self.change_cluster()
                await trio.testing.wait_all_tasks_blocked()
            assert len(by_session) == len(by_walk)
        response = by_session[0]
        assert response.error_code == ErrorCode.NONE
        results = entries(by_walk[0])
        assert entries(response) == self.expected(results, is_first)
        epoch = self.session[1] + 1
        self.session = (response.session_id, epoch) if response.session_id else (0, 0)
        self.follow(entries(response))

    def expected(self, results: list[Entry], is_first: bool) -> list[Entry]:
        """Return the results that the session's response contains, and remember the values."""
        changed = []
        for key, data in results:
            position, has_failed = self.positions[key], data.error_code != ErrorCode.NONE
            facts = {
                "records": bool(data.records),
                f"error {data.error_code}": has_failed,
                "diverging epoch": data.diverging_epoch.epoch >= 0,
                "preferred replica": data.preferred_read_replica >= 0,
                "high watermark": data.high_watermark != position.high_watermark,
                "log start": data.log_start_offset != position.log_start,
            }
            self.seen.update(name for name, is_true in facts.items() if is_true)
            if is_first or any(facts.values()):
                changed.append((key, data))
            else:
                self.seen["no news"] += 1
            position.high_watermark = -1 if has_failed else data.high_watermark
            position.log_start = data.log_start_offset
            if data.records and not is_first:
                self.positions[key] = self.positions.pop(key)
        return changed

    # Changes of the client

    def follow(self, results: list[Entry]) -> None:
        """Advance past records and correct what caused an error, mostly."""
        for key, data in results:
            position = self.positions[key]
            if self.rng.random() < 0.3:
                continue
            if data.records:
                end = (data.last_stable_offset, data.high_watermark)[self.limits.isolation == 0]
                position.offset = max(end, position.offset)
            elif data.diverging_epoch.epoch >= 0:
                position.offset = data.diverging_epoch.end_offset
                position.last_fetched_epoch = data.diverging_epoch.epoch
            elif data.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                self.forget(key)
                continue
            elif data.error_code:
                self.seek(key)
                position.leader_epoch, position.max_bytes = -1, 1 << 20
            elif data.preferred_read_replica >= 0:
                self.limits.rack = ""
            self.named.add(key)

    def forget(self, key: Key) -> None:
        del self.positions[key]
        self.named.discard(key)
        if self.session != (0, 0):
            self.forgotten.add(key)

    def seek(self, key: Key) -> None:
        """Go to a place in or near the log, mostly to its end."""
        position = self.positions[key]
        found = self.server.state.topics.find(key.topic, key.topic_id)
        if found is None or key.partition >= len(found.partitions):
            return
        partition = found.partitions[key.partition]
        log = partition.log
        position.offset = self.rng.choice([log.start_offset, log.end_offset, log.end_offset])
        position.offset = max(0, position.offset + self.rng.choice([0, 0, 0, 0, -1, 1]))
        epoch = partition.leader_epoch
        position.leader_epoch = self.rng.choice([-1, -1, epoch, epoch, epoch + 1])
        position.last_fetched_epoch = self.rng.choice([-1, -1, -1, epoch, epoch - 1])
        position.max_bytes = self.rng.choice([*[1 << 20] * 6, 100, 0, -1])
        self.named.add(key)

    def key(self) -> Key:
        """Return a partition that may exist."""
        topic = self.rng.choice(list(TOPICS))
        number = self.rng.randrange(TOPICS[topic] + 1)
        if self.limits.version < 13:
            return Key(topic, bytes(16), number)
        found = self.server.state.topics.get(topic)
        return Key("", b"x" * 16 if found is None else found.id, number)

    def add_partitions(self) -> None:
        for _ in range(3):
            key = self.key()
            if key not in self.positions and key not in self.forgotten:
                self.positions[key] = Position()
                self.seek(key)
                self.named.add(key)

    def change_client(self) -> None:
        rng, limits = self.rng, self.limits
        key = rng.choice(list(self.positions)) if self.positions else None
        match rng.randrange(15):
            case 0 | 1:
                self.add_partitions()
            case 2 | 3 | 4 if key is not None:
                self.seek(key)
            case 5 if key is not None:
                self.forget(key)
            case 6:
                limits.isolation = rng.randrange(2)
            case 7 | 8:
                limits.rack = rng.choice(["", *RACKS])
            case 9 | 10:
                limits.user = rng.choice(USERS)
            case 11 | 12:
                limits.version = rng.choice(VERSIONS[limits.version >= 13])
            case 13:
                limits.min_bytes = rng.choice([0, *[1] * 6, 200])
            case 14:
                limits.max_bytes = rng.choice([1 << 20, 1 << 20, 150, 0])

    # Changes of the cluster

    def batch(self, **options: int) -> RecordBatch:
        records = [NewRecord(1000, b"k%d" % self.rng.randrange(3), b"v")] * self.rng.randint(1, 3)
        return RecordBatch.of(encode_batch(records, **options))  # type: ignore[arg-type]

    def append(self, partition: Partition) -> None:
        partition.append(self.batch(), 1000)

    def append_in_transaction(self, partition: Partition) -> None:
        batch = self.batch(producer_id=self.rng.randrange(2), producer_epoch=0, transactional=True)
        partition.log.append_coordinated(batch, partition.leader_epoch)

    def end_transaction(self, partition: Partition) -> None:
        for producer_id in range(2):
            marker = Marker(producer_id, 0, committed=self.rng.random() < 0.5, coordinator_epoch=0)
            partition.log.append_marker(marker, partition.leader_epoch, 1000)

    def delete_records(self, partition: Partition) -> None:
        log = partition.log
        log.advance_start(self.rng.randint(log.start_offset, log.end_offset))

    def compact(self, partition: Partition) -> None:
        partition.log.compact(1000, 0)

    def move_leader(self, partition: Partition) -> None:
        state = self.server.state
        live = [node for node in partition.replicas if state.is_live(node)]
        if live:
            self.server.state.move_leader(partition, self.rng.choice([live[0], *live]))

    def lag(self, partition: Partition) -> None:
        followers = [node for node in partition.replicas if node != partition.leader]
        if followers:
            node, in_sync = min(followers), self.rng.random() < 0.5
            self.server.state.start_lag(partition, node, in_sync=in_sync)

    def catch_up(self, partition: Partition) -> None:
        for node in list(partition.lags):
            self.server.state.controller.set_lag(partition, node, None)

    def reassign(self, partition: Partition) -> None:
        others = self.rng.sample([2, 3], self.rng.randint(0, 2))
        replicas = [1, *others] if not others or self.rng.random() < 0.8 else others
        self.server.state.controller.reassign(partition, replicas)

    def change_brokers(self) -> None:
        node = self.rng.choice([2, 3])
        if node in self.server.brokers:
            self.server.kill_broker(node)
        else:
            self.server.start_broker(node)

    def change_acls(self) -> None:
        authorizer, acl = self.server.state.authorizer, self.rng.choice(ACLS)
        assert authorizer is not None
        if not authorizer.add([acl]):
            authorizer.remove([acl])
        if self.rng.random() < 0.5:
            authorizer.remove(ACLS)

    def change_topics(self) -> None:
        state, name = self.server.state, self.rng.choice(list(TOPICS))
        topic = state.topics.get(name)
        if topic is None:
            state.create_topic(name, TOPICS[name])
        elif len(topic.partitions) == TOPICS[name]:
            state.add_partitions(topic, TOPICS[name] + 1)
        elif self.rng.random() < 0.5:
            state.delete_topic(topic)

    def change_cluster(self) -> None:
        rng = self.rng
        for_partition = (
            *[self.append] * 6,
            *[self.append_in_transaction] * 2,
            *[self.end_transaction] * 3,
            self.delete_records,
            self.compact,
            *[self.move_leader] * 2,
            *[self.lag] * 2,
            *[self.catch_up] * 2,
            *[self.reassign] * 2,
        )
        for_all = (self.change_brokers, self.change_acls, self.change_topics)
        number = rng.randrange(len(for_partition) + 2 * len(for_all))
        if number >= len(for_partition):
            for_all[number % len(for_all)]()
        elif partitions := list(self.server.state.topics.partitions()):
            for_partition[number](rng.choice(partitions))

    def check_watches(self) -> None:
        """Check that at most one watch is left for each partition of the session."""
        partitions = list(self.server.state.topics.partitions())
        count = sum(len(partition.log.watchers) for partition in partitions)
        assert count <= len(self.positions) + len(self.forgotten)


async def run(seed: int, steps: int) -> Counter[str]:
    rng = random.Random(seed)
    rights = Authorization(allow_everyone_if_no_acl_found=True)
    async with MemoryCluster(
        brokers=3,
        racks=RACKS,
        topics=TOPICS,
        security=Security(authorization=rights),
    ) as cluster:
        assert cluster._server is not None
        world = World(cluster._server, rng, Limits(rng.choice(VERSIONS[rng.random() < 0.5])))
        for topic in ("t", "u"):
            for number in range(TOPICS[topic]):
                cluster.move_leader(topic, number, rng.choice([1, 1, 2]))
        world.add_partitions()
        for _ in range(steps):
            if rng.random() < 0.6:
                world.change_cluster()
            if rng.random() < 0.4:
                world.change_client()
            await world.compare(rng.randrange(4))
            world.check_watches()
        return world.seen


@pytest.mark.parametrize("seed", range(20))
def test_session_responds_as_a_full_walk_does(seed: int) -> None:
    seen = run_virtual(run, seed, 150)
    assert seen["no news"]
    assert seen["records"]
