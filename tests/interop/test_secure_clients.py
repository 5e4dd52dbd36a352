"""Third-party clients that log in to the in-process cluster and share a group with kohort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kohort.testing import Cluster
from tests.interop.franz import FranzMember
from tests.interop.java_peer import Java
from tests.interop.members import Members, assert_read_once, shares
from tests.interop.peers import AioKafka, Confluent, KafkaPython, Kohort, Make, Settings
from tests.interop.securing import WAYS, Entry, principal, security
from tests.interop.waiting import look_again_soon, wait_until

TOPIC, PARTITIONS, RECORDS = "orders", 6, 60


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={TOPIC: PARTITIONS}, security=security()) as running:
        running.produce(TOPIC, [f"{n}" for n in range(RECORDS)])
        yield running


def _kohort(secured: Cluster, group: str, entry: Entry) -> Settings:
    """Return settings with which kohort uses the same entry as the other client."""
    servers = secured.bootstrap_servers_of(entry.way.listener)
    return Settings(servers, TOPIC, group, "kohort", "range", more=entry.kohort())


def _written(secured: Cluster) -> dict[tuple[int, int], bytes]:
    return {
        (partition, record.offset): record.value or b""
        for partition in range(PARTITIONS)
        for record in secured.records(TOPIC, partition)
    }


def _share(secured: Cluster, members: Members, make: Make, entry: Entry, more: object) -> None:
    """Let the client and kohort share a group: three partitions each, every record read once."""
    way = entry.way
    group = f"{way.listener}-{way.mechanism}-{make}"
    assert isinstance(more, dict)
    settings = Settings(
        secured.bootstrap_servers_of(way.listener), TOPIC, group, "other", "range", more=more
    )
    seen: set[str] = set()
    with secured.on("JoinGroup", lambda call: seen.add(call.principal), client_id="other"):
        other = members.join(make, settings)
        members.wait_until(shares([other], [PARTITIONS]), look_again_soon)
        assert seen == {principal(way, entry.certificate)}
    kohort = members.join(Kohort, _kohort(secured, group, entry))
    members.wait_until(shares([other, kohort], [3, 3]), look_again_soon)
    before = len(_written(secured))
    members.wait_until(lambda: members.count() >= before)
    members.leave()
    assert_read_once([other, kohort], _written(secured))


CLIENTS: dict[str, tuple[Make, Callable[[Entry], object]]] = {
    "confluent-kafka": (Confluent, Entry.confluent),
    "aiokafka": (AioKafka, Entry.aiokafka),
    "kafka-python": (KafkaPython, Entry.kafka_python),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_client_logs_in_and_shares_a_group(
    secured: Cluster, members: Members, client: str, way: str
) -> None:
    make, options = CLIENTS[client]
    entry = Entry.to(secured, WAYS[way])
    _share(secured, members, make, entry, options(entry))


@pytest.mark.real_kafka
@pytest.mark.parametrize("way", ["mTLS", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_java_logs_in_and_shares_a_group(secured: Cluster, members: Members, way: str) -> None:
    entry = Entry.to(secured, WAYS[way])
    _share(secured, members, Java, entry, entry.java())


@pytest.mark.long
@pytest.mark.real_kafka
@pytest.mark.parametrize("way", ["TLS", "PLAIN", "SCRAM-SHA-256"])
def test_java_logs_in_by_the_other_ways(secured: Cluster, members: Members, way: str) -> None:
    entry = Entry.to(secured, WAYS[way])
    _share(secured, members, Java, entry, entry.java())


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS)
def test_franz_go_logs_in_and_shares_a_group(
    secured: Cluster, members: Members, program: str, way: str
) -> None:
    entry = Entry.to(secured, WAYS[way])
    flags, environment = entry.franz()
    group = f"franz-{way}"
    flags |= {
        "bootstrap": secured.bootstrap_servers_of(entry.way.listener),
        "topic": TOPIC,
        "group": group,
        "strategy": "range",
    }
    words = [f"-{name}={value}" for name, value in flags.items()]
    franz = FranzMember([program, *words, "consume"], environment)
    wait_until(lambda: len(franz.owned) == PARTITIONS)
    kohort = members.join(Kohort, _kohort(secured, group, entry))
    members.wait_until(lambda: len(franz.owned) == 3 and len(kohort.owned) == 3, look_again_soon)
    wait_until(partial(_all_read, franz, secured))
    franz.leave()
    assert kohort.reads == []


def _all_read(franz: FranzMember, secured: Cluster) -> bool:
    return set(franz.reads) == set(_written(secured))
