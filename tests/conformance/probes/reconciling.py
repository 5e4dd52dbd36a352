"""Reconciliation of consumer groups: every transition of a member on the way to its target."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from kohort.protocol.messages import (
    ConsumerGroupHeartbeatResponse,
    CreatePartitionsRequest,
    DeleteTopicsRequest,
)
from tests.conformance.consumers import (
    ConsumerMember,
    TopicPartitions,
    described,
    member,
    new_topic,
    peer,
    rounds,
    settled_pair,
    story,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import READY_S, Session


@probe("8.4")
def a_second_member_step_by_step(session: Session) -> Observations:
    """Let a second member join: revoked, acknowledged, released, assigned."""
    topic = new_topic(session)
    a = member(session, topic)
    b = peer(a, "b")
    yield from story(
        session,
        a.group,
        ("a joins", a.join),
        ("a acknowledges", a.acknowledge),
        ("b joins", b.join),
        ("b beats", b.beat),
        ("b acknowledges nothing", b.acknowledge),
        ("a must revoke", a.beat),
        ("a beats", a.beat),
        ("a owns all", lambda: a.beat(topic_partitions=_all(a, 4))),
        ("a owns 3", lambda: a.beat(topic_partitions=_all(a, 3))),
        ("b waits", b.beat),
        ("a acknowledges", a.acknowledge),
        ("b gets its share", b.beat),
        ("b sends everything", b.repeat),
        ("b acknowledges", b.acknowledge),
        ("a beats again", a.beat),
        ("b beats again", b.beat),
    )


def _all(one: ConsumerMember, count: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=one.target[0].topic_id, partitions=list(range(count)))]


@probe("8.4")
def the_target_changes_back(session: Session) -> Observations:
    """Let the newcomer leave at each step of the other's revocation."""
    topic = new_topic(session)
    for label, before, after in (
        ("before the revocation", 0, False),
        ("while revoking", 1, False),
        ("while revoking, acknowledged late", 1, True),
        ("after the revocation", 2, False),
    ):
        a = ConsumerMember(session, session.group(label), "a", [topic])
        b = peer(a, "b")
        a.settle()
        b.join()
        for step in (a.beat, a.acknowledge)[:before]:
            step()
        full = _all(a, 4)
        b.leave()
        steps = story(
            session,
            a.group,
            ("a beats", a.beat),
            ("a sends what it owned", partial(a.beat, topic_partitions=full)),
            ("a acknowledges", a.acknowledge),
            ("a acknowledges again", a.acknowledge),
        )
        if after:
            yield f"{label}: none owned", a.beat(topic_partitions=[])
        yield from ((f"{label}: {what}", value) for what, value in steps)


@probe("8.4")
def a_newer_target_while_revoking(session: Session) -> Observations:
    """Let a third member join while the first one revokes for the second."""
    topic = new_topic(session, partitions=6)
    a = member(session, topic)
    b, c = peer(a, "b"), peer(a, "c")
    a.settle()
    yield from story(
        session,
        a.group,
        ("b joins", b.join),
        ("a must revoke", a.beat),
        ("c joins", c.join),
        ("a beats", a.beat),
        ("a acknowledges the first", a.acknowledge),
        ("b beats", b.beat),
        ("c beats", c.beat),
        ("a acknowledges the second", a.acknowledge),
        ("b beats again", b.beat),
        ("c beats again", c.beat),
        ("b acknowledges", b.acknowledge),
        ("c acknowledges", c.acknowledge),
        ("a beats at last", a.beat),
    )


@probe("8.4")
def partitions_that_are_not_released_yet(session: Session) -> Observations:
    """Give a member a part of its target, while another one still holds the rest."""
    first, second, third = (new_topic(session, name, 2) for name in "xyz")
    a = ConsumerMember(session, session.group(), "a", [first], assignor="range")
    b = ConsumerMember(session, a.group, "b", [second], assignor="range")
    a.settle()
    b.settle()
    every = [first, second, third]
    yield from story(
        session,
        a.group,
        ("a wants all", lambda: a.beat(subscribed_topic_names=every)),
        ("b must revoke", b.beat),
        ("a beats", a.beat),
        ("a acknowledges", a.acknowledge),
        ("b acknowledges", b.acknowledge),
        ("a gets the rest", a.beat),
        ("b beats", b.beat),
        ("a acknowledges all", a.acknowledge),
        ("a wants one again", lambda: a.beat(subscribed_topic_names=[first])),
        ("a has revoked", a.acknowledge),
        ("b gets it back", b.beat),
        ("b acknowledges all", b.acknowledge),
    )


