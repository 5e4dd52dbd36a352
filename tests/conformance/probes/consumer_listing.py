"""Consumer groups as an administrator sees them: describe, list, delete, remove members."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
)
from tests.conformance.consumers import (
    LEAVE_FOR_NOW,
    ConsumerMember,
    described,
    new_topic,
    peer,
)
from tests.conformance.members import Member, commit_request, stable
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.epoch_offsets import commit_as, fetch_as
from tests.conformance.probes.mixed_groups import mixed
from tests.conformance.session import Session

Identity = LeaveGroupRequest.MemberIdentity


def groups_in_every_state(session: Session) -> list[str]:
    """Create consumer groups in each state, a mixed and a classic one, and name an unknown one."""
    topic = new_topic(session)
    names = {
        state: session.group(state)
        for state in ("empty", "assigning", "reconciling", "stable", "away", "regex", "static")
    }
    for state, name in names.items():
        a = ConsumerMember(session, name, "a", [topic])
        b = peer(a, "b")
        if state in ("regex", "static"):
            a.instance = "i" if state == "static" else None
            a.regex = "no.such.topic.*" if state == "regex" else None
            a.join(rack_id="r")
            a.acknowledge()
            continue
        a.settle()
        if state == "empty":
            commit_as(a)
            a.leave()
        elif state == "assigning":
            b.join()
            a.beat()
            b.leave()
        elif state == "reconciling":
            b.join()
        elif state == "away":
            static = peer(a, "static", instance="i")
            static.join()
            static.leave(LEAVE_FOR_NOW)
    new, _ = mixed(session, topic, "mixed", ("h", "i"))
    offsets = session.group("offsets")
    session.ask(commit_request(offsets, topic), 8)
    classic = Member(session, session.group("classic"))
    stable(classic)
    return [*names.values(), new.group, offsets, classic.group, session.name("unknown")]


def _list(
    session: Session, version: int, states: Sequence[str] = (), types: Sequence[str] = ()
) -> ListGroupsResponse:
    """Return the response to ListGroups with only this probe's groups."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = session.ask(request, version)
    own = session.name("")
    answer.groups = [group for group in answer.groups if group.group_id.startswith(own)]
    return answer


@probe("8.9")
def list_consumer_groups(session: Session) -> Observations:
    """List groups of all states and types in every version, with filters of both."""
    groups_in_every_state(session)
    for version in range(6):
        yield f"version {version}", _list(session, version)
    for version in (4, 5):
        for states in (
            ["Stable"],
            ["stable"],
            ["EMPTY"],
            ["Assigning"],
            ["reconciling", "Assigning"],
            ["Dead"],
            ["unknown"],
            [""],
        ):
            yield f"version {version}, {states}", _list(session, version, states)
    for types in (["consumer"], ["Consumer"], ["classic"], ["consumer", "CLASSIC"], ["share"]):
        yield f"{types}", _list(session, 5, types=types)
    for types in (["unknown"], [""], ["consumer", "nonsense"]):
        yield f"{types}", _list(session, 5, types=types)
    yield "both", _list(session, 5, ["Stable", "Empty"], ["consumer"])
    yield "none of both", _list(session, 5, ["Reconciling"], ["classic"])


@probe("8.9", "2.7e")
def describe_consumer_groups(session: Session) -> Observations:
    """Send ConsumerGroupDescribe for groups in each state, in both versions."""
    names = groups_in_every_state(session)
    for version in (0, 1):
        yield f"version {version}", described(session, *names, version=version)
    operations = ConsumerGroupDescribeRequest(
        group_ids=[*names[:2], names[-1]], include_authorized_operations=True
    )
    for version in (0, 1):
        yield f"version {version}, operations", session.ask(operations, version)
    yield "twice", described(session, names[0], names[0])
    yield "none", described(session)
    yield "empty name", described(session, "")


@probe("8.9")
def describe_consumer_groups_as_classic(session: Session) -> Observations:
    """Send DescribeGroups for consumer groups in every version: Dead, from 6 on with 69."""
    names = groups_in_every_state(session)
    for version in range(7):
        yield f"version {version}", session.ask(DescribeGroupsRequest(groups=names), version)
    operations = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
    for version in (3, 5, 6):
        yield f"version {version}, operations", session.ask(operations, version)


@probe("8.9")
def consumer_members_in_classic_requests(session: Session) -> Observations:
    """Send Heartbeat and SyncGroup for a member of the consumer protocol: 25."""
    topic = new_topic(session)
    one = ConsumerMember(session, session.group(), "a", [topic], instance="i")
    one.settle()
    for instance in (None, "i", "unknown"):
        for epoch in (one.epoch, 0, -1):
            beat = HeartbeatRequest(
                group_id=one.group,
                generation_id=epoch,
                member_id="a",
                group_instance_id=instance,
            )
            yield f"heartbeat {instance} {epoch}", session.ask(beat, 4)
            sync = SyncGroupRequest(
                group_id=one.group,
                generation_id=epoch,
                member_id="a",
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
            )
            yield f"sync {instance} {epoch}", session.ask(sync, 5)


