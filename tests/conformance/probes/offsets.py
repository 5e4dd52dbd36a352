"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from kohort.protocol.messages import (
    DeleteTopicsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tests.conformance.members import Member, commit_request, describe, stable
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session

STRANGE_ID = bytes(range(16))
Topic = OffsetFetchRequest.OffsetFetchRequestTopics


def commit(
    group: str, topic: str, *partitions: tuple[int, int], topic_id: bytes = b""
) -> OffsetCommitRequest:
    """Return a commit of (partition, offset) pairs without a member and a generation."""
    named = OffsetCommitRequest.OffsetCommitRequestTopic(
        name=topic,
        partitions=[
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset
            )
            for index, offset in partitions
        ],
    )
    if topic_id:
        named.name, named.topic_id = "", topic_id
    return OffsetCommitRequest(group_id=group, topics=[named])


def fetch(
    session: Session,
    group: str,
    topics: list[Topic] | None = None,
    version: int = 8,
    **other: object,
) -> OffsetFetchResponse:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
    for name, value in other.items():
        setattr(asked, name, value)
    return session.ask(OffsetFetchRequest(groups=[asked]), version)


def old_fetch(group: str, topic: str | None, *indexes: int) -> OffsetFetchRequest:
    """Return a request of a version below 8."""
    topics = None
    if topic is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))
        ]
    return OffsetFetchRequest(group_id=group, topics=topics)


@probe("2.8a")
def commits_of_administrators(session: Session) -> Observations:
    """Commit with generation -1 and no member, to a new and to an empty group, in each version."""
    topic = session.topic(partitions=2)
    for version in range(2, 10):
        group = session.group(f"v{version}")
        yield f"first {version}", session.ask(commit(group, topic, (0, 5), (1, 6)), version)
        yield f"again {version}", session.ask(commit(group, topic, (0, 3)), version)
        yield f"fetched {version}", fetch(session, group)
    yield "group", describe(session, session.name("v9"))


@probe("2.8a")
def commits_by_topic_id(session: Session) -> Observations:
    """Commit by topic id in version 10. An unknown id is error 100."""
    topic, group = session.topic(partitions=2), session.group()
    topic_id = session.topic_id(topic)
    yield "known", session.ask(commit(group, "", (0, 5), (7, 1), topic_id=topic_id), 10)
    yield "unknown", session.ask(commit(group, "", (0, 5), topic_id=STRANGE_ID), 10)
    yield "no id", session.ask(commit(group, "", (0, 5), topic_id=bytes(16)), 10)
    asked = Topic(topic_id=topic_id, partition_indexes=[0, 1, 7])
    yield "fetched", fetch(session, group, [asked], 10)
    yield "all", fetch(session, group, None, 10)
    yield (
        "unknown id",
        fetch(session, group, [Topic(topic_id=STRANGE_ID, partition_indexes=[0])], 10),
    )


@probe("2.8b")
def commits_with_a_generation_to_an_unknown_group(session: Session) -> Observations:
    """Commit with a generation to an unknown group: 69 from version 9 on, 22 before."""
    topic = session.topic()
    for version in range(2, 11):
        request = commit(session.group(f"v{version}"), topic, (0, 5))
        if version == 10:
            request = commit(request.group_id, "", (0, 5), topic_id=session.topic_id(topic))
        request.generation_id_or_member_epoch, request.member_id = 3, "me"
        yield f"version {version}", session.ask(request, version)


@probe("2.8c")
def commits_for_unknown_topics(session: Session) -> Observations:
    """Commit for unknown topics and partitions: error 3. The others are stored."""
    topic, group = session.topic(), session.group()
    for version in (2, 5, 8, 9):
        request = commit(group, "no-such-topic", (0, 1))
        yield f"topic {version}", session.ask(request, version)
        request = commit(group, topic, (0, version), (1, 1), (-1, 1))
        yield f"partition {version}", session.ask(request, version)
        yield f"fetched {version}", fetch(session, group)
    yield "invalid name", session.ask(commit(group, "bad topic!", (0, 1)), 8)
    yield "nothing", session.ask(OffsetCommitRequest(group_id=group), 8)


