"""Configs of groups: names, bounds, defaults, and their effect on heartbeats."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

from kohort.protocol.messages import DescribeConfigsResponse, ListConfigResourcesRequest
from tests.conformance.consumers import (
    ConsumerMember,
    described,
    new_topic,
    peer,
    state,
    wait_for_members,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.epoch_offsets import commit_as, fetch_as
from tests.conformance.probes.leaving import ALIVE_MS, ALIVE_S
from tests.conformance.probes.settings import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    alter,
    change,
    describe,
)
from tests.conformance.probes.upgrading import classic
from tests.conformance.session import READY_S, Session, wait_for
from tests.conformance.wire import EXPIRED_S, EXPIRY_MS, FAR_MS

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


def configure(one: ConsumerMember, **values: int) -> None:
    """Set configs of the member's group, and wait until they have an effect.

    The last one in the order of the coordinator is the interval of heartbeats, which its responses
    have. So it is always set.
    """
    names = {"session": SESSION, "heartbeat": HEARTBEAT, "interval": INTERVAL}
    wanted = {"heartbeat": 321, **values}
    done = change(
        one.session,
        one.group,
        *((SET, names[name], str(value)) for name, value in wanted.items()),
        kind=GROUP,
    )
    assert done.responses[0].error_code == 0, done
    probe_of = ConsumerMember(one.session, one.group, "probe of configs")
    wait_for(
        lambda: probe_of.join().heartbeat_interval_ms == wanted["heartbeat"],
        f"{one.group} has its configs",
    )
    probe_of.leave()


def shorten(one: ConsumerMember, **values: int) -> None:
    """Set configs of the group of a member, whose heartbeats then get them."""
    names = {"session": SESSION, "heartbeat": HEARTBEAT}
    wanted = {"heartbeat": 321, **values}
    steps = [(SET, names[name], str(value)) for name, value in wanted.items()]
    done = change(one.session, one.group, *steps, kind=GROUP)
    assert done.responses[0].error_code == 0, done
    wait_for(
        lambda: one.beat().heartbeat_interval_ms in (0, wanted["heartbeat"]),
        f"{one.group} has its configs",
    )


@probe("8.11")
def configs_of_a_group(session: Session) -> Observations:
    """Describe all configs of groups, with types, sources and synonyms, in every version."""
    for version in range(1, 5):
        for synonyms in (False, True):
            answer = describe(
                session, session.name("g"), None, GROUP, version, include_synonyms=synonyms
            )
            yield f"version {version}, synonyms {synonyms}", answer
    for keys in ([SESSION], [SESSION, "no.such.thing"], []):
        yield f"{keys}", describe(session, session.name("g"), keys, GROUP, include_synonyms=True)
    yield "no name", describe(session, "", None, GROUP)


def _settled(session: Session, name: str, wanted: Mapping[str, str]) -> DescribeConfigsResponse:
    """Return the description once it has these values, as the broker applies them later."""
    deadline = time.monotonic() + READY_S
    while True:
        answer = describe(session, name, None, GROUP, include_synonyms=True)
        found = {c.name: c.value for c in answer.results[0].configs if c.config_source == 8}
        if found == wanted or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


@probe("8.11")
def configs_of_a_group_change(session: Session) -> Observations:
    """Set, replace and delete configs of a group that does not exist."""
    name = session.name("g")
    yield (
        "set",
        change(session, name, (SET, SESSION, "50000"), (SET, HEARTBEAT, "6000"), kind=GROUP),
    )
    yield "described", _settled(session, name, {SESSION: "50000", HEARTBEAT: "6000"})
    yield "deleted", change(session, name, (DELETE, SESSION, None), kind=GROUP)
    yield "described without", _settled(session, name, {HEARTBEAT: "6000"})
    yield "deleted again", change(session, name, (DELETE, SESSION, None), kind=GROUP)
    for version in range(3):
        yield f"replaced {version}", alter(session, name, {INTERVAL: "2000"}, GROUP, version)
    yield "described replaced", _settled(session, name, {INTERVAL: "2000"})
    yield (
        "only checked",
        change(session, name, (SET, SESSION, "51000"), kind=GROUP, validate_only=True),
    )
    yield "described checked", _settled(session, name, {INTERVAL: "2000"})
    yield "to the default", change(session, name, (SET, SESSION, "45000"), kind=GROUP)
    yield "described default", _settled(session, name, {INTERVAL: "2000", SESSION: "45000"})
    for kinds in ([GROUP], [], [GROUP, 2]):
        answer = session.ask(ListConfigResourcesRequest(resource_types=kinds), 1)
        own = session.name("")
        yield (
            f"listed {kinds}",
            sorted(
                (found.resource_type, found.resource_name)
                for found in answer.config_resources
                if found.resource_name.startswith(own)
            ),
        )
    yield "all gone", alter(session, name, {}, GROUP)
    yield "described in the end", _settled(session, name, {})


@probe("8.11")
def values_of_group_configs(session: Session) -> Observations:
    """Set each config of groups to values in and out of its bounds, and unknown names: 40."""
    name = session.name("g")
    values = {
        SESSION: ("500", "499", f"{FAR_MS}", f"{FAR_MS + 1}", "0", "-1", "x", "", " 700 ", "1e3"),
        HEARTBEAT: ("100", "99", "15000", "15001", "0", "-1", "x"),
        INTERVAL: ("0", "-1", f"{FAR_MS}", f"{FAR_MS + 1}", "x"),
        "consumer.max.size": ("1",),
        "consumer.migration.policy": ("disabled",),
        "consumer.assignors": ("range",),
        "no.such.thing": ("1",),
        "group.consumer.session.timeout.ms": ("50000",),
    }
    for key, each in values.items():
        for value in each:
            yield (
                f"{key} = {value!r}",
                change(session, name, (SET, key, value), kind=GROUP, validate_only=True),
            )
    yield "no value", change(session, name, (SET, SESSION, None), kind=GROUP)
    yield "append", change(session, name, (APPEND, SESSION, "1"), kind=GROUP)
    yield "subtract", change(session, name, (SUBTRACT, SESSION, "1"), kind=GROUP)
    yield "unknown operation", change(session, name, (9, SESSION, "1"), kind=GROUP)
    yield (
        "twice",
        change(session, name, (SET, SESSION, "46000"), (SET, SESSION, "47000"), kind=GROUP),
    )
    yield (
        "session below heartbeat",
        change(session, name, (SET, SESSION, "600"), (SET, HEARTBEAT, "700"), kind=GROUP),
    )
    yield "no name", change(session, "", (SET, SESSION, "50000"), kind=GROUP)
    yield (
        "one good, one bad",
        change(session, name, (SET, SESSION, "50000"), (SET, HEARTBEAT, "1"), kind=GROUP),
    )
    yield "replaced by a bad one", alter(session, name, {SESSION: "1"}, GROUP)
    yield "in the end", describe(session, name, None, GROUP)


@probe("8.11", slow=True)
def configs_reach_the_coordinator(session: Session) -> Observations:
    """Change the interval of heartbeats and the session timeout of a group with members."""
    topic = new_topic(session)
    one = ConsumerMember(session, session.group(), "a", [topic])
    configure(one, heartbeat=200)
    yield "join", one.join()
    configure(one, heartbeat=300)
    yield "changed", one.beat()
    change(session, one.group, (DELETE, HEARTBEAT, None), kind=GROUP)
    wait_for(lambda: one.beat().heartbeat_interval_ms != 300, "the interval is the default")
    yield "deleted", one.beat()
    yield "described", described(session, one.group)


@probe("8.11", slow=True)
def targets_wait_for_the_assignment_interval(session: Session) -> Observations:
    """Join within the interval after a target: the next one comes with a later heartbeat."""
    topic = new_topic(session)
    a = ConsumerMember(session, session.group(), "a", [topic])
    configure(a, interval=EXPIRY_MS)
    time.sleep(EXPIRED_S)
    yield "a joins", a.join()
    yield "a acknowledges", a.acknowledge()
    b = peer(a, "b")
    yield "b joins within the interval", b.join()
    yield "state", state(session, a.group)
    yield "described", described(session, a.group)
    yield "a beats within the interval", a.beat()
    yield "b beats within the interval", b.beat()
    time.sleep(EXPIRED_S)
    yield "still nothing", state(session, a.group)
    yield "b beats after it", b.beat()
    yield "a must revoke", a.beat()
    yield "described again", described(session, a.group)


@probe("8.12", slow=True)
def a_session_ends(session: Session) -> Observations:
    """Let the session of a dynamic and a static member end. Their next heartbeats get 25."""
    topic = new_topic(session)
    for instance in (None, "i"):
        a = ConsumerMember(session, session.group(f"{instance}"), "a", [topic], instance)
        a.settle()
        shorten(a, session=600)
        wait_for_members(session, a.group, 0)
        yield f"{instance}: ended", described(session, a.group)
        yield f"{instance}: beat", a.beat()
        yield f"{instance}: leave", a.leave()
        yield f"{instance}: join again", a.join()
        if instance:
            a.leave(-2)
            wait_for_members(session, a.group, 0)
            yield "away: ended", described(session, a.group)
            yield "away: return", a.join()
            wait_for_members(session, a.group, 0)


@probe("8.12", slow=True)
def requests_that_prolong_a_session(session: Session) -> Observations:
    """Commit, fetch, and heartbeat with errors while a session runs. Only good heartbeats count."""
    topic = new_topic(session)
    every = {}
    for label in ("beat", "commit", "fetch", "wrong epoch"):
        every[label] = a = ConsumerMember(session, session.group(label), "a", [topic])
        configure(a, session=ALIVE_MS)
        a.settle()
    until = time.monotonic() + ALIVE_MS / 1000 + ALIVE_S
    while time.monotonic() < until:
        every["beat"].beat()
        commit_as(every["commit"])
        a = every["fetch"]
        fetch_as(session, a.group, topic, a.id, a.epoch)
        every["wrong epoch"].beat(member_epoch=77)
        time.sleep(ALIVE_S)
    for label, a in every.items():
        if label != "beat":
            wait_for_members(session, a.group, 0)
        yield label, len(described(session, a.group).groups[0].members)


@probe("8.12", slow=True)
def a_revocation_takes_too_long(session: Session) -> Observations:
    """Heartbeat without acknowledging until the rebalance timeout is over: fenced, 25."""
    topic = new_topic(session)
    a = ConsumerMember(session, session.group(), "a", [topic], rebalance_ms=700)
    b = peer(a, "b")
    a.settle()
    b.join()
    yield "revoke", a.beat()
    wait_for(lambda: a.beat().error_code != 0, "a is fenced")
    yield "fenced", a.beat()
    yield "described", described(session, a.group)
    yield "b gets all", b.beat()
    yield "a joins again", a.join()
    waiting = ConsumerMember(session, session.group("waiting"), "a", [topic], rebalance_ms=700)
    newcomer = peer(waiting, "b", rebalance_ms=700)
    waiting.rebalance_ms = FAR_MS
    waiting.settle()
    newcomer.join()
    waiting.beat()
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        newcomer.beat()
        waiting.beat()
        time.sleep(0.1)
    yield "who waits is not fenced", newcomer.beat()


@probe("8.12", slow=True)
def deadlines_of_classic_members(session: Session) -> Observations:
    """Let a classic member miss its session, its JoinGroup and its SyncGroup: it is removed."""
    topic = new_topic(session)
    every = {}
    for label in ("session", "join", "sync", "neither"):
        new = ConsumerMember(session, session.name(label), "new", [topic])
        new.settle()
        every[label] = one = classic(
            session,
            label,
            topic,
            session_ms=EXPIRY_MS if label == "session" else FAR_MS,
            rebalance_ms=EXPIRY_MS if label != "session" else FAR_MS,
        )
        yield f"{label}: join", one.join()
        if label != "sync":
            yield f"{label}: sync", one.resync()
        if label == "join":
            third = ConsumerMember(session, new.group, "third", [topic], "i", assignor="range")
            third.join()
            yield f"{label}: heartbeat", one.heartbeat()
    until = time.monotonic() + EXPIRED_S
    while time.monotonic() < until:
        for label in every.keys() - {"session"}:
            every[label].heartbeat()
        time.sleep(1)
    for label, one in every.items():
        if label != "neither":
            wait_for_members(session, one.group, 2 if label == "join" else 1)
        found = described(session, one.group).groups[0].members
        yield f"{label}: remaining", sorted(m.member_type for m in found)
        yield f"{label}: late heartbeat", one.heartbeat()


OF_BROKERS = f"group.{INTERVAL}"
GROUP_CONFIGS = (
    "group.consumer.assignors",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.max.size",
    "group.consumer.migration.policy",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.regex.refresh.interval.ms",
    "group.consumer.session.timeout.ms",
    "group.coordinator.rebalance.protocols",
)
"""Configs of brokers for consumer groups that no request changes."""
NODE = "1"


@probe("8.11", variant="upgrade")
def group_configs_of_brokers(session: Session) -> Observations:
    """Change the brokers' configs for consumer groups: only the assignment interval may change."""
    for name in (NODE, ""):
        for key in GROUP_CONFIGS:
            value = "range" if key.endswith("assignors") else "50000"
            yield f"{key} of {name!r}", change(session, name, (SET, key, value), kind=BROKER)
        for value in ("-1", f"{FAR_MS + 1}", "x", f"{FAR_MS}"):
            yield (
                f"interval {value} of {name!r}",
                change(session, name, (SET, OF_BROKERS, value), kind=BROKER, validate_only=True),
            )


