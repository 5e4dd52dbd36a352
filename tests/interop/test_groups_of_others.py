"""Groups of two third-party clients of the same kind on the in-process cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.testing import Cluster
from tests.interop.brokers import Broker, Feed
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members, assert_read_once, shares
from tests.interop.peers import OTHERS, Make, Settings

PARTITIONS = 6
Unique = Callable[[str], str]
JAVA = pytest.param("java", marks=pytest.mark.real_kafka)
EVERYBODY: dict[str, Make] = {**OTHERS, "java": Java}


@pytest.fixture
def ours(cluster: Cluster) -> Broker:
    return Broker(cluster.bootstrap_servers)


@pytest.mark.long  # each client is started twice
@pytest.mark.parametrize("client", [*OTHERS, JAVA])
def test_a_static_member_comes_back_to_what_it_had(
    cluster: Cluster, ours: Broker, members: Members, unique: Unique, client: str
) -> None:
    """The member does not leave when it ends, and its return causes no rebalance."""
    topic, group = ours.create_topic(unique("static"), PARTITIONS), unique("static")
    feed = ours.feed(topic, PARTITIONS)

    def join(name: str) -> Member:
        settings = Settings(
            cluster.bootstrap_servers,
            topic,
            group,
            name,
            instance=f"instance-{name}",
            session_ms=30_000,  # a JVM may need long to start again
        )
        return members.join(EVERYBODY[client], settings)

    stays = join("stays")
    members.wait_until(shares([stays], [PARTITIONS]))
    goes = join("goes")
    members.wait_until(shares([stays, goes], [3, 3]))
    read_all(members, feed)
    had, generation = goes.owned, cluster.group(group).generation
    goes.leave()
    assert [m.group_instance_id for m in cluster.group(group).members].count("instance-goes") == 1
    feed.write(10)
    back = join("goes")
    members.wait_until(lambda: back.owned == had)
    read_all(members, feed)
    assert cluster.group(group).generation == generation
    members.leave()
    assert_read_once([stays, goes, back], feed.written)


@pytest.mark.parametrize(
    "client",
    [
        "confluent-kafka",
        "kafka-python",
        pytest.param("java", marks=[pytest.mark.long, pytest.mark.real_kafka]),
    ],
)
def test_members_rebalance_cooperatively(
    cluster: Cluster, ours: Broker, members: Members, unique: Unique, client: str
) -> None:
    """No records are written in a rebalance, because Java's tool may fail to commit those."""
    topic, group = ours.create_topic(unique("cooperative"), PARTITIONS), unique("cooperative")
    feed = ours.feed(topic, PARTITIONS)
    three: list[Member] = []
    for n, sizes in enumerate([[6], [3, 3], [2, 2, 2]]):
        settings = Settings(
            cluster.bootstrap_servers, topic, group, f"{client}-{n}", "cooperative-sticky"
        )
        before = [member.owned for member in three]
        three.append(members.join(EVERYBODY[client], settings))
        members.wait_until(shares(three, sizes))
        assert all(m.owned <= had for m, had in zip(three, before, strict=False))
        read_all(members, feed)
    assert cluster.group(group).protocol == "cooperative-sticky"
    had = three[1].owned
    three[0].leave()
    members.wait_until(shares(three[1:], [3, 3]))
    assert three[1].owned > had
    read_all(members, feed)
    for member in three[1:]:
        # When the others leave, librdkafka may be in a rebalance, in which its last commit is
        # refused. Apache Kafka refuses it, too.
        member.call(lambda peer: peer.commit())
    members.leave()
    assert_read_once(three, feed.written)
    assert ours.committed(group) == feed.ends()


def read_all(members: Members, feed: Feed) -> None:
    """Write some records, and return when all written records have been read."""
    feed.write(10)
    members.wait_until(lambda: members.count() >= len(feed.written))