@probe("8.4")
def a_subscription_changes_while_revoking(session: Session) -> Observations:
    """Drop a topic in each state of a member, which must revoke it at once."""
    x, y = new_topic(session, "x", 4), new_topic(session, "y", 2)
    a = ConsumerMember(session, session.group(), "a", [x, y], assignor="range")
    b = peer(a, "b", topics=[x], assignor="range")
    a.settle()
    yield from story(
        session,
        a.group,
        ("b joins", b.join),
        ("a must revoke", a.beat),
        ("a drops y", lambda: a.beat(subscribed_topic_names=[x])),
        ("a acknowledges", a.acknowledge),
        ("a wants y again", lambda: a.beat(subscribed_topic_names=[x, y])),
        ("a acknowledges y", a.acknowledge),
        ("b beats", b.beat),
        ("b drops all", lambda: b.beat(subscribed_topic_names=[])),
        ("b acknowledges", b.acknowledge),
        ("a beats", a.beat),
        ("a drops all", lambda: a.repeat(subscribed_topic_names=[])),
        ("a acknowledges that", a.acknowledge),
    )


@probe("8.4")
def what_starts_a_new_epoch(session: Session) -> Observations:
    """Change each field of a member. Only another subscription starts a new epoch."""
    x, y = new_topic(session, "x", 4), new_topic(session, "y", 2)
    a, _ = settled_pair(session, x, assignor="range")
    yield from story(
        session,
        a.group,
        ("rack", lambda: a.beat(rack_id="r")),
        ("other rack", lambda: a.beat(rack_id="s")),
        ("timeout", lambda: a.beat(rebalance_timeout_ms=1234)),
        ("assignor", lambda: a.beat(server_assignor="range")),
        ("the same names", lambda: a.beat(subscribed_topic_names=[x])),
        ("the same names twice", lambda: a.beat(subscribed_topic_names=[x, x])),
        ("one more name", lambda: a.beat(subscribed_topic_names=[x, y])),
        ("another order", lambda: a.beat(subscribed_topic_names=[y, x])),
        ("an unknown name", lambda: a.beat(subscribed_topic_names=[x, y, session.name("no")])),
        ("no name", lambda: a.beat(subscribed_topic_names=[])),
    )


@probe("8.4")
def three_members_come_and_go(session: Session) -> Observations:
    """Let members join, settle and leave one after the other."""
    topic = new_topic(session, partitions=6)
    a = member(session, topic)
    b, c = peer(a, "b"), peer(a, "c")
    present: list[ConsumerMember] = []
    for one in (a, b, c):
        present.append(one)
        yield f"{one.id} joins", one.join()
        for turn in range(2):
            for label, answer in rounds(*present):
                yield f"{len(present)} members, turn {turn}, {label}", answer
        yield f"{len(present)} members", described(session, a.group)
    for one in (b, a):
        present.remove(one)
        yield f"{one.id} leaves", one.leave()
        for label, answer in rounds(*present, *present):
            yield f"{one.id} has left, {label}, {answer.member_epoch}", answer
            break
        for _ in range(2):
            list(rounds(*present))
        yield f"{one.id} has left", described(session, a.group)


def _until(
    ask: Callable[[], ConsumerGroupHeartbeatResponse], epoch: int
) -> ConsumerGroupHeartbeatResponse:
    """Repeat a heartbeat until its epoch is a later one, which a changed topic starts."""
    deadline = time.monotonic() + READY_S
    while (answer := ask()).member_epoch == epoch and not answer.assignment:
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


