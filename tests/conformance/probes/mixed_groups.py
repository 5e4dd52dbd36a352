"""Classic members of consumer groups: each request in each state, with each error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kohort.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.conformance.classic_consumers import ClassicConsumer, Owned
from tests.conformance.consumers import ConsumerMember, described, new_topic
from tests.conformance.members import Member, Protocols
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.epoch_offsets import fetch_as
from tests.conformance.probes.upgrading import BOTH, COOPERATIVE, RANGE, classic, views
from tests.conformance.session import Session


def mixed(
    session: Session, topic: str, label: str = "g", instances: Sequence[str | None] = (None, None)
) -> tuple[ConsumerMember, ClassicConsumer]:
    """Return a consumer member with two partitions and a classic one with the others.

    A third member makes the result depend on the order of member ids, unless they are static.
    """
    new = ConsumerMember(session, session.name(label), "new", [topic], instances[0])
    new.assignor = "range" if new.instance else None
    new.settle()
    a = classic(session, label, topic, instance=instances[1])
    a.join()
    a.resync()
    new.beat()
    new.acknowledge()
    a.heartbeat()
    a.rejoin({})
    a.resync()
    a.owned = {topic: [2, 3]}
    return new, a


Identity = tuple[str, int, str, str | None]


def _identities(one: Member) -> Iterator[Identity]:
    """Yield label, generation, member id and instance id: those of the member, and wrong ones."""
    for label, generation in (
        ("older", one.generation - 1),
        ("newer", one.generation + 1),
        ("none", -1),
    ):
        yield label, generation, one.id, None
    yield "unknown member", one.generation, "nobody", None
    yield "no member", one.generation, "", None
    yield "unknown instance", one.generation, one.id, "unknown"
    yield "instance alone", one.generation, "", "unknown"
    yield "itself", one.generation, one.id, None


@probe("8.8")
def heartbeats_of_classic_members(session: Session) -> Observations:
    """Heartbeat with wrong ids, 22 and 25, and behind the target assignment, 27."""
    topic = new_topic(session)
    new, a = mixed(session, topic, instances=("h", None))
    for label, generation, name, instance in _identities(a):
        request = HeartbeatRequest(
            group_id=a.group,
            generation_id=generation,
            member_id=name,
            group_instance_id=instance,
        )
        for version in (0, 3, 4) if instance is None else (3, 4):
            yield f"version {version}, {label}", session.ask(request, version)
    third = ConsumerMember(session, a.group, "third", [topic], "i", assignor="range")
    yield "a third joins", third.join()
    yield "behind the target", a.heartbeat()
    yield (
        "of the consumer member",
        session.ask(
            HeartbeatRequest(group_id=a.group, generation_id=new.epoch, member_id=new.id), 4
        ),
    )
    yield "described", described(session, a.group)


@probe("8.8")
def syncs_of_classic_members(session: Session) -> Observations:
    """Sync with wrong ids, generations and protocols: 22, 23, 25, 27."""
    topic = new_topic(session)
    new, a = mixed(session, topic)
    for label, generation, name, instance in _identities(a):
        request = a.sync_request(
            generation_id=generation, member_id=name, group_instance_id=instance
        )
        yield label, session.ask(request, 5)
    fields: tuple[tuple[str, dict[str, Any]], ...] = (
        ("another protocol", {"protocol_name": "roundrobin"}),
        ("another type", {"protocol_type": "connect"}),
        ("no protocol", {"protocol_name": None}),
        ("no type", {"protocol_type": None}),
        ("neither", {"protocol_name": None, "protocol_type": None}),
    )
    for label, other in fields:
        yield label, session.ask(a.sync_request(**other), 5)
    old = a.sync_request(protocol_name=None, protocol_type=None)
    for version in (0, 3):
        yield f"version {version}", session.ask(old, version)
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=a.id, assignment=b"x")
    yield "with assignments", session.ask(_with(a.sync_request(), "assignments", [given]), 5)
    of_new = a.sync_request(member_id=new.id, generation_id=new.epoch)
    yield "of the consumer member", session.ask(of_new, 5)
    ConsumerMember(session, a.group, "third", [topic], "i", assignor="range").join()
    yield "behind the target", a.resync()


def _with(request: SyncGroupRequest, name: str, value: object) -> SyncGroupRequest:
    setattr(request, name, value)
    return request


@probe("8.8")
def joins_of_classic_members(session: Session) -> Observations:
    """Join a consumer group by JoinGroup in each version, with good and bad values."""
    topic = new_topic(session)
    Protocol = JoinGroupRequest.JoinGroupRequestProtocol
    base = classic(session, "g", topic)
    metadata = base.join_request().protocols[0].metadata
    values: tuple[tuple[str, dict[str, object]], ...] = (
        ("unknown member", {"member_id": "nobody"}),
        ("the consumer's id", {"member_id": "new"}),
        ("another type", {"protocol_type": "connect"}),
        ("no type", {"protocol_type": ""}),
        ("no protocols", {"protocols": []}),
        ("session too short", {"session_timeout_ms": 1}),
        ("session too long", {"session_timeout_ms": 2**31 - 1}),
        ("no metadata", {"protocols": [Protocol(name="range", metadata=b"")]}),
        ("nonsense", {"protocols": [Protocol(name="range", metadata=b"nonsense")]}),
        (
            "two protocols, one nonsense",
            {
                "protocols": [
                    Protocol(name="range", metadata=metadata),
                    Protocol(name="cooperative-sticky", metadata=b"\0"),
                ]
            },
        ),
    )
    for version in (3, 5, 9):
        for label, fields in values:
            group = session.name(f"{version} {label}")
            keep = ConsumerMember(session, group, "keep", [topic], "h", assignor="range")
            keep.settle()
            new = ConsumerMember(session, group, "new", [topic], "i", assignor="range")
            new.settle()
            request = base.join_request("")
            request.group_id = group
            for name, value in fields.items():
                setattr(request, name, value)
            answer = session.connect().ask(request, version)
            yield f"version {version}, {label}", answer
            yield f"version {version}, {label}, described", described(session, group)


@probe("8.8")
def classic_joins_in_every_version(session: Session) -> Observations:
    """Join as a dynamic and as a static classic member in every version."""
    topic = new_topic(session)
    for version in range(10):
        for instance in (None, "i") if version >= 5 else (None,):
            new = ConsumerMember(session, session.name(f"{version} {instance}"), "new", [topic])
            new.settle()
            one = classic(
                session, f"{version} {instance}", topic, version=version, instance=instance
            )
            label = f"version {version}, {instance}"
            first = one.connection.ask(one.join_request(), version)
            yield f"{label}, join", first
            one.id, one.generation = first.member_id, max(first.generation_id, -1)
            if first.error_code:
                yield f"{label}, join with the id", one.join()
            yield f"{label}, sync", one.resync()
            yield f"{label}, described", described(session, new.group)


@probe("8.8")
def protocols_of_classic_members(session: Session) -> Observations:
    """Join with each list of protocols: one must be common to all classic members, else 23."""
    topic = new_topic(session)
    new = ConsumerMember(session, session.group(), "new", [topic])
    new.settle()
    first = classic(session, "g", topic, BOTH, instance="i")
    yield "both", first.join().error_code
    custom: Protocols = [("custom", b"")]
    for label, protocols in (
        ("cooperative", COOPERATIVE),
        ("range", RANGE),
        ("custom", custom),
        ("custom and range", [*custom, *RANGE]),
        ("range and custom", [*RANGE, *custom]),
    ):
        one = classic(session, "g", topic, protocols, version=3)
        answer = one.join()
        yield label, (answer.error_code, answer.protocol_name)
        found = described(session, new.group).groups[0].members
        yield f"{label}, types", sorted(m.member_type for m in found)
    first.protocols = custom
    yield "the first one changes to custom", first.join()
    first.protocols = RANGE
    yield "and to range", first.join()


@probe("8.8")
def owned_partitions_of_classic_members(session: Session) -> Observations:
    """Rejoin with each set of owned partitions. They are the acknowledgement."""
    topic = new_topic(session)
    owned: tuple[tuple[str, Owned], ...] = (
        ("all", {topic: [0, 1, 2, 3]}),
        ("none", {}),
        ("its own", {topic: [2, 3]}),
        ("another topic", {"no.such.topic": [0]}),
        ("unknown partitions", {topic: [7, 8]}),
    )
    for label, value in owned:
        new, a = mixed(session, topic, label, ("h", "i"))
        third = ConsumerMember(session, a.group, "third", [topic], "j", assignor="range")
        steps: tuple[tuple[str, Callable[[], object]], ...] = (
            ("third joins", third.join),
            ("a beats", a.heartbeat),
            ("a joins", partial(a.rejoin, value)),
            ("a syncs", a.resync),
            ("a beats again", a.heartbeat),
            ("new beats", new.beat),
            ("new acknowledges", new.acknowledge),
            ("third beats", third.beat),
        )
        for what, step in steps:
            yield f"{label}: {what}", step()
        yield f"{label}: described", described(session, a.group)


@probe("8.8")
def subscriptions_of_classic_members(session: Session) -> Observations:
    """Rejoin with other topics, which starts a new epoch."""
    x, y = new_topic(session, "x"), new_topic(session, "y")
    _, a = mixed(session, x)
    yield "before", views(session, a.group)
    yield "the same", a.join()
    for label, topics in ("other", [y]), ("both", [x, y]), ("none", []):
        a.topics = topics
        yield f"{label}: join", a.join()
        yield f"{label}: sync", a.resync()
        group = described(session, a.group).groups[0]
        yield f"{label}: epochs", (group.group_epoch, group.assignment_epoch)


@probe("8.8")
def commits_of_classic_members(session: Session) -> Observations:
    """Commit in every version as a classic member: 22 and 25, older generations by section."""
    topic = new_topic(session)
    new, a = mixed(session, topic)
    for version in range(2, 10):
        for label, generation, name, instance in _identities(a):
            if instance is not None and version < 7:
                continue
            request = a.commit_request(
                topic,
                version,
                generation_id_or_member_epoch=generation,
                member_id=name,
                group_instance_id=instance,
            )
            yield f"version {version}, {label}", session.ask(request, version)
    for epoch in range(a.generation - 1, a.generation + 2):
        yield f"fetch {epoch}", fetch_as(session, a.group, topic, a.id, epoch)
    yield "of the consumer member", fetch_as(session, a.group, topic, new.id, new.epoch)


@probe("8.8")
def classic_members_leave(session: Session) -> Observations:
    """Remove classic and consumer members through LeaveGroup, in each version."""
    topic = new_topic(session)
    for version in range(6):
        new, a = mixed(session, topic, f"v{version}")
        for label, name in ("unknown", "nobody"), ("classic", a.id), ("consumer", new.id):
            request = LeaveGroupRequest(group_id=a.group)
            if version < 3:
                request.member_id = name
            else:
                request.members = [LeaveGroupRequest.MemberIdentity(member_id=name)]
            yield f"version {version}, {label}", session.ask(request, version)
            yield f"version {version}, {label}, after", views(session, a.group)
    new, a = mixed(session, topic, "several")
    Identity = LeaveGroupRequest.MemberIdentity
    several = [
        Identity(member_id="nobody"),
        Identity(member_id=a.id),
        Identity(member_id=a.id),
        Identity(member_id="", group_instance_id="unknown"),
        Identity(member_id=new.id, group_instance_id="unknown"),
    ]
    yield "several", session.ask(LeaveGroupRequest(group_id=a.group, members=several), 5)
    yield "several, after", described(session, a.group)


@probe("8.8")
def static_classic_members(session: Session) -> Observations:
    """Rejoin and replace a static classic member, and use its old id: 82."""
    topic = new_topic(session)
    new = ConsumerMember(session, session.group(), "new", [topic])
    new.settle()
    a = classic(session, "g", topic, instance="i")
    steps: list[tuple[str, Callable[[], object]]] = [
        ("a joins", a.join),
        ("a syncs", a.resync),
        ("new beats", new.beat),
        ("new acknowledges", new.acknowledge),
        ("a beats", a.heartbeat),
        ("a joins again", a.join),
        ("a syncs again", a.resync),
    ]
    for what, step in steps:
        yield what, step()
    again = classic(session, "g", topic, instance="i")
    yield "another with its instance", again.join()
    yield "its sync", again.resync()
    yield "described", described(session, a.group)
    for label, ask in (
        ("beat", a.heartbeat),
        ("sync", a.resync),
        ("join", a.join),
        ("leave", a.leave),
        ("commit", lambda: session.ask(a.commit_request(topic), 8)),
    ):
        yield f"the old id: {label}", ask()
    consumer = ConsumerMember(session, a.group, "c", [topic], instance="i")
    yield "a consumer with its instance", consumer.join()
    yield "the classic one beats", again.heartbeat()
    yield "described again", described(session, a.group)
    third = classic(session, "g", topic, instance="i")
    yield "classic again, held", third.join()
    yield "the consumer beats", consumer.beat()
    yield "in the end", views(session, a.group)


@probe("8.8")
def members_of_both_protocols_leave_together(session: Session) -> Observations:
    """Remove the last consumer member together with classic ones in one LeaveGroup."""
    topic = new_topic(session)
    for label, leaving in (
        ("consumer first", ("c", "k1")),
        ("classic first", ("k1", "c")),
        ("an unknown one too", ("c", "x", "k1")),
        ("consumer alone", ("c",)),
        ("all of them", ("c", "k1", "k2")),
        ("one of two consumers", ("c", "k1")),
    ):
        c = ConsumerMember(session, session.name(label), "c", [topic], "c", assignor="range")
        k1, k2 = (classic(session, label, topic, instance=name) for name in ("k1", "k2"))
        c.settle()
        for one in (k1, k2):
            one.join()
            one.resync()
        if label == "one of two consumers":
            ConsumerMember(session, c.group, "d", [topic], "d").join()
        ids = {"c": c.id, "k1": k1.id, "k2": k2.id, "x": "nobody"}
        request = LeaveGroupRequest(
            group_id=c.group,
            members=[LeaveGroupRequest.MemberIdentity(member_id=ids[name]) for name in leaving],
        )
        yield f"{label}: before", views(session, c.group)
        yield f"{label}: leave", session.ask(request, 5)
        yield f"{label}: after", views(session, c.group)
        for name, one in ("k1", k1), ("k2", k2):
            yield f"{label}: {name} beats", one.heartbeat()
