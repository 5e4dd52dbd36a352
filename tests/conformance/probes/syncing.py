"""SyncGroup: the way of the assignment from the leader to the followers."""

from __future__ import annotations

from kohort.protocol.messages import SyncGroupRequest
from tests.conformance.members import (
    Member,
    complete,
    describe,
    pair,
    stable,
    wait_for_state,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session
from tests.conformance.wire import EXPIRY_MS, NEVER_S


@probe("6.2b")
def followers_wait_for_the_leader(session: Session) -> Observations:
    """Park a follower's SyncGroup until the leader's has the assignment."""
    first, second = pair(session, session.group())
    complete(first, second)
    second.send_sync()
    yield "parked", second.connection.is_parked()
    yield "first", first.sync((first, b"1"), (second, b"2"))
    yield "second", second.synced()
    yield "group", describe(session, first.group)


@probe("6.2b")
def the_leader_comes_first(session: Session) -> Observations:
    """Sync the leader first. A follower then gets its response immediately."""
    first, second = pair(session, session.group())
    complete(first, second)
    yield "first", first.sync((first, b"1"), (second, b"2"))
    yield "group", describe(session, first.group)
    yield "second", second.sync()


@probe("6.2b")
def syncs_in_every_version(session: Session) -> Observations:
    """Sync in each version, as the leader, and again."""
    for version in range(6):
        member = Member(session, session.group(f"v{version}"))
        complete(member)
        request = member.sync_request([(member, b"mine")])
        if version < 5:
            request.protocol_type = request.protocol_name = None
        yield f"version {version}", session.ask(request, version)
        yield f"again {version}", session.ask(request, version)


@probe("6.2b")
def members_that_get_nothing(session: Session) -> Observations:
    """Leave a member out of the assignment, which is then empty, and add an unknown member."""
    first, second = pair(session, session.group())
    complete(first, second)
    stranger = Member(session, first.group, id="stranger")
    yield "first", first.sync((first, b"1"), (stranger, b"3"))
    yield "second", second.sync()
    yield "group", describe(session, first.group)


@probe("6.2b")
def a_leader_without_an_assignment(session: Session) -> Observations:
    """Sync the leader without assignments. The group is stable, too."""
    first, second = pair(session, session.group())
    complete(first, second)
    yield "first", first.sync()
    yield "second", second.sync()


@probe("6.2b")
def syncing_again(session: Session) -> Observations:
    """Sync again in a stable group. The response is the same, and a new assignment is ignored."""
    first, second = pair(session, session.group())
    stable(first, second)
    yield "first", first.sync((first, b"new"), (second, b"new"))
    yield "second", second.sync((first, b"new"), (second, b"new"))


@probe("6.2b")
def followers_cannot_assign(session: Session) -> Observations:
    """Send an assignment as a follower, which is ignored."""
    first, second = pair(session, session.group())
    complete(first, second)
    second.send_sync((first, b"x"), (second, b"y"))
    yield "parked", second.connection.is_parked()
    yield "first", first.sync((first, b"1"), (second, b"2"))
    yield "second", second.synced()


@probe("6.2b", slow=True)
def a_parked_sync_is_sent_again(session: Session) -> Observations:
    """Send SyncGroup again while the first one of the member is parked."""
    first, second = pair(session, session.group())
    complete(first, second)
    second.send_sync()
    session.let_through(first.group)
    again = session.connect()
    again.send(second.sync_request(), 5)
    yield "the later one is parked", again.is_parked()
    first.sync((first, b"1"), (second, b"2"))
    yield "second", again.receive()
    yield "the earlier one is never answered", second.connection.is_parked(NEVER_S)


@probe("6.2b")
def syncs_end_when_somebody_joins(session: Session) -> Observations:
    """Join a new member before the assignment. Parked SyncGroups get 27."""
    group = session.group()
    first, second, third = (Member(session, group, name) for name in (b"a", b"b", b"c"))
    complete(first, second)
    second.send_sync()
    session.let_through(first.group)
    third.send_join()
    yield "second", second.synced()
    yield "first", first.sync((first, b"1"), (second, b"2"))
    yield "heartbeat", first.heartbeat()
    first.send_join()
    second.send_join()
    yield "first joins", first.joined()
    yield "second joins", second.joined()
    yield "third joins", third.joined()


@probe("6.2b", "6.2f")
def syncs_end_when_somebody_leaves(session: Session) -> Observations:
    """Let the leader leave while a follower waits for the assignment."""
    first, second = pair(session, session.group())
    complete(first, second)
    second.send_sync()
    session.let_through(first.group)
    yield "left", first.leave()
    yield "second", second.synced()
    yield "joined", second.join()


@probe("6.2b", "6.2f", slow=True)
def a_member_that_leaves_while_it_syncs(session: Session) -> Observations:
    """Remove a member whose SyncGroup is parked."""
    first, second = pair(session, session.group())
    complete(first, second)
    second.send_sync()
    session.let_through(first.group)
    yield "left", second.leave()
    yield "its sync is never answered", second.connection.is_parked(NEVER_S)
    yield "first", first.heartbeat()


@probe("6.5e", slow=True)
def followers_that_never_sync(session: Session) -> Observations:
    """Let a follower miss the rebalance timeout without SyncGroup. It is removed."""
    first, second = pair(session, session.group(), rebalance_ms=EXPIRY_MS)
    complete(first, second)
    yield "first", first.sync((first, b"1"), (second, b"2"))
    yield "second is in", second.heartbeat()
    wait_for_state(session, first.group, "PreparingRebalance")
    yield "second is out", second.heartbeat()
    yield "first is told", first.heartbeat()
    yield "first joins", first.join()


@probe("6.5e", slow=True)
def leaders_that_never_sync(session: Session) -> Observations:
    """Let the leader miss the rebalance timeout without SyncGroup. The others rejoin."""
    first, second = pair(session, session.group(), rebalance_ms=EXPIRY_MS)
    complete(first, second)
    second.send_sync()
    yield "parked", second.connection.is_parked()
    yield "second", second.synced()
    yield "first is out", first.heartbeat()
    yield "second joins", second.join()


@probe("6.2b")
def the_protocol_of_a_sync_is_checked(session: Session) -> Observations:
    """Send protocol type and name in SyncGroup. They are compared unless they are null."""
    member = Member(session, session.group())
    complete(member)
    for label, kind, name in (
        ("wrong type", "connect", "range"),
        ("wrong name", "consumer", "sticky"),
        ("null type", None, "range"),
        ("null name", "consumer", None),
        ("nulls", None, None),
    ):
        request: SyncGroupRequest = member.sync_request([(member, b"1")])
        request.protocol_type, request.protocol_name = kind, name
        yield label, session.ask(request, 5)
    for label, group, member_id in (
        ("unknown group", session.group("none"), "me"),
        ("empty group id", "", "me"),
        ("unknown member", member.group, "me"),
    ):
        request = SyncGroupRequest(group_id=group, member_id=member_id, generation_id=1)
        yield f"nulls, {label}", session.ask(request, 5)


@probe("6.2b")
def large_assignments(session: Session) -> Observations:
    """Send large metadata and assignments, which arrive unchanged."""
    member = Member(session, session.group(), b"m" * 20_000)
    yield "join", complete(member)
    yield "sync", member.sync((member, b"a" * 50_000))
    yield "group", describe(session, member.group)
