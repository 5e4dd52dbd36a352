"""Subscriptions by regular expression, which the broker resolves."""

from __future__ import annotations

import time

from kohort.protocol.messages import ConsumerGroupHeartbeatResponse
from tests.conformance.consumers import (
    ConsumerMember,
    described,
    new_topic,
    owned,
    peer,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import READY_S, Session

INVALID = (
    "a(",
    "a)",
    "[c-a]",
    "a{2,1}",
    "a{1001}",
    "a**",
    "*a",
    "(?=a)",
    "(?!a)",
    "(?<=a)",
    "(?<!a)",
    r"\1",
    "(?>a)",
    "(?P<n>a)(?P<n>b)",
    r"\Z",
    "a++",
    "(?#x)",
    "(?x)a",
    "[",
    "\\",
)
VALID = (r"\z", r"\x{61}", r"\Qa.b\E", "(?<n>a)", r"\pL+", "(?-i)a", "(?U)a+", "a{,2}", ".*|x")


@probe("8.10")
def invalid_patterns(session: Session) -> Observations:
    """Join with patterns that RE2J refuses: 128 with its words."""
    for number, pattern in enumerate(INVALID):
        one = ConsumerMember(session, session.name(f"g{number}"), "a", regex=pattern)
        answer = one.join()
        yield pattern, answer
        yield f"{pattern}: words", str(answer.error_message)
    known = ConsumerMember(session, session.name("known"), "a")
    known.settle()
    yield "as a member", known.beat(subscribed_topic_regex="a(")
    yield "afterwards", known.beat()
    for number, pattern in enumerate(VALID):
        one = ConsumerMember(session, session.name(f"v{number}"), "a", regex=pattern)
        yield f"valid {pattern}", one.join().error_code


def settle(one: ConsumerMember, partitions: int) -> ConsumerGroupHeartbeatResponse:
    """Send heartbeats until the member has this number of partitions."""
    deadline = time.monotonic() + READY_S
    while sum(len(each.partitions) for each in one.target) != partitions:
        assert time.monotonic() < deadline, one.target
        time.sleep(0.01)
        one.beat()
    answer = one.repeat()
    assert sum(len(each.partitions) for each in owned(answer)) == partitions
    return answer


@probe("8.10")
def patterns_match_whole_names(session: Session) -> Observations:
    """Subscribe by patterns. They match whole names, and need a heartbeat to be resolved."""
    x = new_topic(session, "x1", 2)
    new_topic(session, "x2", 1)
    own = session.name("").replace(".", r"\.")
    for label, pattern, partitions in (
        ("both", f"{own}x.", 3),
        ("one", f"{own}x2", 1),
        ("an alternative", f"{own}x1|nothing", 2),
        ("either", f"({own}x1)|({own}x2)", 3),
    ):
        one = ConsumerMember(session, session.group(label), "a", regex=pattern)
        yield f"{label}: join", one.join()
        yield f"{label}: resolved", settle(one, partitions)
        yield f"{label}: described", described(session, one.group)
    prefix = ConsumerMember(session, session.group("prefix"), "a", regex=f"{own}x")
    yield "prefix: join", prefix.join()
    names = ConsumerMember(session, session.group("union"), "a", [x], regex=f"{own}x2")
    yield "union: join", names.join()
    yield "union: resolved", settle(names, 3)
    yield "union: described", described(session, names.group)
    yield "dropped", names.beat(subscribed_topic_regex="")
    yield "dropped: acknowledged", names.acknowledge()
    yield "dropped: described", described(session, names.group)


@probe("8.10")
def patterns_change(session: Session) -> Observations:
    """Change, share and drop patterns. The old partitions are revoked at once."""
    new_topic(session, "x1", 2)
    new_topic(session, "y1", 1)
    own = session.name("").replace(".", r"\.")
    one = ConsumerMember(session, session.group(), "a", regex=f"{own}x.")
    one.join()
    yield "x", settle(one, 2)
    one.regex = f"{own}y."
    yield "y", one.beat(subscribed_topic_regex=one.regex)
    yield "y: acknowledged", one.acknowledge().error_code
    yield "y: resolved", settle(one, 1)
    yield "y: described", described(session, one.group)
    same = peer(one, "b", topics=(), regex=one.regex)
    yield "shared: join", same.join()
    yield "the same again", one.beat(subscribed_topic_regex=one.regex)
    yield "null", one.beat(subscribed_topic_regex=None)
    yield "shared: described", described(session, one.group)
    yield "shared: leave", same.leave()
    yield "again all", settle(one, 1)
    yield "dropped", one.beat(subscribed_topic_regex="")
    yield "dropped: acknowledged", one.acknowledge()
    yield "dropped: described", described(session, one.group)


@probe("8.10", slow=True)
def topics_of_a_pattern_appear(session: Session) -> Observations:
    """Create a topic that a resolved pattern matches. It is seen after at most 10 s."""
    new_topic(session, "x1", 2)
    own = session.name("").replace(".", r"\.")
    one = ConsumerMember(session, session.group(), "a", regex=f"{own}x.")
    one.join()
    yield "resolved", settle(one, 2)
    topic = session.topic("x2", 1)
    session.name_id(session.topic_id(topic), "x2")
    yield "seen", settle(one, 3)
    yield "described", described(session, one.group)
