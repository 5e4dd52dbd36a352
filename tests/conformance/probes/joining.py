"""JoinGroup: member ids, the barrier, the leader, the vote and the generation."""

from __future__ import annotations

import time

from kohort.protocol.messages import HeartbeatRequest, JoinGroupRequest
from tests.conformance.clusters import INITIAL_DELAY_MS
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
from tests.conformance.wire import EXPIRY_MS, FAR_MS, NEVER_S

INITIAL_DELAY_S = INITIAL_DELAY_MS / 1000


def join_request(group: str, member_id: str = "", **other: object) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=FAR_MS,
        rebalance_timeout_ms=FAR_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    for name, value in other.items():
        setattr(request, name, value)
    return request


@probe("2.6a")
def first_joins(session: Session) -> Observations:
    """Join as a dynamic member. From version 4 on the first response is error 79 with an id."""
    for version in range(10):
        member = Member(session, session.group(f"v{version}"), version=version)
        request = member.join_request()
        yield f"first {version}", member.connection.ask(request, version)


@probe("2.6a", "6.1f")
def joins_in_every_version(session: Session) -> Observations:
    """Join in every version, as the only member."""
    for version in range(10):
        member = Member(session, session.group(f"v{version}"), version=version)
        yield f"joined {version}", member.join()


@probe("2.6a")
def member_ids_are_made_of_client_ids(session: Session) -> Observations:
    """Join with several client ids. Member ids are ``<client.id>-<uuid>``, or
    ``<instance>-<uuid>``.
    """
    for number, client_id in enumerate(("x", "", "a b", "é", "c" * 60)):
        group = session.group(f"g{number}")
        answer = session.connect(client_id).ask(join_request(group), 9)
        yield f"dynamic {client_id!r}", answer
        member = Member(session, group, instance="in-1")
        member.connection = session.connect(client_id)
        yield f"static {client_id!r}", member.join()


@probe("2.6a", "6.4c")
def static_members_need_no_round_trip(session: Session) -> Observations:
    """Join for the first time with an instance id, which needs no second request."""
    for version in range(5, 10):
        member = Member(session, session.group(f"v{version}"), instance="i", version=version)
        yield f"version {version}", member.join()


@probe("2.6b")
def joins_that_are_refused(session: Session) -> Observations:
    """Join with mistakes in group id, protocols and session timeout. Responses have
    the member id.
    """
    group = session.group()
    for version in (0, 3, 5, 6, 7, 9):
        for label, request in (
            ("empty group", join_request("")),
            ("empty group, member", join_request("", "me")),
            ("no protocols", join_request(group, protocols=[])),
            ("no protocols, member", join_request(group, "me", protocols=[])),
            ("no type", join_request(group, protocol_type="")),
            ("short session", join_request(group, session_timeout_ms=499)),
            ("short session, member", join_request(group, "me", session_timeout_ms=1)),
            ("long session", join_request(group, session_timeout_ms=1_800_001)),
            ("unknown member", join_request(group, "me")),
        ):
            if version == 0:
                request.rebalance_timeout_ms = -1
            yield f"{label} {version}", session.ask(request, version)
    yield "nothing was made", describe(session, group)


@probe("2.6b")
def session_timeouts_at_their_bounds(session: Session) -> Observations:
    """Join with the shortest and the longest session that is allowed."""
    for session_ms in (500, 1_800_000):
        member = Member(session, session.group(str(session_ms)))
        member.get_id()
        member.session_ms = session_ms
        yield f"{session_ms}, first", member.connection.ask(member.join_request(""), 9)
        yield f"{session_ms}", member.join()
        member.leave()


@probe("2.6b")
def requests_with_an_empty_group_id(session: Session) -> Observations:
    """Send an empty group id in each API of a member."""
    topic = session.topic()
    yield "heartbeat", session.ask(HeartbeatRequest(), 4)
    nobody = Member(session, "", id="me", generation=1)
    yield "sync", session.ask(nobody.sync_request(), 5)
    yield "leave", nobody.leave()
    yield "commit", session.ask(nobody.commit_request(topic), 8)
    join = JoinGroupRequest(session_timeout_ms=1000, rebalance_timeout_ms=1000)
    yield "join", session.ask(join, 9)


@probe("6.1a")
def a_handed_out_id_starts_no_rebalance(session: Session) -> Observations:
    """Request a member id, which changes nothing for the members of the group."""
    first, second = pair(session, session.group())
    stable(first)
    second.get_id()
    yield "heartbeat", first.heartbeat()
    yield "group", describe(session, first.group)


@probe("6.1b")
def the_barrier(session: Session) -> Observations:
    """Join as a second member, which waits for the first. The generation increases at the end."""
    first, second = pair(session, session.group())
    stable(first)
    second.send_join()
    yield "parked", second.connection.is_parked()
    yield "first is told", first.heartbeat()
    yield "second's heartbeat", second.heartbeat(session.main)
    first.send_join()
    yield "first", first.joined()
    yield "second", second.joined()
    yield "group", describe(session, first.group)


