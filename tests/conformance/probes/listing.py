"""Groups as an administrator sees them: list, describe, delete."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)
from tests.conformance.members import Member, commit_request, complete, pair, stable
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session


def _list(
    session: Session, version: int, states: Sequence[str] = (), types: Sequence[str] = ()
) -> ListGroupsResponse:
    """Return the response to ListGroups with only this probe's groups."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = session.ask(request, version)
    own = session.name("")
    answer.groups = [group for group in answer.groups if group.group_id.startswith(own)]
    return answer


def _groups(session: Session) -> list[str]:
    """Create groups in all lasting states, and return their names with that of an unknown one."""
    topic = session.topic()
    names = [session.group(name) for name in ("stable", "empty", "completing", "offsets", "none")]
    stable(Member(session, names[0]))
    left = Member(session, names[1])
    stable(left)
    left.leave()
    complete(Member(session, names[2], protocol_type="connect", protocols=[("p", b"x")]))
    session.ask(commit_request(names[3], topic), 8)
    return names


@probe("3")
def list_groups(session: Session) -> Observations:
    """List groups of all states in every version."""
    _groups(session)
    for version in range(6):
        yield f"version {version}", _list(session, version)


@probe("3")
def list_groups_by_state(session: Session) -> Observations:
    """List groups by states, in upper and lower case, and by unknown ones."""
    _groups(session)
    for states in (
        ["Stable"],
        ["stable"],
        ["EMPTY", "CompletingRebalance"],
        ["Dead"],
        ["nonsense"],
        [""],
        ["PreparingRebalance"],
    ):
        yield f"{states}", _list(session, 4, states)


@probe("3")
def list_groups_by_type(session: Session) -> Observations:
    """List groups by type."""
    _groups(session)
    for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["nonsense"], [""]):
        yield f"{types}", _list(session, 5, types=types)
    yield "both", _list(session, 5, ["Stable"], ["classic"])


@probe("3", "2.7c")
def describe_groups(session: Session) -> Observations:
    """Describe groups of all states in every version, one of them twice, and none."""
    names = _groups(session)
    for version in range(7):
        request = DescribeGroupsRequest(groups=names)
        yield f"version {version}", session.ask(request, version)
    yield "twice", session.ask(DescribeGroupsRequest(groups=[names[0], names[0]]), 6)
    yield "none", session.ask(DescribeGroupsRequest(groups=[]), 6)


@probe("3")
def operations_of_groups(session: Session) -> Observations:
    """Describe groups with their authorized operations."""
    names = _groups(session)
    for version in (3, 5, 6):
        request = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
        yield f"version {version}", session.ask(request, version)


@probe("3")
def describe_static_members(session: Session) -> Observations:
    """Describe static members. Instance ids are returned from version 4 on."""
    member = Member(session, session.group(), instance="in-1")
    stable(member)
    for version in (3, 4, 6):
        request = DescribeGroupsRequest(groups=[member.group])
        yield f"version {version}", session.ask(request, version)


@probe("2.7e")
def classic_groups_are_no_consumer_groups(session: Session) -> Observations:
    """Send ConsumerGroupDescribe for classic groups: error 69, so that clients fall back."""
    names = _groups(session)
    for version in (0, 1):
        request = ConsumerGroupDescribeRequest(group_ids=names)
        yield f"version {version}", session.ask(request, version)
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=True)
    yield "operations", session.ask(request, 0)
    yield "none", session.ask(ConsumerGroupDescribeRequest(group_ids=[]), 0)


@probe("2.7d", "6.2e")
def delete_groups(session: Session) -> Observations:
    """Delete groups in every version, several in one request. A deleted group may be recreated."""
    for version in (0, 1, 2, 3):
        topic = session.topic(f"t{version}")
        group, unknown = session.group(f"v{version}"), session.group(f"none{version}")
        session.ask(commit_request(group, topic), 8)
        request = DeleteGroupsRequest(groups_names=[group, unknown])
        yield f"version {version}", session.ask(request, version)
        fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        yield f"offsets {version}", session.ask(OffsetFetchRequest(groups=[fetch]), 8)
        yield f"again {version}", Member(session, group).join()
    yield "twice", session.ask(DeleteGroupsRequest(groups_names=["x", "x"]), 2)
    yield "none", session.ask(DeleteGroupsRequest(groups_names=[]), 2)


