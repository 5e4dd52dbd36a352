"""Metadata, and other APIs about brokers and topics."""

from __future__ import annotations

import time

from kohort.protocol.messages import (
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import READY_S, Session

Asked = MetadataRequest.MetadataRequestTopic
INVALID_NAMES = ("bad topic!", ".", "..", "", "x" * 250, "a/b", "é")
STRANGE_ID = bytes(range(16))
ASKED_OPERATIONS = (8, 9, 10, 11, 12, 13)


def _ask(
    session: Session, names: tuple[str, ...], version: int, create: bool = False
) -> MetadataResponse:
    request = MetadataRequest(topics=[Asked(name=name) for name in names])
    request.allow_auto_topic_creation = create if version >= 4 else True
    return session.ask(request, version)


@probe("2.12a")
def metadata_of_a_topic(session: Session) -> Observations:
    """Read the metadata of three partitions in every version, with all brokers."""
    topic = session.topic(partitions=3)
    for version in range(14):
        yield f"version {version}", _ask(session, (topic,), version)


@probe("2.12a")
def metadata_of_several_topics(session: Session) -> Observations:
    """Read known and unknown topics, and one of them twice."""
    topics = session.topic("a"), session.topic("b")
    for version in (4, 9, 12):
        names = (*topics, session.name("none"), topics[0])
        yield f"version {version}", _ask(session, names, version)


@probe("2.12b")
def metadata_of_unknown_topics(session: Session) -> Observations:
    """Read unknown topics: error 3."""
    for version in range(4, 14):
        yield f"version {version}", _ask(session, (session.name("none"),), version)


@probe("2.12b")
def metadata_of_invalid_names(session: Session) -> Observations:
    """Read names that no topic can have: error 17, with and without automatic creation."""
    for name in INVALID_NAMES:
        for create in (False, True):
            yield f"{name[:20]!r} {create}", _ask(session, (name,), 13, create)
        yield f"{name[:20]!r} version 1", _ask(session, (name,), 1)


@probe("2.12c")
def metadata_of_no_topics(session: Session) -> Observations:
    """Send an empty list, which means no topics from version 1 on. Brokers are returned."""
    session.topic()
    for version in range(1, 14):
        yield f"version {version}", session.ask(MetadataRequest(topics=[]), version)


@probe("2.12c")
def metadata_of_all_topics(session: Session) -> Observations:
    """Send null for all topics, and an empty list in version 0."""
    topic = session.topic(partitions=2)
    for version in range(14):
        request = MetadataRequest(topics=None if version else [])
        answer = session.ask(request, version)
        answer.topics = [found for found in answer.topics if found.name == topic]
        yield f"version {version}", answer


@probe("2.12d")
def operations_in_metadata(session: Session) -> Observations:
    """Request authorized operations. Versions 8 to 10 have those of the cluster."""
    topic = session.topic()
    for version in ASKED_OPERATIONS:
        request = MetadataRequest(
            topics=[Asked(name=topic)], include_topic_authorized_operations=True
        )
        if version <= 10:
            request.include_cluster_authorized_operations = True
        yield f"version {version}", session.ask(request, version)


@probe("2.12e")
def metadata_by_topic_id(session: Session) -> Observations:
    """Read topics by id in versions 12 and 13. An unknown id is error 100."""
    topic_id = session.topic_id(session.topic(partitions=2))
    for version in (12, 13):
        for label, asked in (("known", topic_id), ("unknown", STRANGE_ID)):
            request = MetadataRequest(topics=[Asked(name=None, topic_id=asked)])
            yield f"{label} {version}", session.ask(request, version)


@probe("2.12e")
def metadata_by_name_and_id(session: Session) -> Observations:
    """Send name and id, neither, and ids in versions that have the field without support."""
    name = session.topic()
    topic_id = session.topic_id(name)
    for version in (10, 11, 12, 13):
        for label, asked in (
            ("both", Asked(name=name, topic_id=topic_id)),
            ("other id", Asked(name=name, topic_id=STRANGE_ID)),
            ("neither", Asked(name=None)),
            ("id", Asked(name=None, topic_id=topic_id)),
        ):
            connection = session.connect()
            connection.send(MetadataRequest(topics=[asked]), version)
            yield f"{label} {version}", connection.outcome_of_response()


@probe("2.12f")
def internal_topics(session: Session) -> Observations:
    """Read ``__consumer_offsets``, which has 50 partitions and is internal."""
    session.group()
    yield "metadata", _ask(session, ("__consumer_offsets",), 12)


@probe("6.7b")
def topics_are_made_by_asking(session: Session) -> Observations:
    """Read a topic that is created automatically: the first response and the final state."""
    for version in (0, 1, 4, 9, 12, 13):
        name = session.name(f"made-by-{version}")
        yield f"first {version}", _ask(session, (name,), version, create=True)
        deadline = time.monotonic() + READY_S
        while (answer := _ask(session, (name,), version)).topics[0].error_code:
            assert time.monotonic() < deadline, answer
        session.wait_for_leaders(name, 1)
        yield f"then {version}", _ask(session, (name,), version, create=True)


@probe("6.7b")
def topics_are_not_made_when_it_is_forbidden(session: Session) -> Observations:
    """Forbid allow_auto_topic_creation. No topic is created."""
    name = session.name("none")
    for version in (4, 9, 13):
        yield f"first {version}", _ask(session, (name,), version)
        yield f"second {version}", _ask(session, (name,), version)


@probe("6.7b")
def known_topics_are_left_alone_by_creation(session: Session) -> Observations:
    """Read an existing topic with creation allowed. No topic is created."""
    topic = session.topic(partitions=2)
    yield "with creation", _ask(session, (topic,), 9, create=True)


@probe("3")
def quotas_of_clients(session: Session) -> Observations:
    """List no quotas, and check each field of the filter."""
    user, address = ("user", 2, None), ("ip", 0, "10.0.0.1")
    for parts in (
        (),
        (user,),
        (address,),
        (user, ("client-id", 1, None)),
        (user, address),
        (user, user),
        (("user", 0, None),),
        (("user", 1, "x"),),
        (("user", 2, "x"),),
        (("user", 3, None),),
        (("", 2, None),),
        (("other", 2, None),),
    ):
        components = [
            DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=text)
            for kind, how, text in parts
        ]
        for version in (0, 1):
            for strict in (False, True):
                request = DescribeClientQuotasRequest(components=components, strict=strict)
                yield f"{parts}, {version}, {strict}", session.ask(request, version)