@probe("6.1b", slow=True)
def a_parked_member_asks_again(session: Session) -> Observations:
    """Send JoinGroup again while it is parked. The first request ends."""
    first, second = pair(session, session.group())
    stable(first)
    second.send_join()
    wait_for_members(session, first.group, 2)
    again = session.connect()
    again.send(second.join_request(), 9)
    yield "the later one is parked", again.is_parked()
    yield "the earlier one is never answered", second.connection.is_parked(NEVER_S)
    first.send_join()
    yield "first", first.joined()
    yield "second", again.receive()


@probe("6.1c", slow=True)
def a_silent_member_is_waited_for_as_long_as_it_may_take(session: Session) -> Observations:
    """Let a member be silent until the rebalance timeout, which ends the barrier without it."""
    first, second = pair(session, session.group(), rebalance_ms=EXPIRY_MS)
    stable(first)
    second.send_join()
    yield "parked", second.connection.is_parked()
    yield "second", second.joined()
    yield "first is out", first.heartbeat()
    yield "second leads", describe(session, first.group)


@probe("6.1c", slow=True)
def the_longest_rebalance_timeout_counts(session: Session) -> Observations:
    """Let the member with the longest rebalance timeout be silent. The barrier lasts as long."""
    group = session.group()
    first = Member(session, group, b"a", rebalance_ms=EXPIRY_MS)
    second = Member(session, group, b"b", rebalance_ms=200)
    stable(first)
    second.send_join()
    yield "parked", second.connection.is_parked(1.0)
    yield "second", second.joined()


@probe("6.1d", "6.5c", slow=True)
def the_session_of_a_silent_member_ends_the_barrier(session: Session) -> Observations:
    """Let a member's session end before the rebalance timeout, which ends the barrier."""
    group = session.group()
    first = Member(session, group, b"a", session_ms=EXPIRY_MS)
    second = Member(session, group, b"b")
    stable(first)
    second.send_join()
    yield "parked", second.connection.is_parked()
    yield "second", second.joined()
    yield "first is out", first.heartbeat()


@probe("6.1e")
def the_first_one_leads(session: Session) -> Observations:
    """Join with several members. The first one leads and is the only one to get the members."""
    members = [Member(session, session.group(), name) for name in (b"a", b"b", b"c")]
    for number, answer in enumerate(complete(*members)):
        yield f"member {number}", answer


@probe("6.1e")
def the_leader_is_kept(session: Session) -> Observations:
    """Rejoin with the leader last. It stays the leader."""
    first, second = pair(session, session.group())
    stable(first, second)
    second.protocols = [("range", b"changed")]
    second.send_join()
    wait_for_state(session, first.group, "PreparingRebalance")
    first.send_join()
    yield "first", first.joined()
    yield "second", second.joined()


@probe("6.1e")
def the_leader_is_replaced(session: Session) -> Observations:
    """Let the leader leave, so that the other member leads."""
    first, second = pair(session, session.group())
    stable(first, second)
    yield "left", first.leave()
    yield "told", second.heartbeat()
    yield "second", second.join()
    yield "synced", second.sync((second, b"all"))


@probe("6.1e", slow=True)
def a_leader_that_does_not_come_is_replaced(session: Session) -> Observations:
    """Let the leader miss the barrier, so that a live member leads."""
    first, second = pair(session, session.group(), rebalance_ms=EXPIRY_MS)
    stable(first, second)
    second.protocols = [("range", b"changed")]
    second.send_join()
    yield "second", second.joined()
    yield "first", first.heartbeat()


VOTES = (
    (
        ("range", "roundrobin", "custom"),
        ("range", "roundrobin", "sticky"),
        ("roundrobin", "range", "sticky"),
    ),
    (("a", "b"), ("b", "a"), ("b", "a")),
    (("a",), ("b", "a"), ("b", "a")),
    (("x", "y", "z"), ("z", "y"), ("y", "z", "x")),
    (("cooperative-sticky", "range"), ("cooperative-sticky", "range"), ("range",)),
)


@probe("6.1g")
def the_vote(session: Session) -> Observations:
    """Vote for a protocol. Each member votes for the first one that all support."""
    for number, lists in enumerate(VOTES):
        group = session.group(f"g{number}")
        members = [
            Member(
                session,
                group,
                instance=f"i{index}",
                protocols=[(name, f"{name} of {index}".encode()) for name in names],
            )
            for index, names in enumerate(lists)
        ]
        answers = complete(*members)
        yield f"vote {number}", answers[0]


@probe("6.1g")
def protocols_that_do_not_fit(session: Session) -> Observations:
    """Join without a protocol in common with all others, dynamic or static: error 23."""
    group = session.group()
    stable(Member(session, group, protocols=[("a", b""), ("b", b"")], instance="1"))
    for label, protocols in (("other", [("c", b"")]), ("fitting", [("b", b"")])):
        for instance in (None, f"2-{label}"):
            member = Member(session, group, protocols=protocols, instance=instance)
            request = member.join_request()
            if label == "other":
                yield f"{label} {instance}", member.connection.ask(request, 9)
            else:
                member.send_join()
                yield f"{label} {instance} parked", member.connection.is_parked(0.05)


