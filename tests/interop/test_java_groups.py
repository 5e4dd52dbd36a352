"""Groups of kafka-clients 4.3.1 on the in-process cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.testing import Cluster
from tests.interop.brokers import Broker, Feed
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members, assert_read_once, shares
from tests.interop.peers import FACES, Make, Settings
from tests.interop.test_shared_groups import share

pytestmark = pytest.mark.real_kafka
PARTITIONS = 6
Unique = Callable[[str], str]


@pytest.fixture
def ours(cluster: Cluster) -> Broker:
    return Broker(cluster.bootstrap_servers)


def test_two_java_members_share_a_group(ours: Broker, members: Members, unique: Unique) -> None:
    share(ours, members, [("java-1", Java), ("java-2", Java)], unique, first_leaves=True)


@pytest.mark.long
@pytest.mark.parametrize("java_first", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@pytest.mark.parametrize("face", FACES)
def test_java_and_kohort_share_a_group(
    broker: Broker, members: Members, unique: Unique, face: str, strategy: str, java_first: bool
) -> None:
    pair: list[tuple[str, Make]] = [("java", Java), ("kohort", FACES[face])]
    share(broker, members, pair if java_first else pair[::-1], unique, strategy)


def test_a_static_java_member_comes_back_to_what_it_had(
    cluster: Cluster, ours: Broker, members: Members, unique: Unique
) -> None:
    """It does not leave when it ends, and no rebalance tells of its return."""
    topic, group = ours.create_topic(unique("static"), PARTITIONS), unique("static")
    feed = ours.feed(topic, PARTITIONS)

    def settings(name: str) -> Settings:
        return Settings(cluster.bootstrap_servers, topic, group, name, instance=f"instance-{name}")

    stays = members.join(FACES["sync"], settings("kohort"))
    goes = members.join(Java, settings("java"))
    members.wait_until(shares([stays, goes], [3, 3]))
    read_all(members, feed)
    had, generation = goes.owned, cluster.group(group).generation
    goes.leave()
    assert [m.group_instance_id for m in cluster.group(group).members].count("instance-java") == 1
    feed.write(10)
    back = members.join(Java, settings("java"))
    members.wait_until(lambda: back.owned == had)
    read_all(members, feed)
    assert cluster.group(group).generation == generation
    members.leave()
    assert_read_once([stays, goes, back], feed.written)


@pytest.mark.long
def test_java_members_rebalance_cooperatively(
    cluster: Cluster, ours: Broker, members: Members, unique: Unique
) -> None:
    """Nothing is written meanwhile: what the tool reads then it may fail to commit, as on Kafka."""
    topic, group = ours.create_topic(unique("cooperative"), PARTITIONS), unique("cooperative")
    feed = ours.feed(topic, PARTITIONS)
    three: list[Member] = []
    for n, sizes in enumerate([[6], [3, 3], [2, 2, 2]]):
        settings = Settings(
            cluster.bootstrap_servers, topic, group, f"java-{n}", "cooperative-sticky"
        )
        before = [member.owned for member in three]
        three.append(members.join(Java, settings))
        members.wait_until(shares(three, sizes))
        assert all(m.owned <= had for m, had in zip(three, before, strict=False))
        read_all(members, feed)
    assert cluster.group(group).protocol == "cooperative-sticky"
    had = three[1].owned
    three[0].leave()
    members.wait_until(shares(three[1:], [3, 3]))
    assert three[1].owned > had
    read_all(members, feed)
    members.leave()
    assert_read_once(three, feed.written)
    assert ours.committed(group) == feed.ends()


def read_all(members: Members, feed: Feed) -> None:
    """Write some, and return when all that was written has been read."""
    feed.write(10)
    members.wait_until(lambda: members.count() >= len(feed.written))
