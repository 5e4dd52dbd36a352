"""Lives of groups on one cluster whose records are moved to another one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.cluster._transaction_router import stored_records
from kohort.broker.groups.consumer._metadata_hash import group_hash, topic_hash
from kohort.errors import ErrorCode
from kohort.protocol import encode
from kohort.protocol.messages import ConsumerGroupMetadataValue
from kohort.records import NewRecord, RecordBatch, encode_batch
from kohort.testing import Cluster
from tests.conformance.classic_consumers import ClassicConsumer, stable_consumers
from tests.conformance.consumers import (
    LEAVE_FOR_NOW,
    ConsumerMember,
    TopicPartitions,
    described,
    new_topic,
)
from tests.conformance.members import describe
from tests.conformance.offsets_log import TOPIC, GroupLog, Stored
from tests.conformance.probes.epoch_offsets import commit_as, fetch_as
from tests.conformance.probes.regexes import settle
from tests.conformance.probes.upgrading import views
from tests.conformance.session import READY_S, Session, produce_request

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
TOPICS = {"x": 6, "y": 2}
REBALANCE_MS = 300_000
"""Rebalance timeout that outlasts the restart of a broker."""
Observations = Iterator[tuple[str, object]]


@dataclass
class Life:
    """Groups with their members, on the cluster of ``session``."""

    session: Session
    consumers: dict[str, ConsumerMember] = field(default_factory=dict)
    classic: dict[str, ClassicConsumer] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> dict[str, bytes]:
        """Topic ids by label."""
        return {label: self.session.topic_id(name) for label, name in self.topics.items()}

    @property
    def groups(self) -> list[str]:
        of_classic = {one.group for one in self.classic.values()}
        return sorted(of_classic | {one.group for one in self.consumers.values()})

    def wait_loaded(self) -> None:
        """Wait until the coordinator has loaded the groups, which takes a moment after a start."""
        deadline = time.monotonic() + READY_S
        for group in self.groups:
            while describe(self.session, group).groups[0].error_code == LOADING:
                assert time.monotonic() < deadline, f"{group} is not loaded"
                time.sleep(0.02)

    def moved(self, session: Session) -> Life:
        """Return the same members for another cluster, whose topics have other ids."""
        topics = dict(self.topics)
        other = Life(session, {}, {}, topics)
        ids = {old: other.ids[label] for label, old in self.ids.items()}
        for name, one in self.consumers.items():
            target = [
                TopicPartitions(topic_id=ids[each.topic_id], partitions=each.partitions)
                for each in one.target
            ]
            other.consumers[name] = replace(one, session=session, target=target)
        for name, classic in self.classic.items():
            other.classic[name] = replace(classic, session=session)
        return other


def create_topics(session: Session) -> dict[str, str]:
    """Create the topics and return their names by label."""
    return {label: new_topic(session, label, size) for label, size in TOPICS.items()}


def live(session: Session) -> Life:
    """Create a group in the middle of a rebalance, one with a pattern, and a mixed one."""
    life = Life(session, topics=create_topics(session))
    x, y = life.topics["x"], life.topics["y"]
    a = ConsumerMember(session, session.group("moving"), "a", [x, y], assignor="range")
    a.rebalance_ms = REBALANCE_MS
    b = replace(a, id="b", instance="i")
    c, d = replace(a, id="c"), replace(a, id="d", instance="j")
    a.settle()
    commit_as(a, [0, 4])
    b.join()
    for one in (a, a, b, b):
        one.acknowledge()
    d.join()
    for one in (a, b, d, a, b, d):
        one.acknowledge()
    d.leave(LEAVE_FOR_NOW)
    commit_as(b, [2])
    c.join()
    a.beat()
    life.consumers |= {"a": a, "b": b, "c": c, "d": d}
    pattern = session.name("").replace(".", r"\.") + "[xy]"
    regex = ConsumerMember(session, session.group("pattern"), "regex", regex=pattern)
    regex.assignor = "range"
    regex.join()
    settle(regex, sum(TOPICS.values()))
    life.consumers["regex"] = regex
    old = ClassicConsumer(
        session,
        session.group("mixed"),
        instance="k",
        topics=[x],
        rebalance_ms=REBALANCE_MS,
        session_ms=120_000,
    )
    stable_consumers((old, {x: list(range(TOPICS["x"]))}))
    session.ask(old.commit_request(x, 9), 8)
    new = ConsumerMember(session, old.group, "new", [x], "l", assignor="range")
    new.join()
    old.heartbeat()
    old.rejoin({x: [0, 1, 2]})
    old.resync()
    new.beat()
    new.acknowledge()
    life.consumers["new"] = new
    life.classic["old"] = old
    empty = ConsumerMember(session, session.group("empty"), "e", [x])
    empty.settle()
    commit_as(empty, [1])
    empty.leave()
    life.consumers["empty"] = empty
    return life


def return_to_classic(session: Session) -> Life:
    """Create a group that has become classic, and whose members have not joined again."""
    life = Life(session, topics=create_topics(session))
    x = life.topics["x"]
    old = ClassicConsumer(
        session,
        session.group("returning"),
        instance="k",
        topics=[x],
        rebalance_ms=REBALANCE_MS,
        session_ms=120_000,
    )
    stable_consumers((old, {x: list(range(TOPICS["x"]))}))
    new = ConsumerMember(session, old.group, "new", [x], "l", assignor="range")
    new.join()
    old.rejoin({x: [0, 1, 2]})
    old.resync()
    new.beat()
    new.acknowledge()
    new.leave()
    life.classic["old"] = old
    return life


def go_on_without_rebalance(life: Life) -> Observations:
    """Let the remaining member go on. It owns half of the partitions."""
    old = life.classic["old"]
    life.wait_loaded()
    yield "loaded", views(life.session, old.group)
    yield "old beats", old.heartbeat()
    yield "old returns", replace(old, id="", generation=-1).join()
    yield "in the end", views(life.session, old.group)


def go_on(life: Life) -> Observations:
    """Continue with every group and yield the responses."""
    session, member = life.session, life.consumers
    x = life.topics["x"]
    life.wait_loaded()
    yield "before", described(session, *life.groups)
    for group in life.groups:
        yield f"offsets of {group}", fetch_as(session, group, None, None, -1)
    a, b, c, d = (member[name] for name in "abcd")
    for epoch in range(1, a.epoch + 2):
        answer = commit_as(a, [0], generation_id_or_member_epoch=epoch)
        yield f"a commits with epoch {epoch}", answer
    yield "a beats", a.beat()
    yield "a acknowledges", a.acknowledge()
    yield "b beats", b.beat()
    yield "b acknowledges", b.acknowledge()
    yield "c beats", c.beat()
    yield "c acknowledges", c.acknowledge()
    yield "d beats", d.beat()
    yield "d returns", replace(d, id="d again").join()
    yield "d joins as another", replace(d, id="thief").join()
    yield "moving", described(session, a.group)
    yield "a leaves", a.leave()
    for turn in range(2):
        yield f"{turn}. b goes on", b.beat()
        yield f"{turn}. b acknowledges", b.acknowledge()
        yield f"{turn}. c goes on", c.beat()
        yield f"{turn}. c acknowledges", c.acknowledge()
    yield "moved", described(session, a.group)
    regex = member["regex"]
    yield "regex beats", regex.beat()
    yield "regex sends all", regex.repeat()
    second = replace(regex, id="second", epoch=0, target=[])
    yield "a second one joins", second.join()
    yield "regex", described(session, regex.group)
    old, new = life.classic["old"], member["new"]
    yield "mixed", views(session, new.group)
    yield "old beats", old.heartbeat()
    yield "old commits", session.ask(old.commit_request(x, 10), 8)
    yield "old joins", old.rejoin({})
    yield "old syncs", old.resync()
    yield "new beats", new.beat()
    yield "new leaves", new.leave()
    yield "mixed no more", views(session, new.group)
    yield "old beats again", old.heartbeat()
    empty = member["empty"]
    yield "empty joins", empty.join(member_epoch=0, topic_partitions=[])
    yield "empty no more", described(session, empty.group)


# Records


def records_of(life: Life) -> dict[int, list[Stored]]:
    """Return the records of all groups by partition of ``__consumer_offsets``."""
    found: dict[int, list[Stored]] = {}
    for group in life.groups:
        log = GroupLog(life.session, group, from_start=True)
        found.setdefault(log.partition, []).extend(log.new())
    return found


def translated(records: list[Stored], life: Life, ids: Mapping[str, bytes]) -> list[NewRecord]:
    """Return the records with the topic ids of the other cluster, and the hashes of those."""
    translated = []
    now = int(time.time() * 1000)
    for record in records:
        key, value = record.raw
        for label, old in life.ids.items():
            if value is not None:
                value = value.replace(old, ids[label])
        if isinstance(record.value, ConsumerGroupMetadataValue) and record.value.metadata_hash:
            value = _with_hash(record.value, life, ids)
        translated.append(NewRecord(now, key, value))
    return translated


def _with_hash(value: ConsumerGroupMetadataValue, life: Life, ids: Mapping[str, bytes]) -> bytes:
    """Return the record of the group's epoch with the hash of the same topics there."""
    for labels in (("x",), ("x", "y")):
        hashes = [
            group_hash(
                {
                    life.topics[label]: topic_hash(
                        of[label], life.topics[label], [[]] * TOPICS[label]
                    )
                    for label in labels
                }
            )
            for of in (life.ids, ids)
        ]
        if value.metadata_hash == hashes[0]:
            changed = ConsumerGroupMetadataValue(epoch=value.epoch, metadata_hash=hashes[1])
            return b"\0\0" + encode(changed, 0)
    raise AssertionError(f"not the hash of any topics: {value}")


def write_to_kafka(session: Session, partition: int, records: list[NewRecord]) -> None:
    """Append to ``__consumer_offsets`` as the only client that may, Kafka's own."""
    request = produce_request(TOPIC, encode_batch(records), partition)
    answer = session.connect("__admin_client").ask(request, 9)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code == 0, answer


def write_to_cluster(cluster: Cluster, partition: int, records: list[NewRecord]) -> None:
    """Append to the log of the in-process cluster, and load its groups from it."""

    def write(server: ClusterServer) -> None:
        stored = server.state.topics._by_name[TOPIC].partitions[partition]
        stored.append(RecordBatch.of(encode_batch(records)), server.state.now_ms())
        coordinator = server.brokers[1].coordinator
        coordinator.unload(partition)
        coordinator.load(partition, *stored_records(stored.log))

    cluster._call(write)