@probe("8.4")
def topics_that_grow(session: Session) -> Observations:
    """Add partitions to a subscribed topic. The next heartbeat brings a new target."""
    topic = new_topic(session, partitions=2)
    a = member(session, topic)
    a.settle()
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=5, assignments=None)
    created = session.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000), 3)
    assert created.results[0].error_code == 0, created
    yield "new target", _until(a.beat, a.epoch)
    yield "described", described(session, a.group)
    yield "acknowledged", a.acknowledge()


@probe("8.4")
def topics_that_appear(session: Session) -> Observations:
    """Create a topic that a member subscribed to before it existed."""
    name = session.name("later")
    a = member(session, name)
    yield "join", a.join()
    yield "described without it", described(session, a.group)
    topic = session.topic("later", 2)
    session.name_id(session.topic_id(topic), "later")
    yield "new target", _until(a.beat, a.epoch)
    yield "described", described(session, a.group)


@probe("8.4")
def topics_that_go(session: Session) -> Observations:
    """Delete a subscribed topic. Its partitions vanish from the assignment."""
    x, y = new_topic(session, "x", 2), new_topic(session, "y", 2)
    a = ConsumerMember(session, session.group(), "a", [x, y])
    a.settle()
    asked = DeleteTopicsRequest.DeleteTopicState(name=y)
    deleted = session.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=10_000), 6)
    assert deleted.responses[0].error_code == 0, deleted
    yield "must revoke", _until(a.beat, a.epoch)
    yield "described", described(session, a.group)
    yield "acknowledged", a.acknowledge()
    yield "afterwards", described(session, a.group)
    again = session.topic("y", 1)
    session.name_id(session.topic_id(again), "y again")
    yield "created again", _until(a.beat, a.epoch)
    yield "described again", described(session, a.group)


@probe("8.4")
def assignors_of_a_group(session: Session) -> Observations:
    """Name assignors in several members. Most of them decide, at the next target."""
    topic = new_topic(session, partitions=7)
    a = ConsumerMember(session, session.group(), "a", [topic], assignor="range")
    b, c = peer(a, "b"), peer(a, "c", assignor="uniform")
    for one in (a, b, c):
        one.settle()
        for _ in range(2):
            list(rounds(a, b, c))
        group = described(session, a.group).groups[0]
        yield f"{one.id} joined", (group.assignor_name, group.assignment_epoch)
        yield (
            f"{one.id} joined, assigned",
            [
                (m.member_id, m.target_assignment)
                for m in sorted(group.members, key=lambda each: str(each.member_id))
            ],
        )
    yield "all uniform", [one.beat(server_assignor="uniform") for one in (a, b)]
    yield "not yet", described(session, a.group)
    yield "topics change", b.beat(subscribed_topic_names=[])
    yield "now", described(session, a.group).groups[0].assignor_name


@probe("8.4")
def epochs_of_a_new_group(session: Session) -> Observations:
    """Join groups for the first time, with and without topics, and after each was deleted."""
    topic = new_topic(session)
    for label, names in ("a topic", [topic]), ("an unknown topic", ["no.such.topic"]), ("none", []):
        a = ConsumerMember(session, session.group(label), "a", names)
        yield f"{label}: join", a.join()
        yield f"{label}: described", described(session, a.group)
        yield f"{label}: leave", a.leave()
        yield f"{label}: empty", described(session, a.group)
        yield f"{label}: join again", a.join()
        yield f"{label}: described again", described(session, a.group)


@probe("8.4")
def a_member_without_topics_joins(session: Session) -> Observations:
    """Join with an empty subscription after another member has left."""
    topic = new_topic(session)
    for assignor in ("range", "uniform"):
        first = ConsumerMember(session, session.group(assignor), "b", [topic], assignor=assignor)
        first.settle()
        leaver = peer(first, "leaver")
        leaver.join()
        leaver.leave()
        empty = ConsumerMember(session, first.group, "a", [], assignor=assignor)
        yield f"{assignor}: join", empty.join()
        yield f"{assignor}: the other beats", first.beat()
        yield f"{assignor}: described", described(session, first.group)
