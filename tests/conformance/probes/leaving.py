"""LeaveGroup, static members, and session times."""

from __future__ import annotations

import time
from collections.abc import Callable

from kohort.protocol.messages import (
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetFetchRequest,
)
from tests.conformance.members import (
    Member,
    complete,
    describe,
    pair,
    stable,
    wait_for_members,
    wait_for_state,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session, wait_for
from tests.conformance.wire import EXPIRED_S, EXPIRY_MS, FAR_MS

ALIVE_S = 10
"""Seconds between signs of life. The session is longer by a minute."""
ALIVE_MS = 1000 * ALIVE_S + EXPIRY_MS
Identity = LeaveGroupRequest.MemberIdentity


def _leave(session: Session, group: str, *who: tuple[str, str | None], version: int = 5) -> object:
    members = [Identity(member_id=name, group_instance_id=instance) for name, instance in who]
    return session.ask(LeaveGroupRequest(group_id=group, members=members), version)


# Leaving


@probe("6.2f")
def leaving_in_every_version(session: Session) -> Observations:
    """Leave in each version. Up to 2 there is one member and one error, from 3 on a list."""
    for version in range(6):
        member = Member(session, session.group(f"v{version}"))
        stable(member)
        request = LeaveGroupRequest(group_id=member.group, member_id=member.id)
        if version >= 3:
            request = LeaveGroupRequest(
                group_id=member.group, members=[Identity(member_id=member.id)]
            )
        yield f"left {version}", session.ask(request, version)
        yield f"again {version}", session.ask(request, version)
        yield f"group {version}", describe(session, member.group)


@probe("6.2f")
def several_leave_at_once(session: Session) -> Observations:
    """Leave with several members in one request. Each has an error, and one rebalance follows."""
    group = session.group()
    members = [Member(session, group, name) for name in (b"a", b"b", b"c")]
    stable(*members)
    yield (
        "left",
        _leave(session, group, (members[0].id, None), ("nobody", None), (members[1].id, None)),
    )
    yield "twice", _leave(session, group, ("nobody", None), ("nobody", None))
    yield "told", members[2].heartbeat()
    yield "joined", members[2].join()


@probe("6.2f")
def a_follower_leaves(session: Session) -> Observations:
    """Leave as a follower. The others have to rejoin, and the member is unknown."""
    first, second = pair(session, session.group())
    stable(first, second)
    yield "left", second.leave()
    yield "heartbeat", second.heartbeat()
    yield "told", first.heartbeat()
    yield "first", first.join()
    yield "second again", second.connection.ask(second.join_request(), 9)


@probe("6.2f")
def the_last_one_leaves(session: Session) -> Observations:
    """Leave as the last member. The group is empty and keeps its offsets."""
    topic = session.topic()
    member = Member(session, session.group())
    stable(member)
    yield "commit", session.ask(member.commit_request(topic), 8)
    yield "left", member.leave()
    yield "group", describe(session, member.group)
    fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=member.group, topics=None)
    yield "offsets", session.ask(OffsetFetchRequest(groups=[fetch]), 8)


@probe("6.2f")
def everybody_leaves_before_the_assignment(session: Session) -> Observations:
    """Leave with all members before the assignment. The group is empty at the end."""
    first, second = pair(session, session.group())
    complete(first, second)
    yield "second", second.leave()
    yield "between", describe(session, first.group)
    yield "first", first.leave()
    yield "group", describe(session, first.group)


# Static members


def _static(session: Session, group: str, name: str, version: int = 9) -> Member:
    return Member(session, group, name.encode(), instance=name, version=version)


@probe("6.3a")
def a_static_leader_comes_back(session: Session) -> Observations:
    """Restart a static leader: the same generation, a new id, and skip_assignment
    from version 9.
    """
    for version in range(5, 10):
        member = _static(session, session.group(f"v{version}"), "i", version)
        stable(member)
        again = _static(session, member.group, "i", version)
        yield f"version {version}", again.join()
        yield f"sync {version}", again.sync()
        yield f"group {version}", describe(session, member.group)


