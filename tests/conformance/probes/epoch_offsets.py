"""Offsets of consumer groups: commits and fetches with member epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kohort.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tests.conformance.consumers import (
    LEAVE_FOR_NOW,
    ConsumerMember,
    described,
    member,
    new_topic,
    peer,
    rounds,
    settled_pair,
)
from tests.conformance.members import Member, stable
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session
from tests.conformance.transacting import producer, settle

MEMBER_VERSIONS = (2, 7, 8, 9, 10)
"""Versions of OffsetCommit. From 9 on members of consumer groups may use it."""


def commit(
    session: Session,
    group: str,
    topic: str,
    partitions: Sequence[int] = (0,),
    *,
    version: int = 9,
    offset: int = 5,
    **identity: object,
) -> OffsetCommitResponse:
    """Commit an offset for partitions of a topic. ``identity`` has fields of the request."""
    cls = OffsetCommitRequest
    entries = [
        cls.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in partitions
    ]
    named = cls.OffsetCommitRequestTopic(name=topic, partitions=entries)
    if version >= 10:
        named = cls.OffsetCommitRequestTopic(topic_id=session.topic_id(topic), partitions=entries)
    request = cls(group_id=group, topics=[named])
    for name, value in identity.items():
        setattr(request, name, value)
    return session.ask(request, version)


def commit_as(
    one: ConsumerMember, partitions: Sequence[int] = (0,), **other: object
) -> OffsetCommitResponse:
    """Commit as a member, with its epoch unless ``other`` has one."""
    fields: dict[str, object] = {
        "generation_id_or_member_epoch": one.epoch,
        "member_id": one.id,
        "group_instance_id": one.instance,
        **other,
    }
    topic = one.topics[0]
    return commit(one.session, one.group, topic, partitions, **fields)  # type: ignore[arg-type]


def fetch_as(
    session: Session,
    group: str,
    topic: str | None,
    member_id: str | None,
    epoch: int,
    *,
    version: int = 9,
) -> OffsetFetchResponse:
    cls = OffsetFetchRequest
    wanted = None
    if topic is not None:
        wanted = [cls.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        if version >= 10:
            wanted[0].name, wanted[0].topic_id = "", session.topic_id(topic)
    asked = cls.OffsetFetchRequestGroup(
        group_id=group, member_id=member_id, member_epoch=epoch, topics=wanted
    )
    return session.ask(cls(groups=[asked]), version)


def _epochs(one: ConsumerMember) -> Iterator[tuple[str, int]]:
    yield "equal", one.epoch
    yield "older", one.epoch - 1
    yield "oldest", 1
    yield "newer", one.epoch + 1
    yield "none", -1
    yield "zero", 0
    yield "leaving", -2


@probe("8.6")
def commits_with_each_epoch(session: Session) -> Observations:
    """Commit as a member with each epoch, in every version that may matter."""
    topic = new_topic(session)
    first, _ = settled_pair(session, topic)
    for version in MEMBER_VERSIONS:
        for label, epoch in _epochs(first):
            if version >= 2:
                answer = commit_as(first, version=version, generation_id_or_member_epoch=epoch)
                yield f"version {version}, {label}", answer
    yield "committed", fetch_as(session, first.group, None, None, -1)


@probe("8.6")
def commits_with_an_older_epoch(session: Session) -> Observations:
    """Commit with older epochs for partitions that were assigned before and after them."""
    topic = new_topic(session)
    a, b = settled_pair(session, topic)
    yield "the first's oldest", commit_as(a, [0, 1], generation_id_or_member_epoch=2)
    yield "the first's other", commit_as(a, [2], generation_id_or_member_epoch=2)
    yield "the first's both", commit_as(a, [0, 2], generation_id_or_member_epoch=2)
    yield "the second's", commit_as(b, [2], generation_id_or_member_epoch=2)
    yield "not its own, now", commit_as(a, [0, 2, 3])
    b.leave()
    for _ in range(2):
        list(rounds(a))
    yield "described", described(session, a.group)
    for epoch in range(a.epoch - 3, a.epoch + 1):
        for partition in (0, 3):
            answer = commit_as(a, [partition], generation_id_or_member_epoch=epoch)
            yield f"epoch {epoch}, partition {partition}", answer
    yield "a partition that does not exist", commit_as(a, [77], generation_id_or_member_epoch=3)
    yield "committed", fetch_as(session, a.group, None, None, -1)


@probe("8.6")
def commits_while_revoking(session: Session) -> Observations:
    """Commit with each epoch for kept and for revoked partitions."""
    topic = new_topic(session)
    a = member(session, topic)
    b = peer(a, "b")
    a.settle()
    b.join()
    a.beat()
    for label, one in ("revoking", a), ("waiting", b):
        for epoch in range(1, 5):
            for partition in (0, 3):
                answer = commit_as(one, [partition], generation_id_or_member_epoch=epoch)
                yield f"{label}, epoch {epoch}, partition {partition}", answer
    a.acknowledge()
    for epoch in range(1, 5):
        for partition in (0, 3):
            answer = commit_as(a, [partition], generation_id_or_member_epoch=epoch)
            yield f"revoked, epoch {epoch}, partition {partition}", answer


def _identities(one: ConsumerMember) -> Iterator[tuple[str, str, str | None, int]]:
    for label, name in ("itself", one.id), ("unknown", "nobody"), ("no member", ""):
        for instance in (None, "i", "unknown"):
            for epoch in (one.epoch, -1):
                yield f"{label} as {instance}, epoch {epoch}", name, instance, epoch


@probe("8.6")
def commits_of_strangers(session: Session) -> Observations:
    """Commit with wrong ids, as a static and as a dynamic member, and without members."""
    topic = new_topic(session)
    for kind in ("dynamic", "static"):
        one = ConsumerMember(
            session, session.group(kind), "a", [topic], "i" if kind == "static" else None
        )
        one.settle()
        for version in (8, 9):
            for label, name, instance, epoch in _identities(one):
                yield (
                    f"{kind}, version {version}, {label}",
                    commit_as(
                        one,
                        version=version,
                        member_id=name,
                        group_instance_id=instance,
                        generation_id_or_member_epoch=epoch,
                    ),
                )
        if kind == "static":
            one.leave(LEAVE_FOR_NOW)
            for epoch in (one.epoch, one.epoch - 1, -2):
                answer = commit_as(one, generation_id_or_member_epoch=epoch)
                yield f"left for now, epoch {epoch}", answer
        one.leave()
        for version in (8, 9):
            for label, name, instance, epoch in _identities(one):
                answer = commit_as(
                    one,
                    version=version,
                    member_id=name,
                    group_instance_id=instance,
                    generation_id_or_member_epoch=epoch,
                )
                yield f"{kind}, left, version {version}, {label}", answer


@probe("8.6")
def commits_to_unknown_groups_and_topics(session: Session) -> Observations:
    """Commit with an epoch to a group, a topic and a partition that do not exist."""
    topic = new_topic(session)
    one = ConsumerMember(session, session.group("none"), "a", [topic], epoch=3)
    for version in MEMBER_VERSIONS:
        yield f"unknown group, version {version}", commit_as(one, version=version)
    one = member(session, topic)
    one.settle()
    cls = OffsetCommitRequest
    entry = [cls.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    for version, named in (
        (9, cls.OffsetCommitRequestTopic(name="no.such.topic", partitions=entry)),
        (10, cls.OffsetCommitRequestTopic(topic_id=bytes(15) + b"\7", partitions=entry)),
    ):
        for epoch in (one.epoch, one.epoch + 1):
            request = cls(
                group_id=one.group,
                member_id=one.id,
                generation_id_or_member_epoch=epoch,
                topics=[named],
            )
            yield f"unknown topic, version {version}, epoch {epoch}", session.ask(request, version)
    yield "unknown partition", commit_as(one, [0, 77])


@probe("8.6")
def fetches_with_each_epoch(session: Session) -> Observations:
    """Fetch offsets as a member, as an unknown one, and as none, with each epoch."""
    topic = new_topic(session)
    first, _ = settled_pair(session, topic)
    commit_as(first)
    for version in (8, 9, 10):
        for name in (first.id, "nobody", "", None):
            for label, epoch in _epochs(first):
                for wanted in (topic, None):
                    if version == 8 and (name is not None or epoch != -1):
                        continue
                    answer = fetch_as(session, first.group, wanted, name, epoch, version=version)
                    yield f"version {version}, {name}, {label}, {wanted is None}", answer


@probe("8.6")
def fetches_from_other_groups(session: Session) -> Observations:
    """Fetch offsets with member ids and epochs from unknown, empty and classic groups."""
    topic = new_topic(session)
    left = ConsumerMember(session, session.group("empty"), "a", [topic])
    left.settle()
    commit_as(left)
    left.leave()
    classic = Member(session, session.group("classic"), topics=[topic])
    stable(classic)
    for group in (session.group("unknown"), left.group, classic.group):
        for name in ("a", "", None):
            for epoch in (-1, 1, 2):
                yield f"{group}, {name}, {epoch}", fetch_as(session, group, topic, name, epoch)
    several = [
        OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group, member_id="a", member_epoch=2, topics=None
        )
        for group in (left.group, classic.group, session.name("unknown"))
    ]
    yield "several", session.ask(OffsetFetchRequest(groups=several), 9)


@probe("8.6")
def transactional_commits_with_epochs(session: Session) -> Observations:
    """Commit in a transaction with each epoch and wrong ids."""
    topic = new_topic(session)
    first, _ = settled_pair(session, topic)
    number = 0
    for name, instance in (first.id, None), ("nobody", None), ("", None), (first.id, "i"):
        for label, epoch in _epochs(first):
            number += 1
            one = producer(session, f"x{number}")
            identity: dict[str, Any] = {
                "generation_id_or_member_epoch": epoch,
                "member_id": name,
                "group_instance_id": instance,
            }
            answer = one.commit_offset(first.group, topic, number, **identity)
            yield f"{name} as {instance}, {label}", answer
            code = one.end(committed=True).error_code
            yield f"{name} as {instance}, {label}, ended", code
            if code == 0:
                settle(session, one)
    yield "committed", fetch_as(session, first.group, topic, None, -1)
