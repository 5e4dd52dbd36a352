"""Migration from the classic protocol to the consumer protocol and back, with its refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kohort.protocol.messages import ListGroupsRequest, OffsetFetchRequest
from tests.conformance.classic_consumers import (
    ClassicConsumer,
    assignment,
    stable_consumers,
)
from tests.conformance.consumers import (
    LEAVE_FOR_NOW,
    ConsumerMember,
    described,
    new_topic,
)
from tests.conformance.members import (
    Member,
    Protocols,
    commit_request,
    complete,
    describe,
    stable,
    wait_for_members,
    wait_for_state,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session

RANGE: Protocols = [("range", b"")]
COOPERATIVE: Protocols = [("cooperative-sticky", b"")]
BOTH: Protocols = [("range", b""), ("cooperative-sticky", b"")]


def views(session: Session, group: str) -> list[object]:
    """Return the group as both APIs describe it, and its entry in the list."""
    listed = session.ask(ListGroupsRequest(), 5)
    found = [(g.group_state, g.group_type) for g in listed.groups if g.group_id == group]
    return [describe(session, group, 6), described(session, group), found]


def classic(
    session: Session, label: str, topic: str, protocols: Protocols = RANGE, **options: object
) -> ClassicConsumer:
    """Return a classic member that is not in its group yet."""
    return ClassicConsumer(
        session,
        session.name(label),
        topics=[topic],
        protocols=protocols,
        **options,  # type: ignore[arg-type]  # as the class's own
    )


def newcomer(one: Member, topic: str, name: str = "new", **options: object) -> ConsumerMember:
    """Return a member of the consumer protocol for the group of a classic one."""
    session, group = one.session, one.group
    return ConsumerMember(session, group, name, [topic], **options)  # type: ignore[arg-type]


@probe("8.7")
def a_classic_group_becomes_a_consumer_group(session: Session) -> Observations:
    """Join a stable classic group of two, step by step, for each classic protocol."""
    topic = new_topic(session)
    for label, protocols in ("range", RANGE), ("cooperative", COOPERATIVE), ("both", BOTH):
        a = classic(session, label, topic, protocols, instance="a")
        b = classic(session, label, topic, protocols, instance="b")
        stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
        new = newcomer(a, topic, instance="c", assignor="range")
        steps: list[tuple[str, Callable[[], object]]] = [
            ("new joins", new.join),
            ("a beats", a.heartbeat),
            ("b beats", b.heartbeat),
            ("a syncs", a.resync),
            ("a joins with all", a.rejoin),
            ("a syncs again", a.resync),
            ("a beats again", a.heartbeat),
            ("a joins with less", partial(a.rejoin, {topic: [0]})),
            ("a syncs less", a.resync),
            ("a joins with nothing", partial(a.rejoin, {})),
            ("a syncs its share", a.resync),
            ("a beats at last", a.heartbeat),
            ("b joins with nothing", partial(b.rejoin, {})),
            ("b syncs", b.resync),
            ("new beats", new.beat),
            ("new acknowledges", new.acknowledge),
            ("b beats again", b.heartbeat),
            ("b joins again", partial(b.rejoin, {})),
            ("b syncs again", b.resync),
        ]
        for number, (what, step) in enumerate(steps):
            yield f"{label} {number}. {what}", step()
            yield f"{label} {number}. afterwards", views(session, a.group)


@probe("8.7")
def parked_requests_when_a_group_is_converted(session: Session) -> Observations:
    """Convert a group while classic members wait in JoinGroup and in SyncGroup: 27."""
    topic = new_topic(session)
    a, b = (classic(session, "joining", topic, instance=name) for name in "ab")
    stable_consumers((a, {topic: [0, 1, 2, 3]}))
    b.send_join()
    wait_for_state(session, a.group, "PreparingRebalance")
    yield "new joins", newcomer(a, topic, instance="n", assignor="range").join()
    yield "b has joined", b.joined()
    yield "preparing", described(session, a.group)
    yield "a beats", a.heartbeat()
    c, d = (classic(session, "syncing", topic, instance=name) for name in "cd")
    complete(c, d)
    d.send_sync()
    session.let_through(c.group)
    assert d.connection.is_parked()
    yield "new joins the other", newcomer(c, topic, instance="n", assignor="range").join()
    yield "d has synced", d.synced()
    yield "completing", described(session, c.group)
    yield "c beats", c.heartbeat()
    yield "c syncs", c.resync()


@probe("8.7")
def groups_that_are_not_converted(session: Session) -> Observations:
    """Join classic groups that cannot be converted: 69, and they stay as they are."""
    topic = new_topic(session)
    owned = {topic: [0, 1, 2, 3]}
    groups: list[tuple[str, Member]] = []
    other = Member(session, session.name("connect"), protocol_type="connect")
    stable(other)
    groups.append(("another type", other))
    for label, user_data in ("user data", b"x"), ("empty user data", b""):
        one = classic(session, label, topic, COOPERATIVE)
        stable_consumers((one, owned), user_data=user_data)
        groups.append((label, one))
    named = classic(session, "custom", topic, [("custom", b"")])
    stable_consumers((named, owned))
    groups.append(("a custom assignor", named))
    for label, data in (
        ("nonsense assigned", b"nonsense"),
        ("short assigned", b"\0"),
        ("nothing assigned", b""),
        ("negative version", b"\xff\xff"),
        ("later version", b"\0\x09" + assignment(owned)[2:]),
        ("longer than needed", assignment(owned) + b"more"),
    ):
        one = classic(session, label, topic, instance="a")
        complete(one)
        one.sync((one, data))
        groups.append((label, one))
    for label, member in groups:
        new = newcomer(member, topic, instance="b", assignor="range")
        yield f"{label}: join", new.join()
        yield f"{label}: after", views(session, member.group)
        yield f"{label}: the classic member", member.heartbeat()


@probe("8.7")
def empty_groups_change_their_protocol(session: Session) -> Observations:
    """Join an empty classic group by the consumer protocol, and the other way, with offsets."""
    topic = new_topic(session)
    one = classic(session, "g", topic)
    stable_consumers((one, {topic: [0]}))
    commit = one.commit_request(topic, 7)
    yield "commit", one.connection.ask(commit, 8)
    yield "leave", one.leave()
    new = newcomer(one, topic)
    yield "consumer joins", new.join()
    yield "as consumer", views(session, one.group)
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=one.group, topics=None)
    yield "offsets", session.ask(OffsetFetchRequest(groups=[wanted]), 8)
    yield "consumer leaves", new.leave()
    yield "empty", views(session, one.group)
    again = classic(session, "g", topic)
    complete(again)
    yield "as classic", views(session, one.group)
    yield "sync", again.sync((again, assignment({topic: [0]})))
    yield "generation", again.generation
    yield "offsets again", session.ask(OffsetFetchRequest(groups=[wanted]), 8)
    yield "other protocol type", _joined(session, one.group, "connect")
    only_offsets = session.group("offsets")
    session.ask(commit_request(only_offsets, topic), 8)
    admin = ConsumerMember(session, only_offsets, "a", [topic])
    yield "a group of offsets", admin.join()
    yield "a group of offsets, described", views(session, only_offsets)


def _joined(session: Session, group: str, protocol_type: str) -> int:
    one = Member(session, group, protocol_type=protocol_type, version=3)
    return one.join().error_code


@probe("8.7")
def a_group_goes_back(session: Session) -> Observations:
    """Let the last consumer member leave, and the classic ones rebalance again."""
    topic = new_topic(session)
    for label, protocols in ("range", RANGE), ("cooperative", COOPERATIVE):
        a = classic(session, label, topic, protocols)
        stable_consumers((a, {topic: [0, 1, 2, 3]}))
        new = newcomer(a, topic)
        steps: list[tuple[str, Callable[[], object]]] = [
            ("new joins", new.join),
            ("a joins with less", partial(a.rejoin, {topic: [0, 1]})),
            ("a syncs", a.resync),
            ("new beats", new.beat),
            ("new acknowledges", new.acknowledge),
            ("new leaves", new.leave),
            ("a beats", a.heartbeat),
            ("a joins", a.join),
            ("a syncs for all", partial(a.sync, (a, assignment({topic: [0, 1, 2, 3]})))),
            ("a beats again", a.heartbeat),
        ]
        for what, step in steps:
            yield f"{label}: {what}", step()
            yield f"{label}: after {what}", views(session, a.group)


@probe("8.7")
def a_group_goes_back_in_the_middle(session: Session) -> Observations:
    """Let the last consumer member leave while a classic one is behind the group's epoch: 22."""
    topic = new_topic(session)
    a, b = (classic(session, "g", topic, instance=name) for name in "ab")
    stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
    new = newcomer(a, topic, instance="c", assignor="range")
    new.join()
    a.rejoin({topic: [0]})
    a.resync()
    yield "before", views(session, a.group)
    yield "leaves", new.leave()
    yield "after", views(session, a.group)
    for one, name in ((a, "a"), (b, "b")):
        yield f"{name} beats", one.heartbeat()
        yield f"{name} commits", one.connection.ask(one.commit_request(topic), 8)


