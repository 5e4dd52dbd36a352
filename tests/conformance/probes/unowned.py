"""Groups that stay stable with partitions that no member has, after static members are replaced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.conformance.classic_consumers import ClassicConsumer, assignment, stable_consumers
from tests.conformance.consumers import ConsumerMember, grow, new_topic
from tests.conformance.members import describe
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.upgrading import classic, newcomer, views
from tests.conformance.session import Session


def _rebalance(leader: ClassicConsumer, topics: dict[str, list[int]]) -> Observations:
    """Let the only member of a classic group join again and assign these partitions."""
    yield "joins again", leader.join()
    yield "assigns", leader.sync((leader, assignment(topics)))
    yield "described in the end", describe(leader.session, leader.group, 6)


@probe("6.3a", "6.2g")
def a_static_leader_keeps_an_incomplete_assignment(session: Session) -> Observations:
    """Restart a static leader whose assignment leaves out a topic and a new partition.

    The generation and the assignment stay. DescribeGroups shows what the members have, and the
    leader may rejoin.
    """
    topic, other = new_topic(session), new_topic(session, "other")
    for label, owned in (
        ("topic", {topic: [0, 1, 2, 3]}),
        ("partition", {topic: [0, 1], other: [0]}),
    ):
        a = classic(session, label, topic, instance="a")
        a.topics = [topic, other]
        stable_consumers((a, owned))
        again = classic(session, label, topic, instance="a")
        again.topics = a.topics
        yield f"{label}: a returns", again.join()
        yield f"{label}: a syncs", again.resync()
        yield f"{label}: a beats", again.heartbeat()
        yield f"{label}: described", describe(session, a.group, 6)
        for what, seen in _rebalance(again, {topic: [0, 1, 2, 3], other: [0, 1, 2, 3]}):
            yield f"{label}: a {what}", seen


@probe("6.3a", "6.3b")
def a_static_leader_returns_with_another_subscription(session: Session) -> Observations:
    """Restart a static leader that subscribes to another topic. The assignment stays."""
    topic, other = new_topic(session), new_topic(session, "other")
    a = classic(session, "g", topic, instance="a")
    stable_consumers((a, {topic: [0, 1, 2, 3]}))
    again = classic(session, "g", other, instance="a")
    yield "a returns", again.join()
    yield "a syncs", again.resync()
    yield "a beats", again.heartbeat()
    yield "described", describe(session, a.group, 6)


@probe("8.7")
def a_topic_grows_after_a_static_downgrade(session: Session) -> Observations:
    """Replace the last consumer member by a classic one, and add a partition to its topic.

    The response to its JoinGroup names no leader, so it learns only by another JoinGroup that it
    leads.
    """
    topic = new_topic(session)
    one = ConsumerMember(session, session.name("g"), "one", [topic], instance="i")
    one.settle()
    back = classic(session, "g", topic, instance="i")
    yield "i becomes classic", back.join()
    yield "i syncs", back.resync()
    yield "after that", views(session, one.group)
    grow(session, topic, 5)
    yield "i beats", back.heartbeat()
    yield "i syncs again", back.resync()
    yield "grown", views(session, one.group)
    for what, seen in _rebalance(back, {topic: [0, 1, 2, 3, 4]}):
        yield f"i {what}", seen


@probe("8.7")
def a_topic_grows_before_a_static_upgrade(session: Session) -> Observations:
    """Add a partition to the topic of a classic group, and replace a member by a consumer.

    The group takes the hash of the grown topic and the assignment of before.
    """
    topic = new_topic(session)
    a = classic(session, "g", topic, instance="a")
    b = classic(session, "g", topic, instance="b")
    stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
    grow(session, topic, 5)
    new = newcomer(b, topic, instance="b", assignor="range")
    steps: list[tuple[str, Callable[[], object]]] = [
        ("b becomes a consumer", new.join),
        ("new beats", new.beat),
        ("new acknowledges", new.acknowledge),
        ("a beats", a.heartbeat),
        ("a joins", a.join),
        ("a syncs", a.resync),
        ("new sends all", new.repeat),
    ]
    for what, step in steps:
        yield what, step()
        yield f"after {what}", views(session, a.group)
    grow(session, topic, 6)
    yield "new beats again", new.beat()
    yield "a beats again", a.heartbeat()
    yield "in the end", views(session, a.group)


@probe("8.7")
def a_topic_grows_before_an_upgrade_by_a_newcomer(session: Session) -> Observations:
    """Add a partition to the topic of a classic group, and join it by the consumer protocol."""
    topic = new_topic(session)
    a = classic(session, "g", topic, instance="a")
    stable_consumers((a, {topic: [0, 1, 2, 3]}))
    grow(session, topic, 5)
    new = newcomer(a, topic, instance="n", assignor="range")
    yield "joins", new.join()
    yield "after that", views(session, a.group)
    yield "a beats", a.heartbeat()
    yield "a joins", partial(a.rejoin, {})()
    yield "a syncs", a.resync()
    yield "acknowledges", new.acknowledge()
    yield "in the end", views(session, a.group)
