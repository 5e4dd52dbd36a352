"""Groups of several clients by the consumer protocol, and of both protocols at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.interop.brokers import Broker
from tests.interop.franz import franz_go
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members, fair
from tests.interop.peer_process import in_a_process
from tests.interop.peers import Make, Settings
from tests.interop.waiting import look_again_soon

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(300)]
PARTITIONS = 8
Unique = Callable[[str], str]


class Group:
    """Group of named members of several clients, which read while one feed writes."""

    def __init__(self, broker: Broker, members: Members, unique: Unique) -> None:
        self.broker = broker
        self.members = members
        self.topic, self.group = broker.create_topic(unique("mixed"), PARTITIONS), unique("mixed")
        self.feed = broker.feed(self.topic, PARTITIONS)
        self.present: dict[str, Member] = {}
        self.killed: list[Member] = []

    def join(self, name: str, make: Make, protocol: str, strategy: str | None = None) -> None:
        """Start one more member."""
        settings = Settings(
            self.broker.bootstrap_servers,
            self.topic,
            self.group,
            name,
            strategy,
            protocol=protocol,
        )
        self.present[name] = self.members.join(make, settings)

    def leave(self, name: str) -> None:
        """Let a member leave."""
        self.present.pop(name).leave()

    def kill(self, name: str) -> None:
        """End a member as a crash would."""
        self.killed.append(self.present.pop(name))
        self.killed[-1].kill()

    def meanwhile(self) -> None:
        """Write while a test waits."""
        self.feed.start()
        look_again_soon()

    def settle(self) -> None:
        """Wait until each member has its share, all records are read and the broker agrees."""
        self.members.wait_until(fair(self.present.values(), PARTITIONS), self.meanwhile)
        self.feed.write(1)
        everything = set(self.feed.written)
        self.members.wait_until(lambda: everything <= self.reads().keys())
        expected = {name: member.owned for name, member in self.present.items()}
        self.members.wait_until(lambda: self.owners() == expected)

    def owners(self) -> dict[str, frozenset[int]]:
        """Return each member's partitions as the broker describes them."""
        described = self.broker.describe(self.group)
        return {
            name: frozenset(partition for _, partition in own)
            for name, own in described.members.items()
        }

    def reads(self) -> Counter[tuple[int, int]]:
        """Return how often each partition and offset was read."""
        return Counter((p, o) for member in self.members.all for p, o, _ in list(member.reads))

    def finish(self) -> dict[tuple[int, int], int]:
        """Let all leave. Return the records that were read more than once.

        Check that every record was read, that it had the right value, and that no partition had two
        owners at a time.
        """
        self.members.leave()
        values = {(p, o): v for member in self.members.all for p, o, v in member.reads}
        assert values == self.feed.written
        assert self.members.overlaps() == []
        assert self.broker.committed(self.group) == self.feed.ends()
        return {place: times for place, times in self.reads().items() if times > 1}


@pytest.fixture
def clients(program: str) -> Mapping[str, Make]:
    """Clients that speak the consumer protocol, each in a separate process."""
    return {
        "kohort": in_a_process("sync"),
        "java": Java,
        "confluent-kafka": in_a_process("confluent-kafka"),
        "franz-go": franz_go(program),
    }


CLASSIC: Mapping[str, Make] = {
    "java": Java,
    "confluent-kafka": in_a_process("confluent-kafka"),
    "aiokafka": in_a_process("aiokafka"),
    "kafka-python": in_a_process("kafka-python"),
}
"""Clients that join by the classic protocol."""


@pytest.mark.long  # four clients, each in another process
def test_four_clients_share_a_group(
    quick_broker: Broker, members: Members, unique: Unique, clients: Mapping[str, Make]
) -> None:
    group = Group(quick_broker, members, unique)
    group.feed.write(20)
    for name, make in clients.items():
        group.join(name, make, "consumer")
        group.settle()
    assert group.broker.describe(group.group).state == "STABLE"
    assert group.broker.group_type(group.group) == "consumer"
    for name, make in clients.items():
        group.leave(name)
        group.settle()
        group.join(f"{name} again", make, "consumer")
        group.settle()
    twice = group.finish()
    print(f"{len(group.feed.written)} records, {len(twice)} read more than once")
    assert twice == {}


@pytest.mark.long  # four clients, each started twice
def test_kohort_converts_a_group_of_classic_clients(
    quick_broker: Broker, members: Members, unique: Unique
) -> None:
    """kohort joins by the consumer protocol and leaves, twice."""
    group = Group(quick_broker, members, unique)
    group.feed.write(20)
    for name, make in CLASSIC.items():
        group.join(name, make, "classic", "range")
        group.settle()
    kohort = in_a_process("sync")
    types = [group.broker.group_type(group.group)]
    for number in range(2):
        group.join(f"kohort {number}", kohort, "consumer")
        group.settle()
        types.append(group.broker.group_type(group.group))
        group.leave(f"kohort {number}")
        group.settle()
        types.append(group.broker.group_type(group.group))
    twice = group.finish()
    print(f"{len(group.feed.written)} records, {len(twice)} read more than once")
    assert types == ["classic", "consumer", "classic", "consumer", "classic"]
    assert twice == {}
