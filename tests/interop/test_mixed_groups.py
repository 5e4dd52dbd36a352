"""Groups of two kohort members and two of another client, on Apache Kafka: all join, all leave."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from tests.interop.brokers import Broker
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members, fair
from tests.interop.peer_process import in_a_process
from tests.interop.peers import OTHERS, Make, Settings
from tests.interop.waiting import look_again_soon

pytestmark = [
    pytest.mark.long,  # half a minute of members that come and go
    pytest.mark.real_kafka,
    pytest.mark.timeout(300),
]
PARTITIONS = 6
Unique = Callable[[str], str]
EVERYBODY: dict[str, Make] = {
    **{name: in_a_process(name) for name in ("sync", *OTHERS)},
    "java": Java,
}
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
PLAIN = ("confluent-kafka", "cooperative-sticky", True)
"""Combination for a plain run."""
CASES = [
    pytest.param(
        *case,
        marks=[] if case == PLAIN else pytest.mark.long,
        id=f"{other}-{strategy}-kohort-{'leads' if leads else 'follows'}",
    )
    for case in itertools.product((*OTHERS, "java"), STRATEGIES, (True, False))
    for other, strategy, leads in [case]
    if (other, strategy) != ("aiokafka", "cooperative-sticky")  # aiokafka has no such assignor
]


@pytest.mark.parametrize(("other", "strategy", "kohort_leads"), CASES)
def test_members_of_two_clients_join_leave_and_are_killed(
    apache: Broker,
    members: Members,
    unique: Unique,
    other: str,
    strategy: str,
    kohort_leads: bool,
) -> None:
    topic, group = apache.create_topic(unique("mixed"), PARTITIONS), unique("mixed")
    feed = apache.feed(topic, PARTITIONS)
    present: dict[str, Member] = {}
    # Uncommitted records of a killed member are read again. So are those that Java's tool reads in
    # a cooperative rebalance and fails to commit.
    excused: list[Member] = []

    def join(name: str, client: str) -> None:
        settings = Settings(apache.bootstrap_servers, topic, group, name, strategy)
        present[name] = members.join(EVERYBODY[client], settings)
        if (client, strategy) == ("java", "cooperative-sticky"):
            excused.append(present[name])

    def meanwhile() -> None:
        feed.start()
        look_again_soon()

    def settle() -> None:
        """Wait until each has its share and all agree with the broker about the owners."""
        members.wait_until(fair(present.values(), PARTITIONS), meanwhile)
        feed.write(1)
        everything = set(feed.written)
        members.wait_until(lambda: everything <= reads(members).keys())
        described = apache.describe(group)
        assert described.state == "STABLE"
        owned = {name: {p for _, p in own} for name, own in described.members.items()}
        assert owned == {name: member.owned for name, member in present.items()}

    first, second = ("sync", other) if kohort_leads else (other, "sync")
    feed.write(10)
    join("first", first)
    settle()
    join("second", second)
    settle()
    for name, client in (("third", first), ("fourth", second)):
        join(name, client)
    settle()
    for name in ("third", "fourth"):
        excused.append(present.pop(name))
        excused[-1].kill()
    settle()
    present.pop("first").leave()
    settle()
    join("fifth", first)
    settle()
    present.pop("fifth").leave()
    settle()
    members.leave()

    assert feed.written.items() <= {(p, o): v for m in members.all for p, o, v in m.reads}.items()
    twice = {place for place, times in reads(members).items() if times > 1}
    assert twice <= {(p, o) for member in excused for p, o, _ in member.reads}
    assert apache.committed(group) == feed.ends()


def reads(members: Members) -> Counter[tuple[int, int]]:
    """Return how often each partition and offset was read."""
    return Counter((p, o) for member in members.all for p, o, _ in list(member.reads))