@probe("2.8c")
def commits_for_unknown_topics_make_no_group(session: Session) -> Observations:
    """Commit only for unknown topics, which creates no group."""
    group = session.group()
    yield "commit", session.ask(commit(group, "no-such-topic", (0, 1)), 8)
    yield "group", describe(session, group)
    yield "nothing at all", session.ask(OffsetCommitRequest(group_id=group), 8)
    yield "group again", describe(session, group)


@probe("2.8d")
def metadata_of_commits(session: Session) -> Observations:
    """Commit 4096 bytes of metadata, and one more: error 12. Null is stored as an empty text."""
    topic, group = session.topic(), session.group()
    for label, metadata in (
        ("4096", "x" * 4096),
        ("4097", "x" * 4097),
        ("4096 bytes of 2", "é" * 2048),
        ("4098 bytes of 2", "é" * 2049),
        ("null", None),
        ("empty", ""),
        ("text", "{'a': 1}"),
    ):
        request = commit_request(group, topic, metadata=metadata)
        yield label, session.ask(request, 8)
        yield f"{label}: fetched", fetch(session, group)


@probe("2.8d")
def metadata_too_large_beside_others(session: Session) -> Observations:
    """Commit too large metadata for one partition. The others are stored."""
    topic, group = session.topic(partitions=2), session.group()
    request = commit(group, topic, (0, 1), (1, 2))
    request.topics[0].partitions[1].committed_metadata = "x" * 5000
    yield "commit", session.ask(request, 8)
    yield "fetched", fetch(session, group)


@probe("2.8e")
def epochs_of_commits(session: Session) -> Observations:
    """Commit leader epochs, which are returned from version 6 on."""
    topic, group = session.topic(), session.group()
    for version, epoch in ((6, 0), (8, 7), (8, -1), (9, 3)):
        request = commit(group, topic, (0, 5))
        request.topics[0].partitions[0].committed_leader_epoch = epoch
        yield f"commit {version} {epoch}", session.ask(request, version)
        yield f"fetched {version} {epoch}", fetch(session, group)
        yield f"old {version} {epoch}", session.ask(old_fetch(group, topic, 0), 5)


@probe("2.8e")
def offsets_of_any_size(session: Session) -> Observations:
    """Commit offsets after the end of the log and negative ones, which are accepted."""
    topic, group = session.topic(), session.group()
    for offset in (0, 10**15, -1, -5):
        yield f"commit {offset}", session.ask(commit(group, topic, (0, offset)), 8)
        yield f"fetched {offset}", fetch(session, group)


@probe("2.8e")
def the_same_partition_twice(session: Session) -> Observations:
    """Commit the same partition twice in one request. The later one counts."""
    topic, group = session.topic(), session.group()
    yield "commit", session.ask(commit(group, topic, (0, 1), (0, 2)), 8)
    request = commit(group, topic, (0, 3))
    request.topics.append(commit(group, topic, (0, 4)).topics[0])
    yield "topic twice", session.ask(request, 8)
    yield "fetched", fetch(session, group)


@probe("2.8e")
def commits_of_a_member_in_every_version(session: Session) -> Observations:
    """Commit as a member of a stable group, with its generation, in every version."""
    topic = session.topic()
    member = Member(session, session.group())
    stable(member)
    for version in range(2, 11):
        request = member.commit_request(topic, version)
        if version == 10:
            request.topics[0].topic_id = session.topic_id(topic)
            request.topics[0].name = ""
        yield f"version {version}", session.ask(request, version)
        yield f"fetched {version}", fetch(session, member.group)