@probe("6.1g")
def the_last_member_may_change_everything(session: Session) -> Observations:
    """Rejoin as the only member with other protocols, and with another type, which is refused."""
    member = Member(session, session.group())
    stable(member)
    member.protocols = [("other", b"o")]
    yield "other protocol", member.join()
    member.protocol_type = "connect"
    yield "other type", member.join()


@probe("6.1g")
def an_empty_group_takes_any_protocol(session: Session) -> Observations:
    """Join with another protocol type after the last member has left. Generations continue."""
    member = Member(session, session.group())
    stable(member)
    member.leave()
    yield "empty", describe(session, member.group)
    other = Member(session, member.group, protocols=[("p", b"")], protocol_type="connect")
    yield "joined", other.join()
    yield "group", describe(session, member.group)


@probe("6.1h")
def members_that_come_at_once_share_a_generation(session: Session) -> Observations:
    """Join within the initial delay of an empty group, which each new member extends."""
    members: list[Member] = []

    def come_at_once() -> bool:
        """Join members of a new group. True if the machine was fast enough for the delay."""
        group = session.group(f"g{len(members)}")
        came = [Member(session, group, name) for name in (b"a", b"b", b"c")]
        members.extend(came)
        for member in came:
            member.get_id()
        begins = [time.monotonic()]
        for count, member in enumerate(came, 1):
            member.send_join()
            wait_for_members(session, group, count)
            if time.monotonic() - begins[-1] > INITIAL_DELAY_S:
                return False
            begins.append(time.monotonic())
            time.sleep(0.55 * INITIAL_DELAY_S)  # the last one comes later than the first delay
        return True

    wait_for(come_at_once, "each join comes within the delay after the one before")
    yield "generations", [member.joined().generation_id for member in members[-3:]]


@probe("6.1h")
def a_rebalance_of_a_living_group_has_no_delay(session: Session) -> Observations:
    """Join a group that has members, where there is no initial delay."""
    member = Member(session, session.group())
    stable(member)

    def is_at_once() -> bool:
        begin = time.monotonic()
        member.join()
        return time.monotonic() - begin < 0.9 * INITIAL_DELAY_S

    wait_for(is_at_once, "a join takes less than the delay")
    yield "at once", True
    member.leave()
    other = Member(session, member.group)
    other.get_id()
    begin = time.monotonic()
    other.join()
    yield "delayed", time.monotonic() - begin > 0.9 * INITIAL_DELAY_S


@probe("6.1b")
def a_member_that_leaves_while_it_is_parked(session: Session) -> Observations:
    """Remove a member whose JoinGroup is parked. Its response is 25."""
    first, second = pair(session, session.group())
    stable(first)
    second.send_join()
    wait_for_state(session, first.group, "PreparingRebalance")
    yield "left", second.leave()
    yield "its join", second.connection.receive()
    yield "first", first.join()


@probe("6.1b")
def a_member_that_leaves_ends_the_barrier(session: Session) -> Observations:
    """Let a member leave when all others have joined, which ends the barrier."""
    first, second = pair(session, session.group())
    stable(first)
    second.send_join()
    wait_for_state(session, first.group, "PreparingRebalance")
    yield "left", first.leave()
    yield "second", second.joined()


@probe("6.1b")
def joining_again_in_the_barrier(session: Session) -> Observations:
    """Join as a third member while two are in the barrier."""
    group = session.group()
    first, second, third = (Member(session, group, name) for name in (b"a", b"b", b"c"))
    stable(first)
    second.send_join()
    wait_for_state(session, group, "PreparingRebalance")
    third.get_id()
    third.send_join()
    wait_for_members(session, group, 3)
    first.send_join()
    yield "first", first.joined()
    yield "second", second.joined().generation_id
    yield "third", third.joined().generation_id
    yield "group", describe(session, group)


@probe("6.1b")
def the_same_request_on_a_closed_connection(session: Session) -> Observations:
    """Close the connection of a parked member, which stays a member."""
    first, second = pair(session, session.group())
    stable(first)
    second.send_join()
    wait_for_state(session, first.group, "PreparingRebalance")
    second.connection.close()
    yield "group", describe(session, first.group)
    first.send_join()
    yield "first", first.joined()
    second.generation = 2
    yield "heartbeat", second.heartbeat(session.main)


@probe("6.1f")
def members_of_different_versions(session: Session) -> Observations:
    """Join one group with old and new versions of JoinGroup."""
    group = session.group()
    members = [Member(session, group, b"%d" % version, version=version) for version in (0, 3, 6, 9)]
    for member, answer in zip(members, complete(*members), strict=True):
        yield f"version {member.version}", answer
    yield "group", describe(session, group)
