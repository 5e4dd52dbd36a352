"""JoinGroup of present members, of member ids that were only assigned, and of full groups."""

from __future__ import annotations

import time

from kohort.protocol.messages import HeartbeatRequest
from tests.conformance.members import (
    Member,
    complete,
    describe,
    pair,
    stabilize,
    stable,
    wait_for_state,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.joining import join_request
from tests.conformance.session import Session
from tests.conformance.wire import EXPIRED_S, EXPIRY_MS


@probe("6.1i", slow=True)
def handed_out_ids_expire(session: Session) -> Observations:
    """Request a member id and do not use it within the session timeout. It expires."""
    member = Member(session, session.group(), session_ms=700)
    member.get_id()
    wait_for_state(session, member.group, "Empty")
    yield "group", describe(session, member.group)
    time.sleep(EXPIRED_S)  # nothing shows when it expires
    yield "too late", member.connection.ask(member.join_request(), 9)


@probe("6.1i", slow=True)
def a_handed_out_id_is_waited_for(session: Session) -> Observations:
    """Rebalance while a requested id is unused. The rebalance ends when that id expires."""
    group = session.group()
    first = Member(session, group, b"a")
    stable(first)
    Member(session, group, session_ms=EXPIRY_MS).get_id()
    first.send_join()
    yield "parked", first.connection.is_parked()
    yield "joined", first.joined()


@probe("6.1i")
def handed_out_ids_belong_to_dynamic_members(session: Session) -> Observations:
    """Send a requested id with an instance id, in heartbeats, syncs and commits."""
    member = Member(session, session.group(), generation=0)
    member.get_id()
    yield "heartbeat", member.heartbeat()
    yield "sync", member.connection.ask(member.sync_request(), 5)
    member.instance = "i"
    yield "static", member.connection.ask(member.join_request(), 9)
    member.instance = None
    yield "dynamic", member.join()


@probe("6.1i")
def handed_out_ids_can_leave(session: Session) -> Observations:
    """Leave with a requested id that was never used."""
    member = Member(session, session.group())
    member.get_id()
    yield "left", member.leave()
    yield "again", member.leave()
    yield "join", member.connection.ask(member.join_request(), 9)
    yield "group", describe(session, member.group)


@probe("6.1i")
def handed_out_ids_and_other_protocols(session: Session) -> Observations:
    """Join with a requested id and protocols that do not match, which is refused."""
    group = session.group()
    stable(Member(session, group, b"a"))
    member = Member(session, group, b"b")
    member.get_id()
    member.protocols = [("other", b"")]
    yield "refused", member.connection.ask(member.join_request(), 9)
    member.protocols = [("range", b"b")]
    member.send_join()
    yield "let in", member.connection.is_parked(0.05)


@probe("6.4a")
def followers_that_rejoin_unchanged(session: Session) -> Observations:
    """Rejoin as a follower without changes: the same generation, without members."""
    for version in (2, 4, 5, 7, 9):
        first, second = pair(session, session.group(f"v{version}"), version=version)
        stable(first, second)
        yield f"again {version}", second.join()
        yield f"heartbeat {version}", first.heartbeat()


@probe("6.4b")
def leaders_that_rejoin(session: Session) -> Observations:
    """Rejoin as the leader, which starts a rebalance even without changes."""
    first, second = pair(session, session.group())
    stable(first, second)
    first.send_join()
    yield "parked", first.connection.is_parked()
    yield "second is told", second.heartbeat()
    second.send_join()
    yield "second", second.joined()
    yield "first", first.joined()


@probe("6.4b")
def a_leader_alone_rejoins(session: Session) -> Observations:
    """Rejoin as the only member. The next generation starts immediately."""
    member = Member(session, session.group())
    stable(member)
    yield "again", member.join()
    yield (
        "old generation",
        member.session.ask(
            HeartbeatRequest(group_id=member.group, generation_id=1, member_id=member.id), 4
        ),
    )


@probe("6.4b")
def followers_that_changed(session: Session) -> Observations:
    """Rejoin with changed metadata, another order of protocols, or fewer: a rebalance."""
    both = [("a", b"1"), ("b", b"2")]
    for label, protocols in (
        ("metadata", [("a", b"1"), ("b", b"3")]),
        ("order", [("b", b"2"), ("a", b"1")]),
        ("fewer", [("b", b"2")]),
    ):
        group = session.group(label)
        first = Member(session, group, protocols=both, instance="1")
        second = Member(session, group, protocols=both, instance="2")
        stable(first, second)
        second.protocols = protocols
        second.send_join()
        yield f"{label}: parked", second.connection.is_parked()
        yield f"{label}: first is told", first.heartbeat()
        if label != "order":  # where the vote would be a draw
            first.send_join()
            yield f"{label}: first", first.joined()
            yield f"{label}: second", second.joined()


@probe("6.4d")
def rejoining_before_the_assignment(session: Session) -> Observations:
    """Rejoin before the assignment. Without changes the generation is the same."""
    first, second = pair(session, session.group())
    complete(first, second)
    yield "second again", second.join()
    yield "first again", first.join()
    second.send_sync()
    session.let_through(first.group)
    first.protocols = [("range", b"changed")]
    first.send_join()
    yield "first changed, second's sync", second.synced()
    second.send_join()
    yield "first", first.joined()
    yield "second", second.joined()


@probe("6.1j")
def groups_have_a_largest_size(session: Session) -> Observations:
    """Join a full group: error 81, dynamic or static. Present members may rejoin."""
    group = session.group()
    members = [Member(session, group, b"%d" % number) for number in range(5)]
    complete(*members)
    yield "completing", session.ask(join_request(group), 9)
    stabilize(*members)
    yield "stable", session.ask(join_request(group), 9)
    yield "version 3", session.ask(join_request(group), 3)
    yield "static", session.ask(join_request(group, group_instance_id="i"), 9)
    yield "unknown", session.ask(join_request(group, "me"), 9)
    yield "again", members[1].join()


@probe("6.1j")
def handed_out_ids_over_the_largest_size(session: Session) -> Observations:
    """Request more ids than the group may have members."""
    group = session.group()
    stable(Member(session, group, b"a"))
    for number in range(6):
        yield f"id {number}", session.ask(join_request(group), 9).error_code
