"""Offsets that are committed in transactions."""

from __future__ import annotations

from typing import Any

from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from tests.conformance.members import Member, commit_request, stable
from tests.conformance.members import describe as describe_group
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session
from tests.conformance.transacting import WAYS, describe, end, new_topic, offsets, producer, settle


@probe("2.9g", "6.9b")
def offsets_of_an_open_transaction(session: Session) -> Observations:
    """Read pending offsets: 88 with require_stable, else the ones before. Read them
    after the end.
    """
    topic = new_topic(session)
    for way, old in WAYS.items():
        group = session.group(way)
        one = producer(session, way, old=old)
        for offset, committed in ((5, False), (7, True), (9, False)):
            label = f"{way} {offset}"
            if old:
                yield f"{label} added", one.add_offsets(group)
            yield f"{label} commit", one.commit_offset(group, topic, offset)
            for stable_only in (True, False):
                for name in (topic, None):
                    answer = offsets(session, group, name, stable=stable_only)
                    yield f"{label} open {stable_only} {bool(name)}", answer
            yield f"{label} group", describe_group(session, group)
            yield f"{label} end", one.end(committed=committed)
            settle(session, one)
            yield f"{label} ended", offsets(session, group, topic, stable=True)
            yield f"{label} ended, all", offsets(session, group, None, stable=True)
        yield f"{way} group in the end", describe_group(session, group)


@probe("2.9g")
def unstable_offsets_in_every_version(session: Session) -> Observations:
    """Read pending offsets with require_stable, which exists from version 7 on."""
    topic, group = new_topic(session), session.group()
    session.ask(commit_request(group, topic, 3), 8)
    one = producer(session)
    one.commit_offset(group, topic, 5)
    for version in range(1, 11):
        for name in (topic, None):
            if name is None and version < 2:
                continue
            for stable_only in (True, False) if version >= 7 else (False,):
                yield (
                    f"version {version} {bool(name)} {stable_only}",
                    offsets(session, group, name, stable=stable_only, version=version),
                )
    yield "end", end(session, one, committed=True)
    yield "afterwards", offsets(session, group, topic, stable=True)


@probe("6.9b")
def offsets_are_committed_in_every_version(session: Session) -> Observations:
    """Commit by TxnOffsetCommit with and without adding the group before."""
    topic = new_topic(session)
    topic_id = session.topic_id(topic)
    for version in range(7):
        for added in (True, False):
            label = f"{version} {added}"
            group = session.group(f"g{label}")
            one = producer(session, f"x{label}", old=version < 5)
            if added:
                one.add_offsets(group)
            yield (
                f"{label} commit",
                one.commit_offset(group, topic, 5, version=version, topic_id=topic_id),
            )
            state = describe(session, one.name).transaction_states[0]
            yield f"{label} state", state.transaction_state
            yield f"{label} end", one.end(committed=True)
            settle(session, one)
            yield f"{label} committed", offsets(session, group, topic, stable=True)


@probe("6.9b", "6.8f")
def offsets_of_the_wrong_one(session: Session) -> Observations:
    """Commit as another producer, in another epoch, and with an unknown id."""
    topic, group = new_topic(session), session.group()
    topic_id = session.topic_id(topic)
    for version in range(7):
        one = producer(session, f"v{version}", old=version < 5)
        one.init()
        one.add_offsets(group)
        one.commit_offset(group, topic, 1, version=version, topic_id=topic_id)
        name, producer_id, epoch = one.name, one.producer_id, one.epoch
        for label, other in (
            ("epoch before", {"epoch": epoch - 1}),
            ("epoch to come", {"epoch": epoch + 1}),
            ("no epoch", {"epoch": -1}),
            ("other id", {"producer_id": producer_id + 1_000_000}),
            ("no id", {"producer_id": -1}),
            ("stranger", {"name": session.name("nobody")}),
            ("no name", {"name": ""}),
        ):
            vars(one).update(name=name, producer_id=producer_id, epoch=epoch)
            vars(one).update(other)
            yield (
                f"{version} {label}",
                one.commit_offset(group, topic, 5, version=version, topic_id=topic_id),
            )
        vars(one).update(name=name, producer_id=producer_id, epoch=epoch)
        yield f"{version} end", end(session, one, committed=False)


@probe("6.9b", "2.8c")
def transactional_offsets_that_are_refused(session: Session) -> Observations:
    """Commit for unknown partitions and with too large metadata. The others are stored."""
    topic, group = new_topic(session), session.group()
    cls = TxnOffsetCommitRequest
    for version in (0, 3, 5, 6):
        one = producer(session, f"v{version}", old=version < 5)
        one.add_offsets(group)
        partitions = [
            cls.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=5, committed_metadata=metadata
            )
            for index, metadata in ((0, "fine"), (9, ""), (-1, None), (0, "x" * 4097), (0, None))
        ]
        topics = [
            cls.TxnOffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
            for name, topic_id in (
                (topic, session.topic_id(topic)),
                ("no-such-topic", b"n" * 16),
                ("bad topic!", ZERO_UUID),
            )
        ]
        for label, wanted in (("all", topics), ("unknown", topics[1:]), ("none", [])):
            answer = one.commit_offset(group, topic, 0, version=version, topics=wanted)
            yield f"{version} {label}", answer
        yield (
            f"{version} no group",
            one.commit_offset("", topic, 1, version=version, topic_id=topics[0].topic_id),
        )
        yield f"{version} end", end(session, one, committed=True)
        yield f"{version} committed", offsets(session, group, topic, stable=True)