@probe("8.7")
def static_members_change_their_protocol(session: Session) -> Observations:
    """Replace a static member by one of the other protocol, up and down, without a rebalance."""
    topic = new_topic(session)
    a = classic(session, "g", topic, instance="i")
    b = classic(session, "g", topic, instance="j")
    stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
    new = newcomer(a, topic, instance="i")
    steps: list[tuple[str, Callable[[], object]]] = [
        ("i becomes a consumer", new.join),
        ("the old one beats", a.heartbeat),
        ("the old one syncs", a.resync),
        ("the old one joins", a.join),
        ("the old one commits", lambda: a.connection.ask(a.commit_request(topic), 8)),
        ("the old one leaves", a.leave),
        ("b beats", b.heartbeat),
        ("b beats again", b.heartbeat),
        ("new acknowledges", new.acknowledge),
    ]
    for what, step in steps:
        yield what, step()
        yield f"after {what}", views(session, a.group)
    back = classic(session, "g", topic, instance="i")
    yield "i becomes classic while held", back.join()
    yield "after that", views(session, a.group)
    yield "new leaves for now", new.leave(LEAVE_FOR_NOW)
    again = classic(session, "g", topic, instance="i")
    yield "i becomes classic", again.join()
    yield "i syncs", again.resync()
    yield "in the end", views(session, a.group)
    yield "b beats in the end", b.heartbeat()


