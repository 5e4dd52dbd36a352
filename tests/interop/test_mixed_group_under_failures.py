"""One group of four different clients, while members leave and return and brokers are killed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from kohort.protocol import Response, decode_from
from kohort.protocol.messages import ConsumerProtocolAssignment, SyncGroupRequest, SyncGroupResponse
from kohort.testing import Call, Cluster
from tests.interop.brokers import Broker
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members, fair
from tests.interop.peers import APIS, OTHERS, Make, Settings
from tests.interop.waiting import look_again_soon

pytestmark = [pytest.mark.long, pytest.mark.real_kafka]  # a minute of failures
TOPIC, GROUP, PARTITIONS, BROKERS = "orders", "everybody", 8, 3
QUIET = {"log_level": 2}  # of librdkafka: ended connections to a broker are expected here
CLIENTS: dict[str, Make] = {
    "java": Java,
    "confluent-kafka": OTHERS["confluent-kafka"],
    "aiokafka": OTHERS["aiokafka"],
    "kohort": APIS["sync"],
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=BROKERS, topics={TOPIC: PARTITIONS}, auto_create_topics=False) as running:
        yield running


class Witness:
    """Record of assignments by generation and member id."""

    def __init__(self) -> None:
        self.given: dict[int, dict[str, frozenset[int]]] = {}
        self.changed: list[tuple[int, str]] = []

    async def __call__(self, call: Call) -> Response | None:
        answer = await call.proceed()
        asked = call.message
        assert isinstance(asked, SyncGroupRequest) and isinstance(answer, SyncGroupResponse)
        if answer.error_code == 0:
            generation = self.given.setdefault(asked.generation_id, {})
            partitions = _partitions(bytes(answer.assignment))
            if generation.setdefault(asked.member_id, partitions) != partitions:
                self.changed.append((asked.generation_id, asked.member_id))
        return answer

    def assert_one_owner_each(self) -> None:
        """Check that no partition had two owners in one generation, or got one later in it."""
        assert self.changed == []
        for generation, members in self.given.items():
            given = sorted(itertools.chain.from_iterable(members.values()))
            assert len(given) == len(set(given)), (generation, members)


def _partitions(assignment: bytes) -> frozenset[int]:
    if not assignment:
        return frozenset()
    version = int.from_bytes(assignment[:2], "big")
    decoded, _ = decode_from(ConsumerProtocolAssignment, min(version, 3), assignment, 2)
    return frozenset(p for topic in decoded.assigned_partitions for p in topic.partitions)


def survive(cluster: Cluster, members: Members, rounds: int) -> None:
    """Restart one client and one broker in each round.

    The broker is the group's coordinator in every other round. It is down while the member leaves,
    while it returns, or both.
    """
    witness = Witness()
    cluster.on("SyncGroup", witness)
    feed = Broker(cluster.bootstrap_servers).feed(TOPIC, PARTITIONS)

    def join(name: str) -> Member:
        more = QUIET if name == "confluent-kafka" else {}
        settings = Settings(
            cluster.bootstrap_servers, TOPIC, GROUP, name, strategy="roundrobin", more=more
        )
        return members.join(CLIENTS[name], settings)

    def meanwhile() -> None:
        feed.start()
        look_again_soon()

    present = {name: join(name) for name in CLIENTS}
    members.wait_until(fair(present.values(), PARTITIONS), meanwhile)
    for number, name in zip(range(rounds), itertools.cycle(CLIENTS), strict=False):
        coordinator = cluster.coordinator(GROUP)
        dies = coordinator if number % 2 == 0 else (coordinator + 1) % BROKERS
        feed.start(3)
        if number % 3 != 2:
            cluster.kill_broker(dies)
        present.pop(name).leave()
        members.wait_until(fair(present.values(), PARTITIONS), meanwhile)
        if number % 3 == 0:
            cluster.start_broker(dies)
        elif number % 3 == 2:
            cluster.kill_broker(dies)
        present[name] = join(name)
        members.wait_until(fair(present.values(), PARTITIONS), meanwhile)
        if number % 3 != 0:
            cluster.start_broker(dies)
        feed.write(3)

    everything = set(feed.written)
    members.wait_until(lambda: everything <= read_by(members))
    while present:
        present.popitem()[1].leave()
        members.wait_until(lambda: not present or fair(present.values(), PARTITIONS)())
    written = feed.written
    wrong = [r for m in members.all for r in m.reads if written.get(r[:2], r.value) != r.value]
    assert wrong == []
    assert len(witness.given) > 2 * rounds
    witness.assert_one_owner_each()
    committed = {place.partition: at.offset for place, at in cluster.committed(GROUP).items()}
    assert committed == {p: len(cluster.records(TOPIC, p)) for p in range(PARTITIONS)}


def read_by(members: Members) -> set[tuple[int, int]]:
    """Return partition and offset of all records that were read."""
    return {(read.partition, read.offset) for member in members.all for read in member.reads}


def test_four_clients_in_one_group_lose_nothing(cluster: Cluster, members: Members) -> None:
    survive(cluster, members, rounds=2)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_four_clients_in_one_group_lose_nothing_in_twenty_rounds(
    cluster: Cluster, members: Members
) -> None:
    survive(cluster, members, rounds=20)