@probe("2.9a")
def nothing_committed(session: Session) -> Observations:
    """Read partitions without a commit: offset -1, epoch -1, metadata "" and no error."""
    topic, group = session.topic(), session.group()
    for version in range(1, 8):
        for label, request in (
            ("topic", old_fetch(group, topic, 0, 9)),
            ("unknown", old_fetch(group, "none", 0)),
        ):
            yield f"{label} {version}", session.ask(request, version)
        if version >= 2:
            yield f"all {version}", session.ask(old_fetch(group, None), version)
    for version in (8, 9):
        asked = [Topic(name=topic, partition_indexes=[0, 9]), Topic(name="none")]
        yield f"topic {version}", fetch(session, group, asked, version)
        yield f"all {version}", fetch(session, group, None, version)
        yield f"no topics {version}", fetch(session, group, [], version)
    yield "group", describe(session, group)


@probe("2.9b")
def offsets_in_every_version(session: Session) -> Observations:
    """Read partitions with and without a commit, in every version."""
    topic, group = session.topic(partitions=3), session.group()
    session.ask(commit(group, topic, (0, 5), (2, 7)), 8)
    for version in range(1, 8):
        yield f"some {version}", session.ask(old_fetch(group, topic, 0, 1, 2), version)
        if version >= 2:
            yield f"all {version}", session.ask(old_fetch(group, None), version)
    for version in (8, 9):
        asked = [Topic(name=topic, partition_indexes=[2, 0, 1])]
        answer = fetch(session, group, asked, version)
        yield f"some {version}", answer
        indexes = [found.partition_index for found in answer.groups[0].topics[0].partitions]
        yield f"order {version}", indexes
        yield f"all {version}", fetch(session, group, None, version)


@probe("2.9c")
def offsets_of_several_groups(session: Session) -> Observations:
    """Read several groups in one request, from version 8 on."""
    topic = session.topic()
    groups = [session.group(name) for name in "abc"]
    for offset, group in enumerate(groups[:2]):
        session.ask(commit(group, topic, (0, offset)), 8)
    for version in (8, 9):
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(
                    group_id=group, topics=[Topic(name=topic, partition_indexes=[0])]
                )
                for group in [*groups, groups[0]]
            ]
        )
        yield f"version {version}", session.ask(request, version)
    yield "none", session.ask(OffsetFetchRequest(groups=[]), 8)


@probe("2.9d")
def offsets_that_have_to_be_stable(session: Session) -> Observations:
    """Read with require_stable, which changes nothing without an open transaction."""
    topic, group = session.topic(), session.group()
    session.ask(commit(group, topic, (0, 5)), 8)
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    for version in (8, 9, 10):
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        yield f"version {version}", session.ask(request, version)
    old = old_fetch(group, topic, 0)
    old.require_stable = True
    yield "version 7", session.ask(old, 7)


@probe("2.9e")
def offsets_asked_for_by_members(session: Session) -> Observations:
    """Read with member id and epoch of a classic group, right and wrong."""
    topic = session.topic()
    member = Member(session, session.group())
    stable(member)
    session.ask(member.commit_request(topic), 8)
    for label, member_id, epoch in (
        ("its own", member.id, 1),
        ("other generation", member.id, 9),
        ("unknown", "nobody", 1),
        ("null", None, -1),
    ):
        answer = fetch(session, member.group, None, 9, member_id=member_id, member_epoch=epoch)
        yield label, answer


@probe("2.9f")
def offsets_of_deleted_topics(session: Session) -> Observations:
    """Read commits of a deleted topic, which are gone."""
    topic, other, group = session.topic(), session.topic("other"), session.group()
    topic_id = session.topic_id(topic)
    session.ask(commit(group, topic, (0, 5)), 8)
    session.ask(commit(group, other, (0, 6)), 8)
    session.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    session.wait_until_gone(topic)
    while len(fetch(session, group).groups[0].topics) > 1:
        pass
    yield "fetched", fetch(session, group, [Topic(name=topic, partition_indexes=[0])])
    asked = Topic(topic_id=topic_id, partition_indexes=[0])
    yield "by id", fetch(session, group, [asked], 10)
    yield "all", fetch(session, group)