def _waits(session: Session, topic: str, label: str) -> bool:
    """True if a group waits for the assignment interval after its first target assignment."""
    a = ConsumerMember(session, session.name(label), "a", [topic])
    a.settle()
    peer(a, "b").join()
    waits = state(session, a.group) == "Assigning"
    a.leave()
    return waits


def _once_it_waits(session: Session, topic: str, label: str, waits: bool) -> bool:
    """Return what new groups do, once that is as wanted, as the broker applies a change later."""
    attempts = itertools.count()
    wait_for(
        lambda: _waits(session, topic, f"{label}.{next(attempts)}") == waits,
        f"{label}: new groups wait for the interval: {waits}",
    )
    return waits


@probe("8.11", variant="upgrade")
def assignment_intervals_of_brokers(session: Session) -> Observations:
    """Change the assignment interval for one broker and for all. That of the broker counts."""
    topic = new_topic(session)
    steps: tuple[tuple[str, str, int, str | None, bool], ...] = (
        ("of all", "", SET, f"{FAR_MS}", True),
        ("of one", NODE, SET, "0", False),
        ("of one again", NODE, SET, f"{EXPIRY_MS}", True),
        ("of all, shorter", "", SET, "0", True),
        ("not of one", NODE, DELETE, None, False),
        ("not of all", "", DELETE, None, False),
    )
    for number, (label, name, operation, value, waits) in enumerate(steps):
        done = change(session, name, (operation, OF_BROKERS, value), kind=BROKER)
        yield label, done
        yield f"{label}: waits", _once_it_waits(session, topic, f"g{number}", waits)
        shown = describe(session, NODE, [OF_BROKERS], BROKER, include_synonyms=True)
        yield f"{label}: shown", shown
