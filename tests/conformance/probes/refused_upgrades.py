"""Refused upgrades of classic groups whose members wait in JoinGroup or in SyncGroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kohort.protocol.messages import JoinGroupRequest
from tests.conformance.classic_consumers import ClassicConsumer, assignment
from tests.conformance.consumers import ConsumerMember, new_topic
from tests.conformance.members import CONSUMER, complete, wait_for_members
from tests.conformance.members import subscription as subscription_with_data
from tests.conformance.probe import Observations, add_probe, probe
from tests.conformance.probes.upgrading import RANGE, views
from tests.conformance.session import Session


@dataclass
class OddMember(ClassicConsumer):
    """Classic member whose subscription is ``raw``, if that is not None."""

    raw: bytes | None = None

    def join_request(self, member_id: str | None = None) -> JoinGroupRequest:
        request = super().join_request(member_id)
        if self.raw is not None:
            for protocol in request.protocols:
                protocol.metadata = self.raw
        return request


@dataclass(frozen=True)
class Refusal:
    """Reason for which a group may be left as it is: in its members or in the heartbeat."""

    label: str
    fields: dict[str, object] = field(default_factory=dict)
    user_data: bytes | None = None
    assigned: bytes | None = None
    subscribed: bytes | None = None
    protocol_type: str = CONSUMER
    size: int = 3

    def members(self, session: Session, phase: str, topic: str) -> list[OddMember]:
        """Return members of a new group, which they have not joined yet."""
        return [
            OddMember(
                session,
                session.name(f"{self.label} {phase}"),
                instance=f"i{number}",
                topics=[topic],
                protocol_type=self.protocol_type,
                protocols=RANGE,
                raw=self.subscribed,
            )
            for number in range(self.size)
        ]

    def assignment_of(self, topic: str, *partitions: int) -> bytes:
        if self.assigned is not None:
            return self.assigned
        return assignment({topic: partitions}, self.user_data)

    def heartbeat(self, session: Session, group: str, topic: str) -> ConsumerMember:
        return ConsumerMember(session, group, "new", [topic], assignor="range")


REFUSALS = (
    Refusal("assigned user data", user_data=b"x"),
    Refusal("subscribed user data", subscribed=subscription_with_data(b"x", "t")),
    Refusal("short assignment", assigned=b"\0"),
    Refusal("short subscription", subscribed=b"\0"),
    Refusal("no subscription", subscribed=b""),
    Refusal("negative version", subscribed=b"\xff\xff"),
    Refusal("another type", protocol_type="connect"),
    Refusal("invalid pattern", {"subscribed_topic_regex": "("}),
    Refusal("unknown assignor", {"server_assignor": "unknown"}),
    Refusal("no partitions", {"topic_partitions": None}),
    Refusal("an epoch", {"member_epoch": 1}),
    Refusal("leaving", {"member_epoch": -1}),
)


def _stable(members: Sequence[OddMember], refusal: Refusal, topic: str) -> ClassicConsumer:
    """Create a stable group of two members, and return its leader."""
    leader, *others = members
    complete(*members)
    for each in others:
        each.send_sync()
    given = [
        (each, refusal.assignment_of(topic, 2 * number, 2 * number + 1))
        for number, each in enumerate(members)
    ]
    leader.sync(*given)
    for each in others:
        each.synced()
    return leader


def _joining(session: Session, refusal: Refusal, topic: str) -> Observations:
    """Send the heartbeat while new members and an old one wait in JoinGroup."""
    first, late, *others = members = refusal.members(session, "joining", topic)
    _stable(members[:2], refusal, topic)
    waiting = [first, *others]
    for number, each in enumerate(others, 3):
        each.send_join()
        wait_for_members(session, first.group, number)
    first.send_join()
    session.let_through(first.group)
    for each in waiting:
        assert each.connection.is_parked()
    new = refusal.heartbeat(session, first.group, topic)
    yield "heartbeat", new.join(**refusal.fields)
    session.let_through(first.group)
    parked = [each.connection.is_parked() for each in waiting]
    yield "still parked", parked
    for number, each in enumerate(waiting):
        if not parked[number]:
            yield f"joined {number}", each.joined()
    yield "views", views(session, first.group)
    yield "late member beats", late.heartbeat()
    for number, each in enumerate(waiting):
        if not parked[number]:
            each.send_join()
    late.send_join()
    for number, each in enumerate([*waiting, late]):
        yield f"joined in the end {number}", each.joined().error_code
    yield "in the end", views(session, first.group)


def _syncing(session: Session, refusal: Refusal, topic: str) -> Observations:
    """Send the heartbeat while the followers wait in SyncGroup."""
    members = refusal.members(session, "syncing", topic)
    leader = _stable(members[:2], refusal, topic)
    others = [each for each in members if each is not leader]
    for number, each in enumerate(members[2:], 3):
        each.send_join()
        wait_for_members(session, leader.group, number)
    for each in members[:2]:
        each.send_join()
    for each in members:
        each.joined()
    for each in others:
        each.send_sync()
    session.let_through(leader.group)
    for each in others:
        assert each.connection.is_parked()
    new = refusal.heartbeat(session, leader.group, topic)
    yield "heartbeat", new.join(**refusal.fields)
    session.let_through(leader.group)
    parked = [each.connection.is_parked() for each in others]
    yield "still parked", parked
    for number, each in enumerate(others):
        if not parked[number]:
            yield f"synced {number}", each.synced()
    yield "views", views(session, leader.group)
    yield "leader beats", leader.heartbeat()
    for number, each in enumerate(others):
        if not parked[number] and number:  # one does not sync again
            each.send_sync()
    given = [(each, assignment({topic: [number]})) for number, each in enumerate(members)]
    yield "leader syncs", leader.sync(*given).error_code
    for number, each in enumerate(others):
        if parked[number] or number:
            yield f"synced in the end {number}", each.synced().error_code
    yield "beats in the end", [each.heartbeat().error_code for each in members]
    yield "in the end", views(session, leader.group)


def _both(session: Session, *refusals: Refusal) -> Observations:
    topic = new_topic(session, partitions=6)
    for refusal in refusals:
        for phase in _joining, _syncing:
            for what, seen in phase(session, refusal, topic):
                yield f"{refusal.label},{phase.__name__}: {what}", seen


@probe("8.7")
def refused_upgrades_end_parked_requests(session: Session) -> Observations:
    """Refuse a heartbeat while classic members wait: 27 if the conversion had begun."""
    yield from _both(session, *REFUSALS)


@probe("8.7", variant="upgrade")
def refused_upgrades_of_large_groups(session: Session) -> Observations:
    """Refuse a heartbeat for the size of the group while classic members wait."""
    yield from _both(session, Refusal("full", size=3), Refusal("too large", size=4))


def _refused(session: Session) -> Observations:
    yield from _both(session, Refusal("policy", size=2))


for _policy in ("downgrade", "disabled"):
    add_probe(
        f"policy_{_policy}_while_members_wait",
        f"Refuse a heartbeat while classic members wait. The policy is {_policy}.",
        _refused,
        "8.7",
        variant=_policy,
        module=__name__,
    )