@probe("3")
def describe_cluster(session: Session) -> Observations:
    """Describe the brokers in each version. This listener has no controllers."""
    for version in (0, 1, 2):
        for operations in (False, True):
            request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
            yield f"version {version}, {operations}", session.ask(request, version)
    for version in (1, 2):
        for kind in (2, 0, 3):
            request = DescribeClusterRequest(endpoint_type=kind)
            yield f"endpoint {kind}, version {version}", session.ask(request, version)
    yield "fenced", session.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)


def _describe(
    session: Session, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    return session.ask(
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None
            if cursor is None
            else DescribeTopicPartitionsRequest.Cursor(
                topic_name=cursor[0], partition_index=cursor[1]
            ),
        ),
        0,
    )


@probe("3")
def describe_topic_partitions(session: Session) -> Observations:
    """Describe topics in the order of their names, with unknown and invalid ones."""
    names = [session.topic("b", 2), session.topic("a", 3), session.name("none"), "bad topic!"]
    yield "some", _describe(session, names)
    yield "one twice", _describe(session, [names[0], names[0]])
    yield "empty name", _describe(session, [""])


@probe("2.4b")
def cursors_of_describe_topic_partitions(session: Session) -> Observations:
    """Limit the response and continue at its cursor, a nullable structure, set and null."""
    names = [session.topic("a", 3), session.topic("b", 3), session.topic("c")]
    for limit in (1, 2, 3, 4, 6, 7, 0, -1, 5000):
        yield f"limit {limit}", _describe(session, names, limit)
    for where in ((names[0], 1), (names[0], 3), (names[1], 0), (names[2], 1), ("zzz", 0)):
        yield f"from {where}", _describe(session, names, 2, where)
    yield "between", _describe(session, names, 2, (names[0] + "x", 1))
    yield "index -1", _describe(session, names, 2, (names[0], -1))


@probe("2.4b")
def describe_all_topic_partitions(session: Session) -> Observations:
    """Describe all topics by an empty list of names."""
    name = session.topic("a", 2)
    answer = _describe(session, [])
    answer.topics = [topic for topic in answer.topics if topic.name == name]
    yield "all", answer.topics
