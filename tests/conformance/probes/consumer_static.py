"""Static members of consumer groups: leaving for now, returning, and held instance ids."""

from __future__ import annotations

from kohort.protocol.messages import LeaveGroupRequest
from tests.conformance.consumers import (
    LEAVE,
    LEAVE_FOR_NOW,
    ConsumerMember,
    described,
    member,
    new_topic,
    peer,
    rounds,
    settled_pair,
    story,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session


def _pair(session: Session, topic: str) -> tuple[ConsumerMember, ConsumerMember]:
    """Return a static and a dynamic member with half of the partitions each."""
    first = member(session, topic, "a", instance="i")
    second = peer(first, "b")
    first.settle()
    second.join()
    for one in (first, second):
        list(rounds(one))
    return first, second


@probe("8.5")
def a_static_member_returns(session: Session) -> Observations:
    """Leave with epoch -2 and return under another member id: no rebalance."""
    topic = new_topic(session)
    a, b = _pair(session, topic)
    again = peer(a, "a again", instance="i")
    yield from story(
        session,
        a.group,
        ("a leaves for now", lambda: a.leave(LEAVE_FOR_NOW)),
        ("b beats", b.beat),
        ("a leaves for now again", lambda: a.leave(LEAVE_FOR_NOW)),
        ("a returns", again.join),
        ("a acknowledges", again.acknowledge),
        ("b beats again", b.beat),
        ("the old id beats", a.beat),
        ("the old id leaves", a.leave),
        ("the old id leaves for now", lambda: a.leave(LEAVE_FOR_NOW)),
        ("a leaves for now as another", lambda: again.leave(LEAVE_FOR_NOW)),
        ("a returns under its first id", a.join),
    )


@probe("8.5")
def a_static_member_returns_otherwise(session: Session) -> Observations:
    """Return after epoch -2 with another subscription, under the same id, and mid-way."""
    topic, other = new_topic(session), new_topic(session, "u", 2)
    a, b = _pair(session, topic)
    a.assignor = b.assignor = "range"
    yield from story(
        session,
        a.group,
        ("a leaves for now", lambda: a.leave(LEAVE_FOR_NOW)),
        ("a returns with another topic", lambda: a.join(subscribed_topic_names=[topic, other])),
        ("a acknowledges", a.acknowledge),
        ("a leaves for now again", lambda: a.leave(LEAVE_FOR_NOW)),
        ("a heartbeats", a.beat),
        ("a heartbeats with everything", a.repeat),
        ("b leaves", b.leave),
        ("a returns with another timeout", lambda: a.join(rebalance_timeout_ms=999)),
        ("a acknowledges what it was given", a.acknowledge),
    )


@probe("8.5")
def a_static_member_returns_while_revoking(session: Session) -> Observations:
    """Leave with epoch -2 while revoking and while waiting, and return."""
    topic = new_topic(session)
    a = member(session, topic, "a", instance="i")
    b = peer(a, "b", instance="j")
    a.settle()
    b.join()
    again = peer(a, "a again", instance="i")
    yield from story(
        session,
        a.group,
        ("a must revoke", a.beat),
        ("a leaves for now", lambda: a.leave(LEAVE_FOR_NOW)),
        ("b beats", b.beat),
        ("b leaves for now", lambda: b.leave(LEAVE_FOR_NOW)),
        ("a returns", again.join),
        ("a acknowledges", again.acknowledge),
        ("b returns", b.join),
        ("b beats again", b.beat),
        ("a acknowledges again", again.acknowledge),
        ("b beats at last", b.beat),
    )


@probe("8.5")
def an_instance_that_is_held(session: Session) -> Observations:
    """Join with the instance id of a member that is there: 111. Other requests get 82."""
    topic = new_topic(session)
    a, _ = _pair(session, topic)
    thief = peer(a, "thief", instance="i")
    yield from story(
        session,
        a.group,
        ("join", thief.join),
        ("join again", thief.join),
        ("beat", lambda: thief.beat(member_epoch=a.epoch)),
        ("everything", lambda: thief.repeat(member_epoch=a.epoch)),
        ("leave", thief.leave),
        ("leave for now", lambda: thief.leave(LEAVE_FOR_NOW)),
        ("the holder joins again", a.join),
        ("the holder beats", a.beat),
    )


@probe("8.5")
def a_static_member_joins_twice(session: Session) -> Observations:
    """Join again under the same ids, as after a lost response: 111 until epoch -2."""
    topic = new_topic(session)
    a = member(session, topic, "a", instance="i")
    yield from story(
        session,
        a.group,
        ("a joins", a.join),
        ("a joins again", a.join),
        ("a beats", a.beat),
        ("a leaves for now", lambda: a.leave(LEAVE_FOR_NOW)),
        ("a joins at last", a.join),
        ("a acknowledges", a.acknowledge),
    )


@probe("8.5")
def wrong_ids_of_static_members(session: Session) -> Observations:
    """Heartbeat, leave and join with each mixture of known and unknown ids."""
    topic = new_topic(session)
    a, b = _pair(session, topic)
    for name in ("a", "b", "nobody"):
        for instance in ("i", "unknown", None):
            one = peer(a, name, instance=instance)
            known = {"a": a, "b": b}.get(name, a)
            for epoch in (known.epoch, LEAVE_FOR_NOW):
                if (name, epoch, instance) == ("a", LEAVE_FOR_NOW, "i"):
                    continue
                label = "leaves for now" if epoch < 0 else "beats"
                yield f"{name} as {instance} {label}", one.beat(member_epoch=epoch)
    yield "b joins as i", peer(a, "b", instance="i").join()
    yield "a joins as unknown", peer(a, "a", instance="k").join()
    yield "a joins as none", peer(a, "a").join()
    yield "b joins as new", peer(a, "b", instance="new").join()
    yield "described", described(session, a.group)


@probe("8.5")
def leaving_with_wrong_ids(session: Session) -> Observations:
    """Leave for good with each mixture of ids, in a new group each."""
    topic = new_topic(session)
    for name in ("a", "b", "nobody"):
        for instance in ("i", "unknown", None):
            a = ConsumerMember(
                session, session.name(f"{name} as {instance}"), "a", [topic], instance="i"
            )
            b = peer(a, "b")
            a.settle()
            b.join()
            one = peer(a, name, instance=instance)
            yield f"{name} as {instance}", one.leave(LEAVE)
            group = described(session, a.group).groups[0]
            left = sorted((m.member_id, m.member_epoch) for m in group.members)
            yield f"{name} as {instance}, afterwards", (group.group_epoch, left)


@probe("8.5")
def a_static_member_leaves_for_good(session: Session) -> Observations:
    """Leave with epoch -1, after -2 too, and through LeaveGroup."""
    topic = new_topic(session)
    a, b = _pair(session, topic)
    yield "leave", a.leave()
    yield "described", described(session, a.group)
    a.join()
    yield "leave for now", a.leave(LEAVE_FOR_NOW)
    yield "and for good", a.leave()
    yield "described again", described(session, a.group)
    a.join()
    a.leave(LEAVE_FOR_NOW)
    who = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="i")
    request = LeaveGroupRequest(group_id=a.group, members=[who])
    yield "LeaveGroup", session.ask(request, 5)
    yield "described at last", described(session, a.group)
    yield "the other", b.beat()


