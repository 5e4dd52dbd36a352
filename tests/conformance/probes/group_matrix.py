"""Error matrix of classic groups: each state of a group, and each request with each mistake.

Every probe brings a group into one state and sends it requests of one API. The requests change
nothing that a later one could observe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from kohort.protocol import Request, Response
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.conformance.members import (
    Member,
    commit_request,
    complete,
    describe,
    pair,
    stabilize,
    wait_for_state,
)
from tests.conformance.probe import Observations, add_probe
from tests.conformance.session import Session
from tests.conformance.wire import FAR_MS


@dataclass
class Scene:
    """Group in some state: its name, a topic, and a member of it if it has one."""

    session: Session
    group: str
    topic: str
    member_id: str
    generation: int
    instance: str | None = None

    @classmethod
    def of(cls, session: Session, topic: str, member: Member) -> Scene:
        return cls(session, member.group, topic, member.id, member.generation, member.instance)


def unknown(session: Session) -> Scene:
    """Return a group that does not exist."""
    return Scene(session, session.group(), session.topic(), "nobody", 1)


def offsets_only(session: Session) -> Scene:
    """Return an empty group with offsets that an administrator has committed."""
    scene = unknown(session)
    session.ask(commit_request(scene.group, scene.topic), 8)
    return scene


def empty(session: Session) -> Scene:
    """Return a group whose only member has left."""
    member = Member(session, session.group())
    complete(member)
    stabilize(member)
    member.leave()
    return Scene.of(session, session.topic(), member)


def preparing(session: Session) -> Scene:
    """Return a stable group of one, and a second member that waits for the first to rejoin."""
    topic = session.topic()
    first, second = pair(session, session.group())
    complete(first)
    stabilize(first)
    second.send_join()
    wait_for_state(session, first.group, "PreparingRebalance")
    return Scene.of(session, topic, first)


def completing(session: Session) -> Scene:
    """Return two members that have joined, and have no assignment yet."""
    topic = session.topic()
    members = pair(session, session.group())
    complete(*members)
    return Scene.of(session, topic, members[0])


def stable(session: Session) -> Scene:
    """Return two members with their assignments."""
    topic = session.topic()
    members = pair(session, session.group())
    complete(*members)
    stabilize(*members)
    return Scene.of(session, topic, members[0])


def stable_static(session: Session) -> Scene:
    """Return a static member in a stable group, after another one was replaced."""
    topic = session.topic()
    member = Member(session, session.group(), instance="i")
    complete(member)
    stabilize(member)
    scene = Scene.of(session, topic, member)
    Member(session, member.group, instance="i").join()
    return scene


STATES: dict[str, Callable[[Session], Scene]] = {
    state.__name__: state
    for state in (unknown, offsets_only, empty, preparing, completing, stable, stable_static)
}

Identity = tuple[str, int, str, str | None]


def identities(scene: Scene) -> Iterator[Identity]:
    """Yield label, generation, member id and instance id: those of the member, and wrong ones."""
    generation, member_id, instance = scene.generation, scene.member_id, scene.instance
    yield "itself", generation, member_id, instance
    yield "older generation", generation - 1, member_id, instance
    yield "newer generation", generation + 1, member_id, instance
    yield "generation -1", -1, member_id, instance
    yield "unknown member", generation, "somebody else", instance
    yield "no member", generation, "", instance
    yield "unknown instance", generation, member_id, "another instance"
    yield "unknown instance alone", generation, "", "another instance"
    if instance is not None:
        yield "instance alone", generation, "", instance
        yield "no instance", generation, member_id, None
        yield "unknown member, no instance", generation, "somebody else", None


def requests(scene: Scene, kind: str) -> Iterator[tuple[str, Request[Response], int]]:
    """Yield label, request and version."""
    if kind == "heartbeat":
        for label, generation, member_id, instance in identities(scene):
            heartbeat = HeartbeatRequest(
                group_id=scene.group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
            )
            yield label, heartbeat, 4
            if instance is None:
                for version in (0, 1):
                    yield f"{label}, version {version}", heartbeat, version
    elif kind == "commit":
        yield from _commits(scene)
    elif kind == "sync":
        yield from _syncs(scene)
    elif kind == "join":
        yield from _joins(scene)
    elif kind == "leave":
        for label, _, member_id, instance in identities(scene):
            # The member itself does not leave, because later requests need it.
            if label not in ("itself", "instance alone", "no instance") and "gen" not in label:
                leave = LeaveGroupRequest.MemberIdentity(
                    member_id=member_id, group_instance_id=instance
                )
                request = LeaveGroupRequest(group_id=scene.group, members=[leave])
                for version in (3, 5):
                    yield f"{label}, version {version}", request, version
        yield "nobody", LeaveGroupRequest(group_id=scene.group, members=[]), 5
        for version in (0, 2):
            request = LeaveGroupRequest(group_id=scene.group, member_id="somebody else")
            yield f"version {version}", request, version
    else:
        for version in range(7):
            yield f"describe {version}", DescribeGroupsRequest(groups=[scene.group]), version
        for label, topics in (
            ("one", [OffsetFetchRequest.OffsetFetchRequestTopics(name=scene.topic)]),
            ("all", None),
        ):
            if topics:
                topics[0].partition_indexes = [0, 1]
            asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=scene.group, topics=topics)
            yield f"offsets of {label}", OffsetFetchRequest(groups=[asked]), 8


def _commits(scene: Scene) -> Iterator[tuple[str, Request[Response], int]]:
    # A request of version 2 to 6 has no instance, and -1 with "" stands for no member.
    yield "administrator", commit_request(scene.group, scene.topic), 8
    for label, generation, member_id, instance in identities(scene):
        request = commit_request(scene.group, scene.topic, 7)
        request.generation_id_or_member_epoch = generation
        request.member_id = member_id
        request.group_instance_id = instance
        for version in (8, 9):
            yield f"{label}, version {version}", request, version
        if instance is None:
            yield f"{label}, version 3", request, 3
    both: OffsetCommitRequest = commit_request(scene.group, scene.topic)
    both.member_id, both.generation_id_or_member_epoch = scene.member_id, scene.generation
    both.topics.append(commit_request(scene.group, "no-such-topic").topics[0])
    yield "and an unknown topic", both, 8


def _syncs(scene: Scene) -> Iterator[tuple[str, Request[Response], int]]:
    for label, generation, member_id, instance in identities(scene):
        if label != "itself" or scene.instance:
            request = SyncGroupRequest(
                group_id=scene.group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
            )
            yield label, request, 5
            if instance is None:
                old = SyncGroupRequest(
                    group_id=scene.group, generation_id=generation, member_id=member_id
                )
                yield f"{label}, version 0", old, 0
    for label, kind, name in (
        ("other type", "connect", "range"),
        ("other protocol", "consumer", "roundrobin"),
        ("empty type", "", "range"),
        ("empty protocol", "consumer", ""),
    ):
        request = SyncGroupRequest(
            group_id=scene.group,
            generation_id=scene.generation,
            member_id=scene.member_id,
            group_instance_id=scene.instance,
            protocol_type=kind,
            protocol_name=name,
        )
        yield label, request, 5


def _joins(scene: Scene) -> Iterator[tuple[str, Request[Response], int]]:
    def join(member_id: str, instance: str | None = None, **other: object) -> JoinGroupRequest:
        request = JoinGroupRequest(
            group_id=scene.group,
            session_timeout_ms=FAR_MS,
            rebalance_timeout_ms=FAR_MS,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")],
        )
        for name, value in other.items():
            setattr(request, name, value)
        return request

    nothing_in_common = [JoinGroupRequest.JoinGroupRequestProtocol(name="other", metadata=b"")]
    yield "unknown member", join("somebody else"), 9
    yield "unknown member of version 0", _old(join("somebody else")), 0
    yield "unknown member of an unknown instance", join("somebody else", "another instance"), 9
    yield "no protocols", join("", protocols=[]), 9
    yield "no protocol type", join("", protocol_type=""), 9
    yield "member without protocols", join(scene.member_id, protocols=[]), 9
    if scene.instance is not None:
        yield "fenced", join(scene.member_id, scene.instance), 9
        yield "unknown member of a known instance", join("somebody else", scene.instance), 9
    if scene.generation >= 0 and scene.member_id != "nobody":
        yield "other type", join("", protocol_type="connect"), 9
        yield "nothing in common", join("", protocols=nothing_in_common), 9
        yield "static, nothing in common", join("", "new", protocols=nothing_in_common), 9
        yield "unknown, nothing in common", join("somebody else", protocols=nothing_in_common), 9
    yield "session too short", join("", session_timeout_ms=1), 9
    yield "session too long", join("", session_timeout_ms=2_000_000_000), 9


def _old(request: JoinGroupRequest) -> JoinGroupRequest:
    request.rebalance_timeout_ms = -1
    return request


def matrix(session: Session, state: str, kind: str) -> Observations:
    scene = STATES[state](session)
    for label, request, version in requests(scene, kind):
        yield label, session.ask(request, version)
    answer = describe(session, scene.group).groups[0]
    yield "state in the end", answer.group_state


ROWS = {
    "heartbeat": ("6.2a", "2.7a"),
    "sync": ("6.2b", "2.7a"),
    "commit": ("6.2c", "2.8b"),
    "join": ("6.2d", "2.6b"),
    "leave": ("6.2f", "2.7b"),
    "reading": ("6.2g", "2.9a"),
}
"""Rows of each kind of request: for all states, and for a group that does not exist."""

for _state in STATES:
    for _kind, (_every, _unknown) in ROWS.items():
        _about = (STATES[_state].__doc__ or "").rstrip(".")
        add_probe(
            f"{_kind}_in_{_state}",
            f"{_kind.capitalize()}: {_about[0].lower()}{_about[1:]}.",
            partial(matrix, state=_state, kind=_kind),
            *((_every, _unknown) if _state == "unknown" else (_every,)),
            module=__name__,
        )


def deleting(session: Session, state: str) -> Observations:
    scene = STATES[state](session)
    yield "delete", session.ask(DeleteGroupsRequest(groups_names=[scene.group]), 2)
    yield "state", describe(session, scene.group).groups[0].group_state
    yield "again", session.ask(DeleteGroupsRequest(groups_names=[scene.group]), 2)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=scene.group, topics=None)
    yield "offsets", session.ask(OffsetFetchRequest(groups=[group]), 8)


for _state in STATES:
    add_probe(
        f"delete_in_{_state}",
        f"Delete the group: {(STATES[_state].__doc__ or '').rstrip('.').lower()}.",
        partial(deleting, state=_state),
        *(("6.2e", "2.7d") if _state == "unknown" else ("6.2e",)),
        module=__name__,
    )
