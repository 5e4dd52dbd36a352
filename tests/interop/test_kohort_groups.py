"""Groups of kohort's members alone, on both clusters."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial

import pytest

import kohort
from kohort import CommitFailedError, ConsumerRebalanceListener, TopicPartition
from kohort.errors import FencedInstanceIdError, UnknownTopicOrPartitionError
from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.interop.members import Member, Members, assert_read_once, shares
from tests.interop.peers import APIS, Settings
from tests.interop.reading import consumer, idle, join, read
from tests.interop.waiting import wait_until
from tests.support.kafka_server import KafkaServer

PARTITIONS = 6
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Unique = Callable[[str], str]


class Calls(ConsumerRebalanceListener):
    """Listener that keeps its calls, and may call a function when partitions are revoked."""

    def __init__(self, on_revoked: Callable[[], None] = lambda: None) -> None:
        self.calls: list[tuple[str, frozenset[int]]] = []
        self._on_revoked = on_revoked

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.calls.append(("revoked", frozenset(tp.partition for tp in revoked)))
        self._on_revoked()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.calls.append(("assigned", frozenset(tp.partition for tp in assigned)))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self.calls.append(("lost", frozenset(tp.partition for tp in lost)))


@pytest.mark.long  # three members, one after the other
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_three_members_share_and_go_on_when_one_leaves(
    broker: Broker, members: Members, unique: Unique, api: str, strategy: str
) -> None:
    topic, group = broker.create_topic(unique("three"), PARTITIONS), unique("three")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(50)
    three = [
        members.join(APIS[api], Settings(broker.bootstrap_servers, topic, group, name, strategy))
        for name in ("one", "two", "three")
    ]
    members.wait_until(shares(three, [2, 2, 2]), feed.start)
    described = broker.describe(group)
    assert described.state == "STABLE"
    assert {name: len(own) for name, own in described.members.items()} == {
        "one": 2,
        "two": 2,
        "three": 2,
    }
    three[0].leave()
    members.wait_until(shares(three[1:], [3, 3]), feed.start)
    feed.write(20)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once(three, feed.written)
    assert broker.committed(group) == feed.ends()
    assert broker.describe(group).state == "EMPTY"


@pytest.mark.long  # each tool is a further JVM
@pytest.mark.real_kafka
def test_kafkas_own_tool_describes_the_group(
    broker: Broker, kafka: KafkaServer, members: Members, unique: Unique
) -> None:
    topic, group = broker.create_topic(unique("told"), PARTITIONS), unique("told")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(10)
    three = [
        members.join(APIS["sync"], Settings(broker.bootstrap_servers, topic, group, name))
        for name in ("one", "two", "three")
    ]

    def described() -> dict[int, tuple[str, int, int, int]]:
        """Return client id, committed offset, end and lag of each partition."""
        arguments = ("--bootstrap-server", broker.bootstrap_servers, "--group", group)
        done = kafka.tool(GROUP_COMMAND, *arguments, "--describe")
        assert done.returncode == 0, done.stderr
        found = {}
        for line in done.stdout.splitlines():
            words = line.split()
            if words[:2] == [group, topic]:
                partition, committed, end, lag = map(int, words[2:6])
                found[partition] = (words[-1], committed, end, lag)
        return found

    def owners(some: Iterable[Member]) -> dict[int, str]:
        return {partition: member.name for member in some for partition in member.owned}

    members.wait_until(shares(three, [2, 2, 2]))
    members.wait_until(lambda: members.count() >= len(feed.written))
    for member in three:
        member.call(lambda peer: peer.commit())
    assert described() == {p: (name, 10, 10, 0) for p, name in owners(three).items()}

    three[1].leave()
    two = [three[0], three[2]]
    members.wait_until(shares(two, [3, 3]))
    feed.write(5)
    members.wait_until(lambda: members.count() >= len(feed.written))
    for member in two:
        member.call(lambda peer: peer.commit())
    assert described() == {p: (name, 15, 15, 0) for p, name in owners(two).items()}
    assert set(owners(two)) == set(range(PARTITIONS))


def test_the_listener_hears_the_whole_story(broker: Broker, unique: Unique) -> None:
    topic, group = broker.create_topic(unique("story"), PARTITIONS), unique("story")
    first, second = Calls(), Calls()
    everything = frozenset(range(PARTITIONS))
    with consumer(broker.bootstrap_servers, group_id=group) as one:
        one.subscribe([topic], listener=first)
        join(one, sizes=(6,))
        with consumer(broker.bootstrap_servers, group_id=group) as two:
            two.subscribe([topic], listener=second)
            join(one, two, sizes=(3, 3))
            mine = frozenset(tp.partition for tp in one.assignment())
        join(one, sizes=(6,))
    assert first.calls == [
        ("assigned", everything),
        ("revoked", everything),
        ("assigned", mine),
        ("revoked", mine),
        ("assigned", everything),
        ("revoked", everything),
    ]
    assert second.calls == [("assigned", everything - mine), ("revoked", everything - mine)]


def test_committing_in_listener_hands_partitions_over_exactly(
    broker: Broker, unique: Unique
) -> None:
    topic, group = broker.create_topic(unique("handed"), PARTITIONS), unique("handed")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(20)
    options = {"group_id": group, "max_poll_records": 7}
    places: list[tuple[int, int]] = []
    with (
        consumer(broker.bootstrap_servers, **options) as one,
        consumer(broker.bootstrap_servers, **options) as two,
    ):
        for reader in (one, two):
            reader.subscribe([topic], listener=Calls(reader.commit))

        def poll(*readers: kohort.KafkaConsumer) -> None:
            for reader in readers:
                for records in reader.poll(timeout_ms=50).values():
                    places.extend((r.partition, r.offset) for r in records)

        wait_until(lambda: len(places) >= 14, partial(poll, one))
        wait_until(lambda: len(places) >= len(feed.written), partial(poll, one, two))
        assert len(one.assignment()) == len(two.assignment()) == 3
    assert sorted(places) == sorted(feed.written)
    assert broker.committed(group) == feed.ends()


def test_a_commit_after_the_partitions_went_elsewhere_fails(broker: Broker, unique: Unique) -> None:
    topic, group = broker.create_topic(unique("late")), unique("late")
    broker.write(topic, b"0")
    only = frozenset({0})
    options = {"group_id": group, "max_poll_interval_ms": 3000, "session_timeout_ms": 3000}
    with consumer(broker.bootstrap_servers, **options) as slow:
        calls = Calls()
        slow.subscribe([topic], listener=calls)
        assert [r.value for r in read(slow, 1)] == [b"0"]
        with consumer(broker.bootstrap_servers, topic, group_id=group) as other:
            # The slow one does not poll, so it leaves the group, and its record is read again.
            assert [r.value for r in read(other, 1)] == [b"0"]
            with pytest.raises(CommitFailedError):
                slow.commit({TopicPartition(topic, 0): 1})
            other.commit()
            broker.write(topic, b"1")
        assert [r.value for r in read(slow, 1)] == [b"1"]
        slow.commit()
        assert broker.committed(group) == {(topic, 0): 2}
    assert calls.calls == [
        ("assigned", only),
        ("lost", only),
        ("assigned", only),
        ("revoked", only),
    ]


def test_a_member_that_is_busy_keeps_its_place(broker: Broker, unique: Unique) -> None:
    topic, group = broker.create_topic(unique("busy"), PARTITIONS), unique("busy")
    options = {"group_id": group, "session_timeout_ms": 3000}
    with (
        consumer(broker.bootstrap_servers, topic, client_id="busy", **options) as busy,
        consumer(broker.bootstrap_servers, topic, client_id="idle", **options) as other,
    ):
        join(busy, other, sizes=(3, 3))
        generation = other.group_metadata().generation_id
        for _ in range(100):  # five seconds, more than a session
            idle(other)()
        assert other.group_metadata().generation_id == generation
        assert len(broker.describe(group).members["busy"]) == 3
        busy.commit(dict.fromkeys(busy.assignment(), 0))


def test_a_killed_members_partitions_are_taken_over(
    broker: Broker, members: Members, unique: Unique
) -> None:
    topic, group = broker.create_topic(unique("killed"), PARTITIONS), unique("killed")
    feed = broker.feed(topic, PARTITIONS)
    settings = Settings(broker.bootstrap_servers, topic, group, "left")
    member = members.join(APIS["sync"], settings)
    program = (
        "import kohort\n"
        f"consumer = kohort.KafkaConsumer({topic!r}, group_id={group!r},\n"
        f"    bootstrap_servers={broker.bootstrap_servers!r}, session_timeout_ms=1500,\n"
        "    heartbeat_interval_ms=200, enable_auto_commit=False)\n"
        "while True:\n"
        "    consumer.poll(timeout_ms=100)\n"
        "    if len(consumer.assignment()) == 3:\n"
        "        print('here', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
            members.wait_until(shares([member], [3]), feed.start)
        finally:
            process.send_signal(signal.SIGKILL)
    members.wait_until(shares([member], [6]), feed.start)
    feed.write(5)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once([member], feed.written)  # the other one committed nothing


def test_a_static_member_comes_back_to_its_partitions(broker: Broker, unique: Unique) -> None:
    topic, group = broker.create_topic(unique("static"), PARTITIONS), unique("static")
    calls = Calls()

    def settled() -> dict[str, int]:
        return {name: len(own) for name, own in broker.describe(group).members.items()}

    with consumer(broker.bootstrap_servers, group_id=group, client_id="stays") as stays:
        stays.subscribe([topic], listener=calls)
        options = {"group_id": group, "group_instance_id": "a", "client_id": "static"}
        static = consumer(broker.bootstrap_servers, topic, **options)
        join(stays, static, sizes=(3, 3))
        # The assignment is known before the listener has been called for it.
        kept = ("assigned", frozenset(tp.partition for tp in stays.assignment()))
        wait_until(lambda: calls.calls[-1] == kept, lambda: stays.poll(timeout_ms=50))
        before = static.assignment(), static.group_metadata().generation_id
        heard = list(calls.calls)
        static.close()
        assert settled() == {"stays": 3, "static": 3}
        with consumer(broker.bootstrap_servers, topic, **options) as back:
            join(back, sizes=(3,))
            assert (back.assignment(), back.group_metadata().generation_id) == before
            stays.poll(timeout_ms=500)
            assert calls.calls == heard
            assert settled() == {"stays": 3, "static": 3}


def test_of_two_with_the_same_instance_id_the_older_is_fenced(
    broker: Broker, unique: Unique
) -> None:
    topic, group = broker.create_topic(unique("twins"), PARTITIONS), unique("twins")
    options = {"group_id": group, "group_instance_id": "a"}
    with consumer(broker.bootstrap_servers, topic, **options) as older:
        join(older, sizes=(6,))
        with consumer(broker.bootstrap_servers, topic, **options) as newer:
            join(newer, sizes=(6,))
            with pytest.raises(FencedInstanceIdError):
                wait_until(lambda: False, idle(older))
            newer.poll(timeout_ms=300)
            assert len(newer.assignment()) == 6


def test_new_topics_and_partitions_are_taken_up(broker: Broker, unique: Unique) -> None:
    prefix = unique("pattern")
    broker.create_topic(f"{prefix}-a", 1)
    options = {"group_id": unique("g"), "enable_auto_commit": True, "metadata_max_age_ms": 300}
    with consumer(broker.bootstrap_servers, **options) as one:
        one.subscribe(pattern=re.escape(prefix) + "-.*")
        join(one, sizes=(1,))
        broker.create_topic(f"{prefix}-b", 1)
        broker.write(f"{prefix}-b", b"new topic")
        assert [r.value for r in read(one, 1)] == [b"new topic"]
        broker.add_partitions(f"{prefix}-a", 3)
        broker.write(f"{prefix}-a", b"new partition", partition=2)
        assert [r.value for r in read(one, 1)] == [b"new partition"]
        assert len(one.assignment()) == 4


def test_a_topic_that_is_not_there_is_told_once_and_waited_for(
    broker: Broker, unique: Unique
) -> None:
    topic = unique("later")
    options = {"group_id": unique("later"), "metadata_max_age_ms": 300}
    with consumer(broker.bootstrap_servers, topic, **options) as reader:
        with pytest.raises(UnknownTopicOrPartitionError, match=topic):
            reader.poll(timeout_ms=5000)
        assert reader.poll(timeout_ms=200) == {}
        broker.create_topic(topic)
        broker.write(topic, b"there")
        assert [r.value for r in read(reader, 1)] == [b"there"]


def test_a_deleted_topic_leaves_the_rest_alone(broker: Broker, unique: Unique) -> None:
    prefix = unique("deleted")
    for name in ("a", "b"):
        broker.create_topic(f"{prefix}-{name}", 2)
    with consumer(broker.bootstrap_servers, group_id=unique("g"), metadata_max_age_ms=300) as one:
        one.subscribe(pattern=re.escape(prefix) + "-.*")
        join(one, sizes=(4,))
        broker.delete_topic(f"{prefix}-a")
        wait_until(lambda: len(one.assignment()) == 2, idle(one))
        broker.write(f"{prefix}-b", b"still", partition=1)
        assert [r.value for r in read(one, 1)] == [b"still"]


def test_the_leader_is_the_first_to_come(cluster: Cluster, unique: Unique) -> None:
    topic, group = unique("leads"), unique("leads")
    cluster.create_topic(topic, PARTITIONS)
    options = {"group_id": group, "client_id": "first"}
    with consumer(cluster.bootstrap_servers, topic, **options) as first:
        join(first, sizes=(6,))
        one_generation = cluster.group(group)
        assert one_generation.generation == 1
        with consumer(cluster.bootstrap_servers, topic, group_id=group) as second:
            join(first, second, sizes=(3, 3))
            both = cluster.group(group)
            assert both.generation == 2
            assert both.leader == one_generation.leader == first.group_metadata().member_id


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_members_that_come_and_go_read_everything_once(
    broker: Broker, members: Members, unique: Unique, seed: int
) -> None:
    rng = random.Random(seed)
    topic, group = broker.create_topic(unique("churn"), PARTITIONS), unique("churn")
    feed = broker.feed(topic, PARTITIONS)
    there: list[Member] = []
    for step in range(15):
        if len(there) < 2 or (len(there) < 5 and rng.random() < 0.5):
            make = APIS[rng.choice(list(APIS))]
            there.append(
                members.join(make, Settings(broker.bootstrap_servers, topic, group, f"m{step}"))
            )
        else:
            there.pop(rng.randrange(len(there))).leave()
        for _ in range(rng.randrange(30)):
            feed.start()
    feed.write(5)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once(members.all, feed.written)
    assert broker.committed(group) == feed.ends()