@probe("2.6b", "2.7d")
def the_group_without_a_name(session: Session) -> Observations:
    """Commit as an administrator for an empty group id. Other requests do not find that group."""
    topic = session.topic()
    session.ask(DeleteGroupsRequest(groups_names=[""]), 2)
    yield "commit", session.ask(commit_request("", topic), 8)
    member = Member(session, "", id="me", generation=1)
    yield "commit of a member", session.ask(member.commit_request(topic), 8)
    fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="", topics=None)
    yield "offsets", session.ask(OffsetFetchRequest(groups=[fetch]), 8)
    for version in (5, 6):
        yield f"described {version}", session.ask(DescribeGroupsRequest(groups=[""]), version)
    yield "as a consumer group", session.ask(ConsumerGroupDescribeRequest(group_ids=[""]), 0)
    yield "offsets deleted", _delete_offsets(session, "", (topic, 0))
    for number in (1, 2):
        answer = session.ask(DeleteGroupsRequest(groups_names=[""]), 2)
        yield f"deleted {number}", answer
    yield "described", session.ask(DescribeGroupsRequest(groups=[""]), 6)


@probe("2.7d")
def members_of_deleted_groups(session: Session) -> Observations:
    """Recreate a deleted group, which begins at generation 1."""
    member = Member(session, session.group())
    stable(member)
    member.join()
    member.sync()
    member.leave()
    yield "deleted", session.ask(DeleteGroupsRequest(groups_names=[member.group]), 2)
    yield "heartbeat", member.heartbeat()
    yield "again", Member(session, member.group).join()


def _delete_offsets(session: Session, group: str, *where: tuple[str, int]) -> OffsetDeleteResponse:
    return session.ask(
        OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
                    ],
                )
                for topic, index in where
            ],
        ),
        0,
    )


@probe("3")
def delete_offsets(session: Session) -> Observations:
    """Delete offsets of an empty group: committed, not committed, unknown."""
    topic, group = session.topic(partitions=2), session.group()
    session.ask(commit_request(group, topic), 8)
    yield "deleted", _delete_offsets(session, group, (topic, 0), (topic, 1), (topic, 7))
    yield "unknown topic", _delete_offsets(session, group, ("none", 0), (topic, 0))
    fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    yield "left", session.ask(OffsetFetchRequest(groups=[fetch]), 8)
    yield "no topics", _delete_offsets(session, group)
    yield "unknown group", _delete_offsets(session, session.group("none"), (topic, 0))


@probe("3")
def delete_offsets_of_a_living_group(session: Session) -> Observations:
    """Delete offsets of a consumer group with members: only of topics without a subscription."""
    mine, other = session.topic("mine"), session.topic("other")
    first, second = pair(session, session.group(), topics=[mine])
    complete(first, second)
    yield "completing", _delete_offsets(session, first.group, (mine, 0), (other, 0))
    second.send_sync()
    first.sync((first, b"1"))
    session.ask(first.commit_request(mine), 8)
    session.ask(first.commit_request(other), 8)
    yield "stable", _delete_offsets(session, first.group, (mine, 0), (other, 0))
    fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=first.group, topics=None)
    yield "left", session.ask(OffsetFetchRequest(groups=[fetch]), 8)


@probe("3")
def delete_offsets_of_other_living_groups(session: Session) -> Observations:
    """Delete offsets of another type of group with members, which keeps all."""
    topic = session.topic()
    member = Member(session, session.group(), protocol_type="connect", protocols=[("p", b"x")])
    stable(member)
    session.ask(member.commit_request(topic), 8)
    yield "stable", _delete_offsets(session, member.group, (topic, 0))
