"""Scenario of two clients that share a group."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.brokers import Broker
from tests.interop.members import Members, assert_read_once, shares
from tests.interop.peers import Make, Settings

PARTITIONS = 6


BEFORE, AFTER = 50, 10  # records a partition


def share(
    broker: Broker,
    members: Members,
    pair: list[tuple[str, Make]],
    unique: Callable[[str], str],
    strategy: str | None = None,
    first_leaves: bool = False,
) -> None:
    """Let the two share a group, in the order of their joining, while records come in.

    Then one of them leaves, and the other one continues. It becomes the leader if the first left.
    """
    topic, group = broker.create_topic(unique("shared"), PARTITIONS), unique("pair")
    feed = broker.feed(topic, PARTITIONS)
    feed.write(BEFORE)

    def settings(name: str) -> Settings:
        return Settings(broker.bootstrap_servers, topic, group, name, strategy)

    both = [members.join(pair[0][1], settings(pair[0][0]))]
    members.wait_until(shares(both, [PARTITIONS]), feed.start)
    both.append(members.join(pair[1][1], settings(pair[1][0])))
    members.wait_until(shares(both, [3, 3]), feed.start)
    feed.write(AFTER)
    members.wait_until(lambda: members.count() >= len(feed.written))

    described = broker.describe(group)
    assert described.state == "STABLE"
    assert {name: len(own) for name, own in described.members.items()} == {
        name: 3 for name, _ in pair
    }

    goes, stays = both if first_leaves else reversed(both)
    goes.leave()
    members.wait_until(shares([stays], [PARTITIONS]), feed.start)
    feed.write(AFTER)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once(both, feed.written)
    assert broker.committed(group) == feed.ends()
