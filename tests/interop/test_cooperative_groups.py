"""Groups that rebalance cooperatively, of kohort alone and mixed, on both clusters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.brokers import Broker
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members, assert_read_once, shares
from tests.interop.peers import APIS, OTHERS, Make, Settings
from tests.interop.waiting import look_again_soon

PARTITIONS = 6
BEFORE, AFTER = 50, 10  # records a partition
COOPERATIVE = "cooperative-sticky"
Unique = Callable[[str], str]
PEERS: dict[str, Make] = {"confluent-kafka": OTHERS["confluent-kafka"], "java": Java}
peers = pytest.mark.parametrize(
    "other", ["confluent-kafka", pytest.param("java", marks=pytest.mark.real_kafka)]
)


@pytest.mark.long  # each member is started again, twice
def test_members_move_from_range_to_cooperative_one_by_one(
    broker: Broker, members: Members, unique: Unique
) -> None:
    """Kafka's guide restarts members twice: first both assignors are listed, then range is not."""
    topic, group = broker.create_topic(unique("upgrade"), PARTITIONS), unique("upgrade")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(BEFORE)

    def start(name: str, api: str, *strategies: str) -> Member:
        more = {"partition_assignment_strategy": list(strategies)}
        return members.join(
            APIS[api], Settings(broker.bootstrap_servers, topic, group, name, more=more)
        )

    apis = list(APIS)
    current = [start(f"{api}-0", api, "range") for api in apis]
    members.wait_until(shares(current, [2, 2, 2]), feed.start)
    for step, strategies in enumerate([(COOPERATIVE, "range"), (COOPERATIVE,)], 1):
        for place, api in enumerate(apis):
            current[place].leave()
            current[place] = start(f"{api}-{step}", api, *strategies)
            members.wait_until(shares(current, [2, 2, 2]), feed.start)
    kept = [member.owned for member in current]
    current.append(start("fourth", "sync", COOPERATIVE))
    members.wait_until(
        lambda: sorted(len(member.owned) for member in current) == [1, 1, 2, 2], feed.start
    )
    assert all(member.owned <= before for member, before in zip(current, kept, strict=False))
    feed.write(AFTER)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once(members.all, feed.written)
    assert broker.committed(group) == feed.ends()


@peers
@pytest.mark.parametrize("kohort_first", [True, False], ids=["leads", "follows"])
def test_another_client_shares_a_cooperative_group(
    broker: Broker, members: Members, unique: Unique, other: str, kohort_first: bool
) -> None:
    """One joins, a third joins, the first leaves. Partitions that stay are never revoked.

    With Java nothing is written while the group rebalances. Its tool commits only once what it has
    read then, and in a rebalance that commit may be refused.
    """
    topic, group = broker.create_topic(unique("mixed"), PARTITIONS), unique("mixed")
    feed = broker.feed(topic, PARTITIONS)
    meanwhile = look_again_soon if other == "java" else feed.start

    def read_all() -> None:
        feed.write(AFTER)
        members.wait_until(lambda: members.count() >= len(feed.written))

    def start(name: str, make: Make) -> Member:
        return members.join(
            make, Settings(broker.bootstrap_servers, topic, group, name, COOPERATIVE)
        )

    pair: list[tuple[str, Make]] = [("kohort", APIS["sync"]), (other, PEERS[other])]
    first, second = pair if kohort_first else reversed(pair)
    three = [start(*first)]
    members.wait_until(shares(three, [6]), meanwhile)
    for joining, sizes in [(second, [3, 3]), (("kohort-async", APIS["trio"]), [2, 2, 2])]:
        before = [member.owned for member in three]
        read_all()
        three.append(start(*joining))
        members.wait_until(shares(three, sizes), meanwhile)
        assert all(m.owned < owned for m, owned in zip(three, before, strict=False))
    read_all()
    before = [member.owned for member in three[1:]]
    three[0].leave()
    members.wait_until(shares(three[1:], [3, 3]), meanwhile)
    assert all(m.owned > owned for m, owned in zip(three[1:], before, strict=True))
    read_all()
    for member in three[
        1:
    ]:  # as long as the group is stable, because a commit in a rebalance may fail
        member.call(lambda peer: peer.commit())
    members.leave()
    assert_read_once(three, feed.written)
    assert broker.committed(group) == feed.ends()
