"""Fields of ConsumerGroupHeartbeat, with good and bad values, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kohort.protocol.messages import ConsumerGroupHeartbeatRequest
from tests.conformance.clusters import MAX_CONSUMER_GROUP_SIZE
from tests.conformance.consumers import (
    LEAVE,
    LEAVE_FOR_NOW,
    ConsumerMember,
    TopicPartitions,
    described,
    member,
    new_topic,
    peer,
    rounds,
    settled_pair,
    state,
)
from tests.conformance.members import Member, stable
from tests.conformance.probe import Function, Observations, add_probe, probe
from tests.conformance.session import Session

Fields = dict[str, object]
UNKNOWN_ID = bytes(15) + b"\7"


def _values(session: Session, topic: str) -> Iterator[tuple[str, str, Fields]]:
    """Yield field, label and values that differ from those of a good heartbeat."""
    for label, value in ("empty", ""), ("blank", " "), ("tab", "\t"):
        yield "group id", label, {"group_id": value}
        yield "member id", label, {"member_id": value}
        yield "instance id", label, {"instance_id": value}
        yield "rack", label, {"rack_id": value}
        yield "assignor", label, {"server_assignor": value}
        yield "names", f"one {label}", {"subscribed_topic_names": [value]}
        yield "regex", label, {"subscribed_topic_regex": value, "subscribed_topic_names": []}
    yield "member id", "long", {"member_id": "m" * 300}
    yield "member id", "signs", {"member_id": "+/= ä\n"}
    yield "instance id", "given", {"instance_id": "i"}
    yield "instance id", "invalid as a topic", {"instance_id": "a b/c"}
    yield "rack", "given", {"rack_id": "r"}
    for number in (-2, -1, 0, 1, 2**31 - 1):
        yield "rebalance timeout", f"{number}", {"rebalance_timeout_ms": number}
    yield "names", "null", {"subscribed_topic_names": None}
    yield "names", "none", {"subscribed_topic_names": []}
    yield "names", "twice the same", {"subscribed_topic_names": [topic, topic]}
    yield "names", "unknown", {"subscribed_topic_names": [session.name("none"), topic]}
    yield "names", "invalid", {"subscribed_topic_names": ["a b", topic]}
    for assignor in ("uniform", "range", "Uniform", "nothing"):
        yield "assignor", assignor, {"server_assignor": assignor}
    unknown = TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0])
    yield "partitions", "null", {"topic_partitions": None}
    yield "partitions", "none", {"topic_partitions": []}
    yield "partitions", "of an unknown topic", {"topic_partitions": [unknown]}
    known = TopicPartitions(topic_id=session.topic_id(topic), partitions=[0])
    yield "partitions", "one", {"topic_partitions": [known]}
    more = TopicPartitions(topic_id=session.topic_id(topic), partitions=[-1, 0, 77])
    yield "partitions", "that do not exist", {"topic_partitions": [more]}
    both: Fields = {"subscribed_topic_names": None, "subscribed_topic_regex": None}
    yield "regex", "null, and names too", both
    own = f"{session.name('')}.*"
    yield "regex", "good", {"subscribed_topic_names": [], "subscribed_topic_regex": own}
    yield "regex", "and names", {"subscribed_topic_regex": own}
    yield "regex", "alone", {"subscribed_topic_names": None, "subscribed_topic_regex": own}
    yield "regex", "invalid", {"subscribed_topic_regex": "a("}
    for epoch in (-3, -100, LEAVE_FOR_NOW, LEAVE, 1, 2, 77):
        yield "epoch", f"{epoch}", {"member_epoch": epoch}
        yield "epoch", f"{epoch}, static", {"member_epoch": epoch, "instance_id": "i"}


FIELDS = (
    "group id",
    "member id",
    "epoch",
    "instance id",
    "rack",
    "rebalance timeout",
    "names",
    "regex",
    "assignor",
    "partitions",
)


def _of_version(version: int, values: Fields) -> bool:
    return version >= 1 or "subscribed_topic_regex" not in values


def _joining(name: str) -> Function:
    """Return a probe that joins new groups with each value of one field."""

    def run(session: Session) -> Observations:
        topic = new_topic(session)
        for version in (0, 1):
            for field, label, values in _values(session, topic):
                if field == name and _of_version(version, values):
                    group = session.name(f"{version} {label}")
                    one = ConsumerMember(session, group, "a", [topic], version=version)
                    yield f"version {version}, {label}", one.join(**values)

    return run


def _staying(name: str) -> Function:
    """Return a probe that sends each value of one field as a member, and again without it."""

    def run(session: Session) -> Observations:
        topic = new_topic(session)
        for version in (0, 1):
            for field, label, values in _values(session, topic):
                if field == name and _of_version(version, values):
                    group = session.name(f"{version} {label}")
                    one = ConsumerMember(session, group, "a", [topic], version=version)
                    one.settle()
                    yield f"version {version}, {label}", one.beat(**values)
                    yield f"version {version}, {label}, afterwards", one.beat()

    return run


for _name in FIELDS:
    _label = _name.replace(" ", "_")
    add_probe(
        f"joining_with_each_{_label}",
        f"Join with each good and bad {_name}.",
        _joining(_name),
        "8.1",
        module=__name__,
    )
    if _name != "regex":  # the broker resolves it when it likes, see the probes of regexes
        add_probe(
            f"staying_with_each_{_label}",
            f"Send each good and bad {_name} as a member.",
            _staying(_name),
            "8.1",
            module=__name__,
        )


@probe("8.1", "2.7f")
def a_member_alone(session: Session) -> Observations:
    """Join, heartbeat, acknowledge and leave as the only member, in both versions."""
    topic = new_topic(session)
    for version in (0, 1):
        one = ConsumerMember(session, session.group(f"v{version}"), "a", [topic], version=version)
        for label, step in (
            ("join", one.join),
            ("heartbeat", one.beat),
            ("acknowledge", one.acknowledge),
            ("heartbeat again", one.beat),
            ("everything", one.repeat),
            ("leave", one.leave),
            ("leave again", one.leave),
            ("heartbeat after leaving", one.beat),
            ("join again", one.join),
        ):
            yield f"version {version}, {label}", step()
            yield f"version {version}, after {label}", described(session, one.group)


@probe("8.1")
def a_broker_invents_member_ids(session: Session) -> Observations:
    """Join in version 0 without a member id, and go on with the one of the response."""
    topic = new_topic(session)
    one = member(session, topic, "", version=0)
    yield "join", one.join()
    yield "acknowledge", one.acknowledge()
    yield "join again without id", ConsumerMember(session, one.group, "", [topic], version=0).join()
    yield "described", described(session, one.group)
    yield "leave", one.leave()


@probe("8.1")
def which_answers_carry_the_assignment(session: Session) -> Observations:
    """Send each combination of fields as a member. Some responses have the assignment again."""
    topic = new_topic(session)
    one = member(session, topic)
    one.settle()
    fields: Fields = {
        "rebalance_timeout_ms": 20_000,
        "subscribed_topic_names": [topic],
        "server_assignor": "range",
        "topic_partitions": one.target,
        "rack_id": "r",
        "instance_id": None,
    }
    for bits in range(1 << len(fields)):
        chosen = {name: fields[name] for i, name in enumerate(fields) if bits >> i & 1}
        yield f"{sorted(chosen)}", one.beat(**chosen)


@probe("8.2")
def epochs_of_a_heartbeat(session: Session) -> Observations:
    """Heartbeat with each epoch around the present one, with and without owned partitions."""
    topic = new_topic(session)
    first, _ = settled_pair(session, topic)
    yield "described", described(session, first.group)
    for epoch in range(-3, first.epoch + 3):
        if epoch == LEAVE:
            continue
        for label, fields in (
            ("nothing", {}),
            ("owned", {"topic_partitions": first.target}),
            ("owns nothing", {"topic_partitions": []}),
        ):
            yield f"epoch {epoch}, {label}", first.beat(member_epoch=epoch, **fields)
    yield "afterwards", described(session, first.group)


@probe("8.2")
def a_lost_answer(session: Session) -> Observations:
    """Repeat a heartbeat whose response was lost: the previous epoch with owned partitions."""
    topic = new_topic(session)
    first = member(session, topic)
    first.settle()
    second = peer(first, "b")
    second.join()
    before, had = first.epoch, first.target
    yield "revoke", first.beat()
    kept = first.target
    yield "acknowledge", first.acknowledge()
    for label, owned in ("what it has", kept), ("what it had", had), ("nothing", []):
        yield f"previous epoch, {label}", first.beat(member_epoch=before, topic_partitions=owned)
        first.epoch = before + 1
    yield "previous epoch alone", first.beat(member_epoch=before)
    full = first.full_request(member_epoch=before, topic_partitions=None)
    yield "previous epoch, no partitions", first.ask(full)
    yield "older epoch", first.beat(member_epoch=before - 1, topic_partitions=kept)
    unknown = [TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0])]
    yield "previous epoch, others", first.beat(member_epoch=before, topic_partitions=unknown)
    yield "described", described(session, first.group)


@probe("8.2")
def joining_again_as_a_member(session: Session) -> Observations:
    """Join with epoch 0 as a known member, in each state of it."""
    topic = new_topic(session)
    first = member(session, topic)
    yield "first", first.join()
    yield "before acknowledging", first.join()
    first.acknowledge()
    yield "stable", first.join()
    second = peer(first, "b")
    second.join()
    yield "second again", second.join()
    yield "to be revoked", first.beat()
    yield "while revoking", first.join()
    yield "described", described(session, first.group)
    yield from rounds(second, first)
    yield "other topics", first.join(subscribed_topic_names=[])
    yield "afterwards", described(session, first.group)


def _strangers(session: Session) -> Iterator[tuple[str, ConsumerMember]]:
    topic = new_topic(session)
    first = member(session, topic, "a")
    yield "unknown group", first
    first.settle()
    yield "unknown member", peer(first, "stranger")
    left = peer(first, "gone")
    left.join()
    left.leave()
    yield "member that left", left


def _requests(one: ConsumerMember) -> Iterator[tuple[str, Callable[[], object]]]:
    for epoch in (1, 5):
        yield f"epoch {epoch}", partial(one.beat, member_epoch=epoch)
        yield f"epoch {epoch}, everything", partial(one.repeat, member_epoch=epoch)
    yield "leave", one.leave
    yield "leave for now", partial(one.leave, LEAVE_FOR_NOW)


@probe("8.3")
def heartbeats_of_strangers(session: Session) -> Observations:
    """Heartbeat and leave as an unknown member: 25, and in an unknown group 69."""
    for label, one in _strangers(session):
        for what, step in _requests(one):
            yield f"{label}, {what}", step()


@probe("8.3")
def heartbeats_to_other_groups(session: Session) -> Observations:
    """Heartbeat in classic groups with each epoch: consumers convert, others are refused."""
    topic = new_topic(session)
    other = Member(session, session.group("connect"), protocol_type="connect")
    stable(other)
    with_commits = ConsumerMember(session, session.group("none"), "a", [topic])
    for one in (ConsumerMember(session, other.group, "a", [topic]), with_commits):
        for epoch in (3, LEAVE, LEAVE_FOR_NOW):
            yield f"{one.group}, {epoch}", one.beat(member_epoch=epoch)
    yield "join", ConsumerMember(session, other.group, "a", [topic]).join()
    classic = Member(session, session.group("classic"), topics=[topic])
    stable(classic)
    one = ConsumerMember(session, classic.group, "a", [topic])
    for epoch in (3, LEAVE, LEAVE_FOR_NOW):
        yield f"classic, {epoch}", one.beat(member_epoch=epoch)
    yield "described", described(session, classic.group)


@probe("8.3")
def more_members_than_a_group_may_have(session: Session) -> Observations:
    """Join a full group: 81. Known members and returning static ones may rejoin."""
    topic = new_topic(session, partitions=1)
    group = session.group()
    every = [
        ConsumerMember(session, group, f"m{i}", [topic], instance=f"i{i}" if i < 2 else None)
        for i in range(MAX_CONSUMER_GROUP_SIZE + 1)
    ]
    for one in every:
        yield f"{one.id} joins", one.join()
    yield "known again", every[2].join()
    every[0].leave(LEAVE_FOR_NOW)
    yield "a returning static member", every[0].join(member_id="m0 again")
    yield (
        "another static member",
        ConsumerMember(session, group, "other", [topic], instance="other").join(),
    )
    every[3].leave()
    yield "after one left", every[-1].join()
    yield "members", sorted(m.member_id for m in described(session, group).groups[0].members)


@probe("8.3")
def leaving_in_each_state(session: Session) -> Observations:
    """Leave right after joining, while revoking, and while waiting for partitions."""
    topic = new_topic(session)
    for name in ("a", "b"):
        first = ConsumerMember(session, session.group(f"{name} leaves"), "a", [topic])
        first.settle()
        second = peer(first, "b")
        second.join()
        first.beat()
        yield f"{name} leaves", (first if name == "a" else second).leave()
        yield f"after {name} left", described(session, first.group)
        yield from (
            (f"after {name} left, {label}", answer)
            for label, answer in rounds(second if name == "a" else first)
        )
        yield f"{name} left, settled", described(session, first.group)
    only = ConsumerMember(session, session.group("only"), "a", [topic])
    only.join()
    yield "right after joining", only.leave()
    yield "empty", described(session, only.group)
    yield "state", state(session, only.group)


@probe("8.3")
def requests_with_other_fields(session: Session) -> Observations:
    """Leave with every field set, and with epochs of the other kind."""
    topic = new_topic(session)
    group = session.group()
    for epoch in (LEAVE, LEAVE_FOR_NOW):
        for instance in (None, "i"):
            one = ConsumerMember(session, group, f"m {instance}", [topic], instance)
            one.settle()
            label = f"epoch {epoch}, instance {instance}"
            yield label, one.repeat(member_epoch=epoch)
            yield f"{label}, described", described(session, group)
    bad = ConsumerGroupHeartbeatRequest(group_id=group, member_epoch=LEAVE)
    yield "leave without member id", session.ask(bad, 1)
    yield "leave without member id, version 0", session.ask(bad, 0)
