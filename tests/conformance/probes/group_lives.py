"""Records that coordinators write for consumer groups, step by step."""

from __future__ import annotations

from functools import partial

from kohort.protocol.messages import DeleteGroupsRequest, LeaveGroupRequest
from tests.conformance.classic_consumers import stable_consumers
from tests.conformance.consumers import LEAVE_FOR_NOW, ConsumerMember, member, new_topic, peer
from tests.conformance.offsets_log import GroupLog
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.epoch_offsets import commit_as
from tests.conformance.probes.regexes import settle
from tests.conformance.probes.upgrading import classic, newcomer
from tests.conformance.session import Session


@probe("8.13")
def records_of_a_life(session: Session) -> Observations:
    """Read what a group writes from its first member to its deletion."""
    topic, other = new_topic(session), new_topic(session, "u", 2)
    a = member(session, topic, "a", assignor="range")
    b = peer(a, "b", instance="i")
    log = GroupLog(session, a.group)
    delete = DeleteGroupsRequest(groups_names=[a.group])
    remove = LeaveGroupRequest(
        group_id=a.group, members=[LeaveGroupRequest.MemberIdentity(member_id="a")]
    )
    yield from log.steps(
        ("a joins", a.join),
        ("a acknowledges", a.acknowledge),
        ("a beats", a.beat),
        ("a commits", partial(commit_as, a)),
        ("b joins", b.join),
        ("a must revoke", a.beat),
        ("a acknowledges the revocation", a.acknowledge),
        ("b gets its share", b.beat),
        ("b acknowledges", b.acknowledge),
        ("a has a rack", partial(a.beat, rack_id="r")),
        ("a has another timeout", partial(a.beat, rebalance_timeout_ms=7777)),
        ("a wants another topic", partial(a.beat, subscribed_topic_names=[topic, other])),
        ("b leaves for now", partial(b.leave, LEAVE_FOR_NOW)),
        ("b leaves for now again", partial(b.leave, LEAVE_FOR_NOW)),
        ("b returns as c", peer(b, "c", instance="i").join),
        ("a beats again", a.beat),
        ("a wants nothing", partial(a.beat, subscribed_topic_names=[])),
        ("c leaves", peer(b, "c", instance="i").leave),
        ("a is removed", partial(session.ask, remove, 5)),
        ("a joins again", a.join),
        ("a leaves", a.leave),
        ("deleted", partial(session.ask, delete, 2)),
    )


@probe("8.13")
def records_of_a_migration(session: Session) -> Observations:
    """Read what a group writes when it becomes a consumer group and a classic one again."""
    topic = new_topic(session)
    a = classic(session, "g", topic)
    log = GroupLog(session, a.group)
    stable_consumers((a, {topic: [0, 1, 2, 3]}))
    log.new()
    new = newcomer(a, topic)
    yield from log.steps(
        ("new joins", new.join),
        ("a beats", a.heartbeat),
        ("a joins with less", partial(a.rejoin, {topic: [0, 1]})),
        ("a syncs", a.resync),
        ("new beats", new.beat),
        ("new acknowledges", new.acknowledge),
        ("a commits", lambda: a.connection.ask(a.commit_request(topic), 8)),
        ("new leaves", new.leave),
        ("a beats again", a.heartbeat),
    )


@probe("8.13")
def records_of_static_members_that_migrate(session: Session) -> Observations:
    """Read what is written when static members are replaced by those of the other protocol."""
    topic = new_topic(session)
    a = classic(session, "g", topic, instance="i")
    b = classic(session, "g", topic, instance="j")
    log = GroupLog(session, a.group)
    stable_consumers((a, {topic: [0, 1]}), (b, {topic: [2, 3]}))
    log.new()
    new = newcomer(a, topic, instance="i", assignor="range")
    third = classic(session, "g", topic, instance="k")
    yield from log.steps(
        ("i becomes a consumer", new.join),
        ("new acknowledges", new.acknowledge),
        ("k joins", third.join),
        ("k syncs", third.resync),
        ("k leaves", third.leave),
        ("i becomes classic", classic(session, "g", topic, instance="i").join),
    )


def _joined(one: ConsumerMember) -> object:
    """Join by a pattern. The broker resolves it at some time, before the assignment."""
    one.join()
    return settle(one, 2)


@probe("8.13")
def records_of_patterns(session: Session) -> Observations:
    """Read what is written when patterns are resolved, shared and dropped."""
    new_topic(session, "x1", 2)
    own = session.name("").replace(".", r"\.")
    a = ConsumerMember(session, session.group(), "a", regex=f"{own}x.")
    b = peer(a, "b", topics=(), regex=a.regex)
    log = GroupLog(session, a.group)
    yield from log.steps(
        ("a joins and is assigned", partial(_joined, a)),
        ("b joins", b.join),
        ("b leaves", b.leave),
        ("a drops it", partial(a.beat, subscribed_topic_regex="")),
        ("a acknowledges", a.acknowledge),
        ("a leaves", a.leave),
    )


@probe("8.13")
def records_of_empty_groups(session: Session) -> Observations:
    """Read what is written when empty groups change their type."""
    topic = new_topic(session)
    a = classic(session, "g", topic, version=3)
    stable_consumers((a, {topic: [0]}))
    a.leave()
    log = GroupLog(session, a.group)
    new = newcomer(a, topic)
    again = classic(session, "g", topic, version=3)
    yield from log.steps(
        ("a consumer joins", new.join),
        ("the consumer leaves", new.leave),
        ("a classic member joins", again.join),
    )