@probe("8.9")
def delete_consumer_groups(session: Session) -> Observations:
    """Delete groups in each state: 68 unless empty. Offsets go with them."""
    names = groups_in_every_state(session)
    for version in (0, 1, 2):
        request = DeleteGroupsRequest(groups_names=names[1:] if version < 2 else names)
        yield f"version {version}", session.ask(request, version)
    yield "listed", _list(session, 5)
    yield "described", described(session, *names)
    yield "offsets", fetch_as(session, names[0], None, None, -1)
    yield "again", session.ask(DeleteGroupsRequest(groups_names=names[:1]), 2)
    yield "a heartbeat to a deleted group", ConsumerMember(session, names[0], "a", epoch=2).beat()


def _delete_offsets(session: Session, group: str, *topics: str) -> OffsetDeleteResponse:
    cls = OffsetDeleteRequest
    request = cls(
        group_id=group,
        topics=[
            cls.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    cls.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 3, 77)
                ],
            )
            for name in topics
        ],
    )
    return session.ask(request, 0)


@probe("8.9")
def delete_offsets_of_consumer_groups(session: Session) -> Observations:
    """Delete offsets of subscribed topics, 86, and of others, in each state of the group."""
    topic, other = new_topic(session), new_topic(session, "other")
    a = ConsumerMember(session, session.group(), "a", [topic])
    a.settle()
    for name in (topic, other):
        a.topics = [name]
        commit_as(a, [0, 3])
    both = (topic, other, "no.such.topic")
    yield "subscribed", _delete_offsets(session, a.group, *both)
    yield "offsets", fetch_as(session, a.group, None, None, -1)
    a.topics = [topic]
    a.repeat(subscribed_topic_names=[])
    a.repeat(subscribed_topic_names=[])
    yield "subscribed no more", _delete_offsets(session, a.group, *both)
    a.topics = [topic]
    commit_as(a, [0, 3])
    pattern = f"{session.name('')}t.*"
    yield "by regex", a.repeat(subscribed_topic_names=[], subscribed_topic_regex=pattern).error_code
    a.leave()
    yield "empty", _delete_offsets(session, a.group, *both)
    yield "unknown group", _delete_offsets(session, session.name("no"), topic)
    new, classic = mixed(session, topic, "mixed")
    commit_as(new, [0])
    yield "mixed", _delete_offsets(session, classic.group, *both)


@probe("8.9")
def remove_members_of_a_consumer_group(session: Session) -> Observations:
    """Remove dynamic and static members through LeaveGroup in every version."""
    topic = new_topic(session)
    for version in range(6):
        group = session.group(f"v{version}")
        a = ConsumerMember(session, group, "a", [topic])
        b = peer(a, "b", instance="i")
        c = peer(a, "c", instance="j")
        for one in (a, b, c):
            one.join()
        if version < 3:
            for number, name in enumerate(("nobody", "", "a", "a", "b")):
                request = LeaveGroupRequest(group_id=group, member_id=name)
                yield f"version {version}, {number}. {name!r}", session.ask(request, version)
        else:
            several = [
                Identity(member_id="nobody"),
                Identity(member_id="a"),
                Identity(member_id="a"),
                Identity(member_id="b", group_instance_id="j"),
                Identity(member_id="nobody", group_instance_id="i"),
                Identity(member_id="", group_instance_id="i"),
                Identity(member_id="c", group_instance_id="unknown"),
                Identity(member_id="", group_instance_id="unknown"),
                Identity(member_id=""),
            ]
            request = LeaveGroupRequest(group_id=group, members=several)
            yield f"version {version}", session.ask(request, version)
        left = described(session, group).groups[0]
        yield (
            f"version {version}, left",
            (left.group_epoch, sorted(m.member_id for m in left.members)),
        )
    yield "with the instance's member id", _removed(session, topic, "m", "i")
    yield "by member id alone", _removed(session, topic, "m", None)
    empty = LeaveGroupRequest(group_id=session.name("v5"), members=[])
    yield "nobody", session.ask(empty, 5)


def _removed(session: Session, topic: str, name: str, instance: str | None) -> object:
    one = ConsumerMember(session, session.name(f"{instance}"), name, [topic], instance="i")
    one.settle()
    who = Identity(member_id=name, group_instance_id=instance)
    answer = session.ask(LeaveGroupRequest(group_id=one.group, members=[who]), 5)
    return answer, one.beat()