@probe("6.3a")
def a_static_follower_comes_back(session: Session) -> Observations:
    """Restart a static follower: the same generation and the same leader."""
    for version in (5, 8, 9):
        group = session.group(f"v{version}")
        first, second = _static(session, group, "1"), _static(session, group, "2")
        stable(first, second)
        again = _static(session, group, "2", version)
        yield f"version {version}", again.join()
        yield f"sync {version}", again.sync()
        yield f"first {version}", first.heartbeat()


@probe("6.3a")
def a_static_leader_of_two_comes_back(session: Session) -> Observations:
    """Restart the static leader of two. It gets the members with their present ids."""
    for version in (5, 9):
        group = session.group(f"v{version}")
        first, second = _static(session, group, "1"), _static(session, group, "2")
        stable(first, second)
        again = _static(session, group, "1", version)
        yield f"version {version}", again.join()
        yield f"sync {version}", again.sync()
        yield f"second {version}", second.heartbeat()


@probe("6.3b")
def a_static_member_comes_back_with_another_subscription(session: Session) -> Observations:
    """Restart a static member with changed metadata of the protocol, or another
    order of protocols.
    """
    group = session.group()
    both = [("a", b"1"), ("b", b"2")]
    member = Member(session, group, instance="i", protocols=both)
    stable(member)
    for label, protocols in (
        ("the other one's metadata", [("a", b"1"), ("b", b"3")]),
        ("its metadata", [("a", b"4"), ("b", b"3")]),
        ("another favourite", [("b", b"3"), ("a", b"4")]),
    ):
        again = Member(session, group, instance="i", protocols=protocols)
        answer = again.join()
        yield label, answer
        if not answer.skip_assignment:
            again.connection.ask(again.sync_request(protocol_name=answer.protocol_name), 5)
        yield f"{label}: group", describe(session, group)


@probe("6.3b")
def a_static_member_comes_back_to_other_topics(session: Session) -> Observations:
    """Restart a static member with other topics in its subscription."""
    group = session.group()
    first = _static(session, group, "1")
    second = Member(session, group, b"2", instance="2", topics=["t"])
    stable(first, second)
    again = Member(session, group, b"2", instance="2", topics=["t", "u"])
    yield "again", again.join()
    yield "first", first.heartbeat()


@probe("6.3c")
def the_old_id_of_a_static_member_is_fenced(session: Session) -> Observations:
    """Send the old id of a replaced static member: error 82 from each API."""
    topic = session.topic()
    old = _static(session, session.group(), "i")
    stable(old)
    new = _static(session, old.group, "i")
    new.join()
    yield "heartbeat", old.heartbeat()
    yield "join", old.connection.ask(old.join_request(), 9)
    yield "sync", old.connection.ask(old.sync_request(), 5)
    yield "commit", session.ask(old.commit_request(topic), 8)
    yield "leave", old.leave()
    yield "the new one", new.heartbeat()


@probe("6.3c")
def a_static_member_is_replaced_while_it_waits(session: Session) -> Observations:
    """Replace a static member in the barrier. Its JoinGroup gets 82, the new one
    takes its place.
    """
    group = session.group()
    first, second = _static(session, group, "1"), _static(session, group, "2")
    stable(first)
    second.send_join()
    wait_for_members(session, group, 2)
    again = _static(session, group, "2")
    again.send_join()
    yield "old", second.connection.receive()
    yield "parked", again.connection.is_parked()
    first.send_join()
    yield "first", first.joined()
    yield "again", again.joined()


@probe("6.3c")
def a_static_member_is_replaced_while_it_syncs(session: Session) -> Observations:
    """Replace a static member before the assignment: a rebalance, and 82 for its SyncGroup."""
    group = session.group()
    first, second = _static(session, group, "1"), _static(session, group, "2")
    complete(first, second)
    second.send_sync()
    session.let_through(group)
    again = _static(session, group, "2")
    again.send_join()
    yield "old", second.synced()
    yield "first", first.sync()
    first.send_join()
    yield "first again", first.joined()
    yield "again", again.joined()


@probe("6.3d")
def unknown_instances(session: Session) -> Observations:
    """Send an instance id that the group does not have: error 25 with any member id."""
    topic = session.topic()
    member = Member(session, session.group())
    stable(member)
    member.instance = "nobody"
    yield "heartbeat", member.heartbeat()
    yield "join", member.connection.ask(member.join_request(), 9)
    yield "sync", member.connection.ask(member.sync_request(), 5)
    yield "commit", session.ask(member.commit_request(topic), 8)
    yield "leave", member.leave()