@probe("8.7")
def an_upgrade_ends_a_rebalance_without_a_result(session: Session) -> Observations:
    """Replace a static member by a consumer while another one joins with another subscription.

    The group keeps its generation and the old assignment, which contains a topic that the other
    member is no longer subscribed to.
    """
    topic, other = new_topic(session), new_topic(session, "other")
    a = classic(session, "g", topic, instance="a")
    b = classic(session, "g", topic, instance="b")
    stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
    a.topics, a.owned = [other], {}
    a.send_join()
    wait_for_state(session, a.group, "PreparingRebalance")
    new = newcomer(b, topic, instance="b", assignor="range")
    yield "b becomes a consumer", new.join()
    yield "a has joined", a.joined()
    yield "after that", views(session, a.group)
    yield "a joins", a.join()
    yield "a syncs", a.resync()
    yield "a beats", a.heartbeat()
    yield "new beats", new.beat()
    yield "in the end", views(session, a.group)


@probe("8.7")
def a_member_changes_its_protocol_in_place(session: Session) -> Observations:
    """Heartbeat under a classic member's id with its generation, and join under it."""
    topic = new_topic(session)
    for label in ("heartbeat", "full", "join"):
        a = classic(session, label, topic)
        stable_consumers((a, {topic: [0, 1, 2, 3]}))
        newcomer(a, topic).join()
        same = newcomer(a, topic, a.id)
        same.epoch = a.generation
        if label == "heartbeat":
            yield f"{label}: in place", same.beat()
        elif label == "full":
            yield f"{label}: in place", same.repeat(topic_partitions=[])
        else:
            yield f"{label}: in place", same.join()
        yield f"{label}: after", views(session, a.group)
        yield f"{label}: classic heartbeat", a.heartbeat()
        yield f"{label}: beats", same.beat()


@probe("8.7")
def classic_members_join_a_consumer_group(session: Session) -> Observations:
    """Join a consumer group by the classic protocol: a share at once, after revocation more."""
    topic = new_topic(session)
    for label, protocols in ("range", RANGE), ("cooperative", COOPERATIVE):
        new = ConsumerMember(session, session.name(label), "new", [topic])
        new.settle()
        a = classic(session, label, topic, protocols)
        steps: list[tuple[str, Callable[[], object]]] = [
            ("a joins", a.join),
            ("a syncs", a.resync),
            ("a beats", a.heartbeat),
            ("new must revoke", new.beat),
            ("a beats, not released", a.heartbeat),
            ("new acknowledges", new.acknowledge),
            ("a beats, released", a.heartbeat),
            ("a joins again", partial(a.rejoin, {})),
            ("a syncs again", a.resync),
            ("a beats in the end", a.heartbeat),
            ("a leaves", a.leave),
            ("new gets all", new.beat),
        ]
        for what, step in steps:
            yield f"{label}: {what}", step()
            yield f"{label}: after {what}", views(session, new.group)


