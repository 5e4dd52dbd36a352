"""Group of kohort and one other client: three partitions each, every record read once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.interop.brokers import Broker
from tests.interop.members import Members, assert_read_once, shares
from tests.interop.peers import APIS, OTHERS, Make, Settings
from tests.interop.sharing import AFTER, BEFORE, PARTITIONS, share

first_kohort = pytest.mark.parametrize("kohort_first", [True, False], ids=["leads", "follows"])


@first_kohort
@pytest.mark.parametrize("other", OTHERS)
def test_kohort_and_another_client_share_a_group(
    broker: Broker,
    members: Members,
    unique: Callable[[str], str],
    other: str,
    kohort_first: bool,
) -> None:
    pair = [("kohort", APIS["sync"]), (other, OTHERS[other])]
    share(broker, members, pair if kohort_first else pair[::-1], unique)


@first_kohort
@pytest.mark.parametrize("api", ["asyncio", "trio"])
def test_async_api_shares_a_group_with_another_client(
    broker: Broker, members: Members, unique: Callable[[str], str], api: str, kohort_first: bool
) -> None:
    pair = [("kohort", APIS[api]), ("confluent-kafka", OTHERS["confluent-kafka"])]
    share(broker, members, pair if kohort_first else pair[::-1], unique, first_leaves=True)


@first_kohort
def test_a_leader_deals_topics_that_it_does_not_read_itself(
    broker: Broker, members: Members, unique: Callable[[str], str], kohort_first: bool
) -> None:
    """Each of the two has a separate topic. The topic that kohort does not read grows."""
    group = unique("mixed")
    ours, theirs = (broker.create_topic(unique(name), 2) for name in ("ours", "theirs"))
    more = {"metadata_max_age_ms": 300}
    pair: list[tuple[Make, Settings]] = [
        (APIS["sync"], Settings(broker.bootstrap_servers, ours, group, "kohort", more=more)),
        (
            OTHERS["confluent-kafka"],
            Settings(
                broker.bootstrap_servers,
                theirs,
                group,
                "confluent-kafka",
                more={"topic.metadata.refresh.interval.ms": 300},
            ),
        ),
    ]
    first, second = pair if kohort_first else reversed(pair)
    leader = members.join(*first)
    members.wait_until(lambda: len(leader.owned) == 2)
    follower = members.join(*second)
    members.wait_until(lambda: (len(leader.owned), len(follower.owned)) == (2, 2))
    if kohort_first:  # librdkafka as the leader watches only its own topics
        broker.add_partitions(theirs, 5)
        members.wait_until(lambda: len(follower.owned) == 5)
    broker.write(ours, b"ours", partition=1)
    broker.write(theirs, b"theirs", partition=4 if kohort_first else 1)
    members.wait_until(lambda: leader.reads and follower.reads)
    values = {member.name: [read.value for read in member.reads] for member in members.all}
    assert values == {"kohort": [b"ours"], "confluent-kafka": [b"theirs"]}


@pytest.mark.long
@first_kohort
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("other", "strategy"),
    [
        pair
        for pair in itertools.product(OTHERS, ["range", "roundrobin", "cooperative-sticky"])
        if pair != ("aiokafka", "cooperative-sticky")  # aiokafka has no such assignor
    ],
)
@pytest.mark.parametrize("first_leaves", [True, False], ids=["first-leaves", "second-leaves"])
def test_every_pair_shares_by_every_strategy(
    broker: Broker,
    members: Members,
    unique: Callable[[str], str],
    other: str,
    api: str,
    strategy: str,
    kohort_first: bool,
    first_leaves: bool,
) -> None:
    pair = [("kohort", APIS[api]), (other, OTHERS[other])]
    share(broker, members, pair if kohort_first else pair[::-1], unique, strategy, first_leaves)


@pytest.mark.long
def test_kohort_and_all_the_others_share_one_group(
    broker: Broker, members: Members, unique: Callable[[str], str]
) -> None:
    topic, group = broker.create_topic(unique("all"), PARTITIONS), unique("all")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(BEFORE)
    everybody = [
        members.join(make, Settings(broker.bootstrap_servers, topic, group, name, "roundrobin"))
        for name, make in (APIS | OTHERS).items()
    ]
    members.wait_until(shares(everybody, [1] * PARTITIONS), feed.start)
    feed.write(AFTER)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once(everybody, feed.written)
    assert broker.committed(group) == feed.ends()