@probe("6.9b", "6.2c")
def transactional_offsets_of_members(session: Session) -> Observations:
    """Commit with group, generation, member and instance (KIP-447), which are
    checked if present.
    """
    topic = new_topic(session)
    topic_id = session.topic_id(topic)
    for kind, instance in (("dynamic", None), ("static", "i")):
        member = Member(session, session.group(kind), instance=instance)
        for version in (3, 4, 5, 6):
            one = producer(session, f"{kind}{version}", old=version < 5)
            one.add_offsets(member.group)
            if version == 3:
                for newest in (3, 6):
                    answer = one.commit_offset(
                        member.group,
                        topic,
                        1,
                        version=newest,
                        topic_id=topic_id,
                        generation_id_or_member_epoch=1,
                        member_id="me",
                    )
                    yield f"{kind} unknown group {newest}", answer
                stable(member)
            for label, fields in (
                ("nothing told", {}),
                ("its own", {}),
                ("generation before", {"generation_id_or_member_epoch": member.generation - 1}),
                ("generation to come", {"generation_id_or_member_epoch": member.generation + 1}),
                ("no generation", {"generation_id_or_member_epoch": -1}),
                ("unknown member", {"member_id": "nobody"}),
                ("no member", {"member_id": ""}),
                ("unknown instance", {"group_instance_id": "nobody"}),
                ("instance of another", {"member_id": "nobody", "group_instance_id": "i"}),
                ("generation alone", {"member_id": "", "group_instance_id": None}),
            ):
                told: dict[str, Any] = {
                    "generation_id_or_member_epoch": member.generation,
                    "member_id": member.id,
                    "group_instance_id": member.instance,
                }
                if label == "nothing told":
                    told = {}
                told.update(fields)
                answer = one.commit_offset(
                    member.group, topic, 2, version=version, topic_id=topic_id, **told
                )
                yield f"{kind} {version} {label}", answer
            yield f"{kind} {version} end", end(session, one, committed=False)


@probe("6.9b", "6.2c")
def transactional_offsets_in_a_rebalance(session: Session) -> Observations:
    """Commit in a rebalance and before the assignment."""
    topic = new_topic(session)
    member, other = Member(session, session.group(), b"a"), Member(session, session.group(), b"b")
    stable(member)
    one = producer(session)
    other.get_id()
    for step in ("stable", "preparing", "completing"):
        if step == "preparing":
            other.send_join()
            while member.heartbeat(session.connect()).error_code == 0:
                pass
        if step == "completing":
            member.send_join()
            joined = member.joined(), other.joined()
            yield "joined", [answer.error_code for answer in joined]
        epoch = "generation_id_or_member_epoch"
        steps: tuple[tuple[str, dict[str, Any]], ...] = (
            ("told", {epoch: member.generation, "member_id": member.id}),
            ("nothing", {}),
            ("another", {epoch: member.generation, "member_id": "nobody"}),
            ("before", {epoch: member.generation - 1, "member_id": member.id}),
        )
        for label, told in steps:
            yield f"{step} {label}", one.commit_offset(member.group, topic, 3, **told)
    yield "end", end(session, one, committed=True)
    yield "committed", offsets(session, member.group, topic, stable=True)


@probe("6.9b", "2.9g")
def other_commits_beside_a_transaction(session: Session) -> Observations:
    """Commit without a transaction while an offset is pending. Read which counts after the end."""
    topic = new_topic(session)
    for committed in (True, False):
        group = session.group(f"g{committed}")
        one, two = producer(session, f"a{committed}"), producer(session, f"b{committed}")
        one.commit_offset(group, topic, 5)
        yield f"{committed} ordinary", session.ask(commit_request(group, topic, 6), 8)
        yield f"{committed} stable", offsets(session, group, topic, stable=True)
        yield f"{committed} unstable", offsets(session, group, topic, stable=False)
        two.commit_offset(group, topic, 7)
        yield f"{committed} end", end(session, one, committed=committed)
        yield f"{committed} still open", offsets(session, group, topic, stable=True)
        yield f"{committed} meanwhile", offsets(session, group, topic, stable=False)
        yield f"{committed} end of the other", end(session, two, committed=not committed)
        yield f"{committed} then", offsets(session, group, topic, stable=True)


@probe("6.9b", "6.2e")
def groups_with_pending_offsets(session: Session) -> Observations:
    """Delete a group, or its offsets, while a transaction is open, and end the transaction."""
    topic = new_topic(session)
    for committed, before in ((True, True), (False, True), (True, False)):
        label = f"{committed} {before}"
        group = session.group(f"g {label}")
        one = producer(session, f"x {label}")
        if before:
            session.ask(commit_request(group, topic, 1), 8)
        one.commit_offset(group, topic, 5)
        cls = OffsetDeleteRequest
        named = cls.OffsetDeleteRequestTopic(
            name=topic, partitions=[cls.OffsetDeleteRequestPartition(partition_index=0)]
        )
        yield f"{label} offsets", session.ask(cls(group_id=group, topics=[named]), 0)
        yield f"{label} without", offsets(session, group, topic, stable=False)
        yield f"{label} pending", offsets(session, group, topic, stable=True)
        answer = session.ask(DeleteGroupsRequest(groups_names=[group]), 2)
        yield f"{label} deleted", answer
        yield f"{label} described", describe_group(session, group)
        yield f"{label} end", end(session, one, committed=committed)
        yield f"{label} then", offsets(session, group, topic, stable=True)
        yield f"{label} described then", describe_group(session, group)
