"""Two queries and a plain consumer share a group while members join, leave and are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.interop.members import Member, Members
from tests.interop.peers import APIS, OTHERS, Settings
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.groups import lag
from tests.spark_connector.end_to_end.ledgers import account
from tests.spark_connector.end_to_end.pumps import Pump
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.waiting import wait_until

pytestmark = [
    pytest.mark.long,  # queries that hand over for minutes
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.timeout(580),
]
PARTITIONS = 6
RATE = 600
SHARE = 150
"""Records that each member has to read before the next change."""
Unique = Callable[[str], str]
Record = Callable[[str, object], None]


class Scene:
    """A topic that is written to, a group, and its members: queries and plain consumers."""

    def __init__(self, broker: Broker, members: Members, unique: Unique, folder: Path) -> None:
        self.broker = broker
        self.members = members
        self.folder = folder
        self.topic = broker.create_topic(unique("hand-over"), PARTITIONS)
        self.group = unique("hand-over")
        self.feed = broker.feed(self.topic, PARTITIONS)
        self.plans: dict[str, Plan] = {}

    def plan(self, name: str) -> Plan:
        """Return a new query of the group."""
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "kafka.group.id": self.group,
            "kafka.client.id": name,
            "kafka.heartbeat.interval.ms": "300",
            "kafka.session.timeout.ms": "30000",
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        self.plans[name] = Plan(name, str(self.folder / name), options)
        return self.plans[name]

    def join(self, name: str, client: str) -> Member:
        """Start another plain consumer."""
        settings = Settings(
            self.broker.bootstrap_servers,
            self.topic,
            self.group,
            name,
            "cooperative-sticky",
            session_ms=30_000,
        )
        return self.members.join((APIS | OTHERS)[client], settings)

    def wait_until_all_read(self, *names: str) -> None:
        """Wait until each of these queries and consumers has read SHARE more records."""
        before = {name: self._count(name) for name in names}

        def behind() -> list[str]:
            self._look_for_failures()
            return [name for name in names if self._count(name) < before[name] + SHARE]

        wait_until(lambda: not behind(), explain=lambda: f"{behind()} do not read; {self}")

    def wait_until_done(self) -> None:
        """Wait until the group has committed everything."""

        def done() -> bool:
            self._look_for_failures()
            return self.broker.committed(self.group) == self.feed.ends()

        wait_until(done, explain=self.__str__)

    def _count(self, name: str) -> int:
        if name in self.plans:
            return len(self.plans[name].ledger.rows())
        return sum(len(member.reads) for member in self.members.all if member.name == name)

    def _look_for_failures(self) -> None:
        for member in self.members.all:
            if member.failure is not None:
                raise member.failure

    def __str__(self) -> str:
        return f"{self.broker.describe(self.group)}; {self.members}"


def change_members(scene: Scene, client: str, joins: int, record: Record) -> None:
    """Run all changes of a group, then compare the reads with the writes."""
    a, b = scene.plan("query-a"), scene.plan("query-b")
    with ApplicationProcess(scene.folder / "first") as first:
        with ApplicationProcess(scene.folder / "second") as second:
            with Pump(scene.feed, PARTITIONS, RATE):
                first.start(a)
                second.start(b)
                scene.wait_until_all_read("query-a", "query-b")
                for number in range(joins):
                    consumer = scene.join(f"consumer-{number}", client)
                    scene.wait_until_all_read("query-a", "query-b", consumer.name)
                    consumer.leave()
                    scene.wait_until_all_read("query-a", "query-b")
                first.do("finish", name=a.name)
                scene.wait_until_all_read("query-b")
                first.start(a)
                scene.wait_until_all_read("query-a", "query-b")

                b.ledger.hold.touch()
                wait_until(b.ledger.held.exists)
                second.kill()
                b.ledger.hold.unlink()
                in_flight = b.checkpoint.ranges(b.checkpoint.begun()[-1])
                assert b.checkpoint.begun()[-1] not in b.checkpoint.finished()
                scene.wait_until_all_read("query-a")
                with ApplicationProcess(scene.folder / "third") as third:
                    third.start(b)
                    scene.wait_until_all_read("query-a", "query-b")
                    third.do("finish", name=b.name)
                scene.wait_until_all_read("query-a")
            scene.wait_until_done()
            first.do("finish", name=a.name)
    scene.members.leave()

    readers = {name: plan.ledger.reads() for name, plan in scene.plans.items()}
    for member in scene.members.all:
        readers[member.name] = iter(member.reads)
    found = account(scene.feed.written, readers)
    record("written", len(scene.feed.written))
    record("read by several, all in flight at the kill", len(found.shared))
    found.assert_whole()
    for plan in scene.plans.values():
        plan.ledger.assert_replays_are_exact()
    assert found.shared.keys() <= in_flight
    assert any(len(attempts) > 1 for attempts in b.ledger.attempts().values())
    assert lag(scene.broker, scene.group) == dict.fromkeys(range(PARTITIONS), 0)


def test_queries_and_a_consumer_hand_over(
    apache: Broker,
    members: Members,
    unique: Unique,
    tmp_path: Path,
    record_property: Record,
) -> None:
    change_members(Scene(apache, members, unique, tmp_path), "sync", 1, record_property)


@pytest.mark.long
@pytest.mark.parametrize("client", ["sync", "confluent-kafka"])
def test_the_same_with_three_comings_and_goings(
    broker: Broker,
    members: Members,
    unique: Unique,
    tmp_path: Path,
    record_property: Record,
    client: str,
) -> None:
    change_members(Scene(broker, members, unique, tmp_path), client, 3, record_property)