@probe("8.7")
def classic_members_in_a_full_group(session: Session) -> Observations:
    """Join a full consumer group by the classic protocol, and replace its consumer member: 81."""
    topic = new_topic(session, partitions=6)
    new = ConsumerMember(session, session.name("g"), "new", [topic], instance="i")
    new.settle()
    every = [classic(session, "g", topic, instance=f"j{number}") for number in range(5)]
    for number, one in enumerate(every):
        yield f"{number} joins", one.join().error_code
    refused = classic(session, "g", topic)
    yield "too many", refused.connection.ask(refused.join_request(), 9)
    yield "too many with id", refused.connection.ask(refused.join_request("some-id"), 9)
    instead = classic(session, "g", topic, instance="i")
    yield "instead of the consumer", instead.join().error_code
    yield "six remain", described(session, new.group).groups[0].group_state
    yield "and one leaves", every[0].leave()
    yield "five remain", described(session, new.group).groups[0].group_state
    yield "as a classic group", describe(session, new.group, 6).groups[0].group_state


@probe("8.7")
def a_group_goes_back_before_its_next_target(session: Session) -> Observations:
    """Replace the last consumer member while the group waits for a new target."""
    topic = new_topic(session)
    a = classic(session, "g", topic, instance="i")
    b = classic(session, "g", topic, instance="j")
    stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
    new = newcomer(a, topic, instance="i", assignor="range")
    yield "i becomes a consumer", new.join()
    third = classic(session, "g", topic, instance="k")
    yield "k joins", third.join()
    yield "k leaves", third.leave()
    yield "waiting", views(session, a.group)
    again = classic(session, "g", topic, instance="i")
    yield "i becomes classic", again.join()
    yield "classic", views(session, a.group)
    yield "i beats", again.heartbeat()
    yield "i syncs", again.resync()
    yield "j beats", b.heartbeat()


@probe("8.7")
def groups_without_a_generation_are_converted(session: Session) -> Observations:
    """Join a classic group in its first rebalance, at generation 0, by names and by patterns."""
    topic = new_topic(session)
    cases: tuple[tuple[str, str | None, dict[str, object]], ...] = (
        ("names", "a", {}),
        ("a pattern", "a", {"subscribed_topic_names": [], "subscribed_topic_regex": topic}),
        ("no topics", "a", {"subscribed_topic_names": []}),
        ("a dynamic member", None, {}),
    )
    for label, instance, fields in cases:
        for attempt in range(1000):  # until the heartbeat comes before the first generation
            a = classic(session, f"{label} {attempt}", topic, instance=instance, version=5)
            a.send_join()
            wait_for_members(session, a.group, 1)
            joined = newcomer(a, topic, instance="n", assignor="range").join(**fields)
            of_a = a.joined()
            if of_a.error_code:
                break
        yield f"{label}: new joins", joined
        yield f"{label}: a has joined", of_a
        yield f"{label}: after", describe(session, a.group).groups[0].group_state
        yield f"{label}: a joins again", a.join()
        yield f"{label}: in the end", describe(session, a.group).groups[0].group_state


@probe("8.7")
def a_group_with_partitions_of_two_members_is_not_converted(session: Session) -> Observations:
    """Join a classic group whose leader assigned each partition twice: -1."""
    topic = new_topic(session)
    a, b, c = (classic(session, "g", topic, instance=name) for name in "abc")
    stable_consumers((a, {topic: [0, 1, 2, 3]}), (b, {topic: [3]}))
    new = newcomer(a, topic, instance="n", assignor="range")
    yield "new joins", new.join()
    yield "after", views(session, a.group)
    yield "beats", [one.heartbeat().error_code for one in (a, b)]
    c.send_join()
    wait_for_state(session, a.group, "PreparingRebalance")
    yield "new joins in a rebalance", new.join()
    yield "c has joined", c.joined()
    yield "in the end", describe(session, a.group).groups[0].group_state
