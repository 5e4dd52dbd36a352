"""Migration policies: which groups are converted, and a cluster without the new protocol."""

from __future__ import annotations

from collections.abc import Iterator

from kohort.protocol.messages import (
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    OffsetFetchRequest,
)
from tests.conformance.classic_consumers import ClassicConsumer, stable_consumers
from tests.conformance.consumers import ConsumerMember, described, new_topic, wait_for_members
from tests.conformance.probe import Function, Observations, add_probe, probe
from tests.conformance.probes.upgrading import classic, newcomer, views
from tests.conformance.session import Session
from tests.conformance.wire import EXPIRY_MS

POLICIES = ("upgrade", "downgrade", "disabled")


def _up(session: Session) -> Observations:
    """Join a classic group by the consumer protocol."""
    topic = new_topic(session)
    a = classic(session, "g", topic)
    stable_consumers((a, {topic: [0, 1, 2, 3]}))
    new = newcomer(a, topic)
    yield "join", new.join()
    yield "after", views(session, a.group)
    yield "a beats", a.heartbeat()
    yield "a joins again", a.join()
    yield "a syncs", a.resync()
    yield "new leaves", new.leave()
    yield "after leaving", views(session, a.group)
    yield "a beats again", a.heartbeat()


def _down(session: Session) -> Observations:
    """Join a consumer group by the classic protocol, and let the consumer member leave."""
    topic = new_topic(session)
    new = ConsumerMember(session, session.name("g"), "new", [topic])
    new.settle()
    a = classic(session, "g", topic, version=3)
    yield "join", a.join()
    yield "joined", views(session, new.group)
    yield "sync", a.resync()
    yield "new beats", new.beat()
    yield "new acknowledges", new.acknowledge()
    yield "new leaves", new.leave()
    yield "after", views(session, new.group)
    yield "a beats", a.heartbeat()
    yield "a joins", a.connection.ask(a.join_request(), 3).error_code
    yield "in the end", views(session, new.group)


def _empty(session: Session) -> Observations:
    """Join empty groups by the other protocol, which every policy allows."""
    topic = new_topic(session)
    a = classic(session, "g", topic)
    stable_consumers((a, {topic: [0]}))
    yield "commit", a.connection.ask(a.commit_request(topic, 7), 8)
    a.leave()
    new = newcomer(a, topic)
    yield "consumer", new.join()
    yield "as consumer group", views(session, a.group)
    yield "leave", new.leave()
    b = classic(session, "g", topic, version=3)
    yield "classic", b.join()
    yield "as classic group", views(session, a.group)
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=a.group, topics=None)
    yield "offsets", session.ask(OffsetFetchRequest(groups=[wanted]), 8)


def _static(session: Session) -> Observations:
    """Replace static members by those of the other protocol."""
    topic = new_topic(session)
    a = classic(session, "up", topic, instance="i")
    stable_consumers((a, {topic: [0, 1, 2, 3]}))
    new = newcomer(a, topic, instance="i")
    yield "up", new.join()
    yield "up, after", views(session, a.group)
    yield "up, the old one", a.heartbeat()
    one = ConsumerMember(session, session.name("down"), "one", [topic], instance="i")
    one.settle()
    yield "down", classic(session, "down", topic, instance="i").join()
    yield "down, after", views(session, one.group)
    yield "down, the old one", one.beat()


_PROBES: tuple[tuple[str, Function], ...] = (
    ("up", _up),
    ("down", _down),
    ("empty", _empty),
    ("static", _static),
)

for _policy in POLICIES:
    for _name, _run in _PROBES:
        add_probe(
            f"policy_{_policy}_{_name}",
            f"{(_run.__doc__ or '').splitlines()[0]} The policy is {_policy}.",
            _run,
            "8.7",
            variant=_policy,
            module=__name__,
        )


@probe("8.7", variant="upgrade")
def classic_groups_that_are_too_large(session: Session) -> Observations:
    """Join classic groups with as many members as a consumer group may have, and more."""
    topic = new_topic(session, partitions=6)
    for size in (2, 3, 4):
        every = [
            classic(session, f"g{size}", topic, instance=f"i{number}") for number in range(size)
        ]
        stable_consumers(*[(one, {topic: [number]}) for number, one in enumerate(every)])
        new = newcomer(every[0], topic, instance="n", assignor="range")
        yield f"{size} members", new.join()
        yield f"{size} members, after", views(session, every[0].group)
        instead = newcomer(every[0], topic, "instead", instance="i0", assignor="range")
        yield f"{size} members, one replaced", instead.join()


@probe("8.7", variant="downgrade")
def consumer_groups_that_are_too_large(session: Session) -> Observations:
    """Leave more classic members behind than a classic group may have: they stay in theirs."""
    topic = new_topic(session, partitions=6)
    for size in (2, 3):
        group = f"g{size}"
        new = ConsumerMember(session, session.name(group), "new", [topic], assignor="range")
        new.settle()
        every: list[ClassicConsumer] = []
        for number in range(size):
            every.append(classic(session, group, topic, instance=f"i{number}"))
            yield f"{size}: {number} joins", every[-1].join()
        yield f"{size}: leave", new.leave()
        yield f"{size}: after", views(session, new.group)
        yield f"{size}: beats", [one.heartbeat().error_code for one in every]


@probe("8.7", variant="downgrade", slow=True)
def consumer_groups_of_classic_members_shrink(session: Session) -> Observations:
    """Leave more classic members behind than a classic group may have, and let one leave."""
    topic = new_topic(session, partitions=6)
    for label in ("leave", "session"):
        new = ConsumerMember(session, session.name(label), "new", [topic], assignor="range")
        new.settle()
        every = [classic(session, label, topic, instance=f"i{number}") for number in range(3)]
        if label == "session":
            every[0].session_ms = EXPIRY_MS
        for one in every:
            one.join()
        new.leave()
        yield f"{label}: only classic members", views(session, new.group)
        if label == "leave":
            yield "one leaves", every[0].leave()
        else:
            wait_for_members(session, new.group, 0)  # it is a classic group then
        yield f"{label}: after", views(session, new.group)
        yield f"{label}: beats", [one.heartbeat().error_code for one in every]


def _requests(topic: str) -> Iterator[tuple[str, ConsumerGroupHeartbeatRequest]]:
    good = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    yield "join", good
    yield "no group", ConsumerGroupHeartbeatRequest()
    yield "leave", ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)


@probe("8.3", variant="off")
def the_protocol_is_switched_off(session: Session) -> Observations:
    """Send heartbeats where the feature ``group.version`` is 0: 35 for each."""
    topic = session.topic()
    for label, request in _requests(topic):
        for version in (0, 1):
            yield f"{label}, version {version}", session.ask(request, version)
    yield "described", described(session, "g")
    named = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
    answer = session.ask(named, 4)
    features = [f for f in answer.finalized_features if f.name == "group.version"]
    supported = [f for f in answer.supported_features if f.name == "group.version"]
    yield "features", (supported, features)
    yield "advertised", [k for k in answer.api_keys if k.api_key in (68, 69)]
    a = classic(session, "g", topic)
    stable_consumers((a, {topic: [0]}))
    yield "a classic group", views(session, a.group)
    yield "heartbeat to it", newcomer(a, topic).join()