@probe("6.3d")
def static_members_know_their_ids(session: Session) -> Observations:
    """Rejoin as a static member by its member id, as a dynamic one does."""
    group = session.group()
    first, second = _static(session, group, "1"), _static(session, group, "2")
    stable(first, second)
    yield "follower", second.join()
    second.instance = None
    yield "without its instance", second.heartbeat()
    first.send_join()
    yield "leader parked", first.connection.is_parked()


@probe("6.3e")
def static_members_are_sent_away(session: Session) -> Observations:
    """Remove static members as an administrator, by their instance id alone."""
    group = session.group()
    stable(_static(session, group, "1"), _static(session, group, "2"))
    yield "two", _leave(session, group, ("", "2"), ("", "3"), ("", None))
    yield "version 3", _leave(session, group, ("", "1"), version=3)
    yield "again", _leave(session, group, ("", "1"))
    yield "group", describe(session, group)


@probe("6.3e")
def static_members_leave_by_id(session: Session) -> Observations:
    """Leave by member id with its instance, with another one's, and without."""
    group = session.group()
    first, second = _static(session, group, "1"), _static(session, group, "2")
    stable(first, second)
    yield "other's", _leave(session, group, (first.id, "2"))
    yield "unknown", _leave(session, group, (first.id, "9"))
    yield "own", _leave(session, group, (first.id, "1"))
    yield "without", _leave(session, group, (second.id, None))
    yield "group", describe(session, group)


@probe("6.3e", "6.5b", slow=True)
def static_members_outlive_their_connection_but_not_their_session(
    session: Session,
) -> Observations:
    """Let a static member be silent. It is a member until its session ends."""
    member = Member(session, session.group(), instance="i", session_ms=EXPIRY_MS)
    stable(member)
    member.connection.close()
    yield "before", describe(session, member.group)
    wait_for_state(session, member.group, "Empty")
    yield "after", describe(session, member.group)


@probe("6.3a", "6.3c")
def static_members_in_versions_without_instances(session: Session) -> Observations:
    """Send the id of a static member in versions of Heartbeat or SyncGroup without instances."""
    member = _static(session, session.group(), "i")
    stable(member)
    yield (
        "heartbeat",
        session.ask(
            HeartbeatRequest(group_id=member.group, generation_id=1, member_id=member.id), 2
        ),
    )
    sync = member.sync_request()
    sync.group_instance_id = sync.protocol_name = sync.protocol_type = None
    yield "sync", session.ask(sync, 2)
    leave = LeaveGroupRequest(group_id=member.group, member_id=member.id)
    yield "leave", session.ask(leave, 2)


# Session times


@probe("6.5b", slow=True)
def silent_members_are_out(session: Session) -> Observations:
    """Let a session end in a stable group, which makes the others rejoin."""
    group = session.group()
    first = Member(session, group, b"a")
    second = Member(session, group, b"b", session_ms=EXPIRY_MS)
    stable(first, second)
    wait_for_state(session, group, "PreparingRebalance")
    yield "told", first.heartbeat()
    yield "out", second.heartbeat()
    yield "first", first.join()


@probe("6.5b", slow=True)
def the_last_silent_member_leaves_an_empty_group(session: Session) -> Observations:
    """Let the last member's session end. The group is empty, and the next one may join."""
    member = Member(session, session.group(), session_ms=EXPIRY_MS)
    stable(member)
    wait_for_state(session, member.group, "Empty")
    yield "group", describe(session, member.group)
    yield "next", Member(session, member.group).join()


def _kept_alive(
    session: Session, member: Member, sign_of_life: Callable[[], object]
) -> Observations:
    """Send only this request for a session, and check that the member is still known."""
    deadline = time.monotonic() + ALIVE_MS / 1000 + ALIVE_S
    while time.monotonic() < deadline:
        sign_of_life()
        time.sleep(ALIVE_S)
    yield "state", describe(session, member.group).groups[0].group_state
    yield "heartbeat", member.heartbeat()


def _alive(session: Session) -> Member:
    member = Member(session, session.group(), session_ms=ALIVE_MS)
    stable(member)
    return member