@probe("8.5")
def static_members_of_a_full_target(session: Session) -> Observations:
    """Let static members rejoin without leaving: same id, same assignment."""
    topic = new_topic(session)
    a, b = settled_pair(session, topic, instance=None)
    static = peer(a, "c", instance="i")
    yield from story(
        session,
        a.group,
        ("c joins", static.join),
        ("a beats", a.beat),
        ("a acknowledges", a.acknowledge),
        ("b beats", b.beat),
        ("b acknowledges", b.acknowledge),
        ("c beats", static.beat),
        ("c joins again", static.join),
        ("c beats without its instance", lambda: static.beat(instance_id=None)),
    )


@probe("8.5")
def members_take_another_instance_id(session: Session) -> Observations:
    """Join again under the same member id with a first, and with another instance id."""
    topic = new_topic(session)
    for label, instance in ("dynamic", None), ("static", "first"):
        for state in "stable", "behind":
            a = ConsumerMember(session, session.group(f"{label} {state}"), "a", [topic], instance)
            a.settle()
            b = peer(a, "b")
            if state == "behind":
                b.join()
            what = f"{label}, {state}"
            yield f"{what}: joins again", a.join(instance_id="other")
            yield f"{what}: described", described(session, a.group)
            for name in dict.fromkeys((instance, "other", None)):
                yield f"{what}: beats as {name}", a.beat(instance_id=name)
                yield f"{what}: described as {name}", described(session, a.group)
            c = peer(a, "c", instance=instance or "other")
            yield f"{what}: the first is held", c.join()
            yield f"{what}: b joins", b.join()
            for number in range(2):
                for step, seen in rounds(a, b):
                    yield f"{what}: {number} {step}", seen
            yield f"{what}: in the end", described(session, a.group)
            yield f"{what}: a leaves", a.leave()
            yield f"{what}: the first is free", c.join()


@probe("8.5")
def a_live_member_takes_a_released_instance_id(session: Session) -> Observations:
    """Join again under the own member id with the instance id of a member that left for now."""
    topic = new_topic(session)
    for label, instance in ("dynamic", None), ("static", "own"):
        for state in "stable", "behind":
            group = session.group(f"{label} {state}")
            gone = ConsumerMember(session, group, "a", [topic], "i")
            gone.settle()
            taker = peer(gone, "b", instance=instance)
            taker.join()
            for one in (gone, taker):
                list(rounds(one))
            gone.leave(LEAVE_FOR_NOW)
            other = peer(gone, "d")
            if state == "behind":
                other.join()
            what = f"{label}, {state}"
            yield f"{what}: before", described(session, group)
            yield f"{what}: takes it", taker.join(instance_id="i")
            yield f"{what}: described", described(session, group)
            for name in (instance, "i"):
                yield f"{what}: beats as {name}", taker.beat(instance_id=name)
                yield f"{what}: described as {name}", described(session, group)
            yield f"{what}: the former one returns", gone.join()
            again = peer(gone, "c", instance=instance or "i")
            yield f"{what}: another joins as the first", again.join()
            yield f"{what}: d joins", other.join()
            taker.instance = "i"
            for number in range(2):
                for step, seen in rounds(taker, other, again):
                    yield f"{what}: {number} {step}", seen
            yield f"{what}: in the end", described(session, group)
            yield f"{what}: leaves for now", taker.leave(LEAVE_FOR_NOW)
            yield f"{what}: described at the end", described(session, group)
            yield f"{what}: the former one returns at last", gone.join()
            yield f"{what}: another joins as the first again", again.join()
            yield f"{what}: leaves", taker.leave()
            yield f"{what}: described after all", described(session, group)