@probe("6.5a", slow=True)
def heartbeats_keep_a_member(session: Session) -> Observations:
    """Send heartbeats, which restart the session."""
    member = _alive(session)
    yield from _kept_alive(session, member, member.heartbeat)


@probe("6.5a", slow=True)
def commits_keep_a_member(session: Session) -> Observations:
    """Send commits of the member, which restart the session."""
    topic = session.topic()
    member = _alive(session)
    commit = member.commit_request(topic)
    yield from _kept_alive(session, member, lambda: session.ask(commit, 8))


@probe("6.5a", slow=True)
def syncs_keep_a_member(session: Session) -> Observations:
    """Send SyncGroup again, which restarts the session."""
    member = _alive(session)
    yield from _kept_alive(session, member, member.sync)


@probe("6.5a", slow=True)
def joins_keep_a_member(session: Session) -> Observations:
    """Send JoinGroup with an immediate response, which restarts the session, too."""
    group = session.group()
    first = Member(session, group, b"a")
    second = Member(session, group, b"b", session_ms=ALIVE_MS)
    stable(first, second)
    yield from _kept_alive(session, second, second.join)


@probe("6.5a", slow=True)
def errors_do_not_keep_a_member(session: Session) -> Observations:
    """Send heartbeats of a wrong generation and OffsetFetch, which do not restart the session."""
    member = _alive(session)
    wrong = HeartbeatRequest(group_id=member.group, generation_id=7, member_id=member.id)
    fetch = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=member.group, topics=None)

    def is_out() -> bool:
        session.ask(wrong, 4)
        session.ask(OffsetFetchRequest(groups=[fetch]), 8)
        return describe(session, member.group).groups[0].group_state == "Empty"

    wait_for(is_out, "the session ends")
    yield "heartbeat", member.heartbeat()


@probe("6.5d", slow=True)
def sessions_do_not_end_in_the_barrier(session: Session) -> Observations:
    """Park a JoinGroup for longer than the session. The member stays."""
    group = session.group()
    first = Member(session, group, b"a")
    second = Member(session, group, b"b", session_ms=EXPIRY_MS)
    stable(first, second)
    second.protocols = [("range", b"changed")]
    second.send_join()
    yield "parked", second.connection.is_parked(EXPIRED_S)
    first.send_join()
    yield "first", first.joined()
    yield "second", second.joined()


@probe("6.5d", slow=True)
def sessions_do_not_end_in_a_parked_sync(session: Session) -> Observations:
    """Park a SyncGroup for longer than the session. The member stays."""
    group = session.group()
    first = Member(session, group, b"a")
    second = Member(session, group, b"b", session_ms=EXPIRY_MS)
    complete(first, second)
    second.send_sync()
    yield "parked", second.connection.is_parked(EXPIRED_S)
    yield "first", first.sync((first, b"1"), (second, b"2"))
    yield "second", second.synced()
    yield "heartbeat", second.heartbeat()


@probe("6.5d", slow=True)
def new_members_wait_longer_than_their_session(session: Session) -> Observations:
    """Park the first JoinGroup of a member for longer than its session. The member stays."""
    group = session.group()
    first = Member(session, group, b"a")
    stable(first)
    second = Member(session, group, b"b", session_ms=EXPIRY_MS)
    second.send_join()
    yield "parked", second.connection.is_parked(EXPIRED_S)
    first.send_join()
    yield "first", first.joined()
    yield "second", second.joined()


@probe("6.5c", slow=True)
def the_session_of_a_member_that_joined_goes_on(session: Session) -> Observations:
    """Let a member be silent between JoinGroup and SyncGroup. Its session ends."""
    group = session.group()
    first = Member(session, group, b"a")
    second = Member(session, group, b"b", session_ms=EXPIRY_MS)
    complete(first, second)
    wait_for_state(session, group, "PreparingRebalance")
    yield "second", second.heartbeat()
    yield "first", first.heartbeat()


@probe("6.5a", slow=True)
def a_rejoin_brings_another_session_timeout(session: Session) -> Observations:
    """Rejoin with another session timeout. The latest one counts."""
    member = Member(session, session.group(), session_ms=EXPIRY_MS)
    stable(member)
    member.session_ms = FAR_MS
    member.join()
    member.sync()
    time.sleep(EXPIRED_S)
    yield "still there", member.heartbeat()
