"""Topics created, extended, emptied and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.session import Session, batch

STRANGE_ID = bytes(range(16))
Creatable = CreateTopicsRequest.CreatableTopic
TIMEOUT_MS = 15_000


def _topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
) -> Creatable:
    return Creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ],
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=index, broker_ids=list(brokers)
            )
            for index, brokers in assignments
        ],
    )


def _create(
    session: Session, *topics: Creatable, version: int = 7, validate_only: bool = False
) -> CreateTopicsResponse:
    """Return the response without its configs, which the probes of configs compare."""
    request = CreateTopicsRequest(
        topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )
    answer = session.ask(request, version)
    for topic in answer.topics:
        topic.configs = None if topic.configs is None else []
    return answer


def _metadata(session: Session, name: str) -> object:
    asked = MetadataRequest.MetadataRequestTopic(name=name)
    return session.ask(MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 9).topics


@probe("3")
def create_topics(session: Session) -> Observations:
    """Create topics in every version. A second time it is error 36."""
    for version in range(2, 8):
        name = session.name(f"v{version}")
        yield f"version {version}", _create(session, _topic(name, 2), version=version)
        session.wait_for_leaders(name, 2)
        yield f"again {version}", _create(session, _topic(name, 2), version=version)
        yield f"metadata {version}", _metadata(session, name)


@probe("3")
def create_topics_with_defaults(session: Session) -> Observations:
    """Create topics with -1 for the number of partitions and of replicas."""
    for version in (2, 4, 7):
        for partitions, factor in ((-1, -1), (3, -1), (-1, 1)):
            name = session.name(f"{version}.{partitions}.{factor}")
            answer = _create(session, _topic(name, partitions, factor), version=version)
            yield f"{partitions}, {factor}, version {version}", answer


@probe("3")
def create_topics_that_cannot_be(session: Session) -> Observations:
    """Create topics with invalid numbers, names and replicas."""
    name = session.name("t")
    for label, topic in (
        ("no partitions", _topic(name, 0)),
        ("-2 partitions", _topic(name, -2)),
        ("too many partitions", _topic(name, 100_001)),
        ("no replicas", _topic(name, 1, 0)),
        ("-2 replicas", _topic(name, 1, -2)),
        ("too many replicas", _topic(name, 1, 2)),
        ("invalid name", _topic("bad topic!")),
        ("empty name", _topic("")),
        ("dot", _topic(".")),
        ("long name", _topic("x" * 250)),
        ("unknown setting", _topic(name, configs={"no.such.thing": "1"})),
        ("wrong number", _topic(name, configs={"retention.ms": "soon"})),
        ("number out of bounds", _topic(name, configs={"retention.ms": "-5"})),
        ("wrong choice", _topic(name, configs={"cleanup.policy": "burn"})),
        ("wrong boolean", _topic(name, configs={"preallocate": "maybe"})),
        ("null setting", _topic(name, configs={"retention.ms": None})),
    ):
        for version in (4, 7):
            yield f"{label} {version}", _create(session, topic, version=version)
    yield "metadata", _metadata(session, name)


@probe("3")
def create_topics_with_assignments(session: Session) -> Observations:
    """Assign replicas: valid, on unknown brokers, twice, with gaps, with numbers too."""
    for label, partitions, factor, assignments in (
        ("right", -1, -1, [(0, [1]), (1, [1])]),
        ("unknown broker", -1, -1, [(0, [9])]),
        ("no broker", -1, -1, [(0, [])]),
        ("twice", -1, -1, [(0, [1, 1])]),
        ("gap", -1, -1, [(0, [1]), (2, [1])]),
        ("the same partition", -1, -1, [(0, [1]), (0, [1])]),
        ("different numbers", -1, -1, [(0, [1]), (1, [1, 1])]),
        ("with numbers", 1, 1, [(0, [1])]),
        ("with a factor", -1, 1, [(0, [1])]),
    ):
        topic = _topic(session.name(label.replace(" ", "-")), partitions, factor, None, assignments)
        yield label, _create(session, topic)


@probe("3")
def create_several_topics(session: Session) -> Observations:
    """Create several topics: valid, invalid, the same name twice, and none."""
    topics = [session.name(name) for name in ("a", "b", "c")]
    answer = _create(
        session,
        _topic(topics[0]),
        _topic(topics[1], 0),
        _topic(topics[2]),
        _topic(topics[2], 2),
    )
    answer.topics.sort(key=lambda topic: topic.name)
    yield "answer", answer
    yield "nothing", _create(session)


@probe("3")
def validate_only(session: Session) -> Observations:
    """Validate topics without creating them."""
    name = session.name("t")
    for version in (2, 5, 7):
        answer = _create(session, _topic(name, 3), version=version, validate_only=True)
        yield f"version {version}", answer
    yield "bad", _create(session, _topic(name, 0), validate_only=True)
    yield "metadata", _metadata(session, name)
    existing = session.topic("there")
    yield "there", _create(session, _topic(existing), validate_only=True)


@probe("3")
def topic_names_that_collide(session: Session) -> Observations:
    """Create names that differ in dots and underscores only."""
    name = session.topic("a.b")
    yield "collision", _create(session, _topic(name.replace("a.b", "a_b")))


@probe("3")
def delete_topics(session: Session) -> Observations:
    """Delete topics in every version by name, in version 6 by id, and unknown ones."""
    for version in range(1, 6):
        name, none = session.topic(f"v{version}"), session.name("none")
        request = DeleteTopicsRequest(topic_names=[name, none], timeout_ms=TIMEOUT_MS)
        answer = session.ask(request, version)
        answer.responses.sort(key=lambda topic: topic.name or "")
        yield f"version {version}", answer
        session.wait_until_gone(name)
        yield f"metadata {version}", _metadata(session, name)


@probe("3")
def delete_topics_by_name_and_id(session: Session) -> Observations:
    """Delete by name and by id in version 6, and by both."""
    State = DeleteTopicsRequest.DeleteTopicState
    names = [session.topic(name) for name in ("a", "b", "c")]
    ids = [session.topic_id(name) for name in names]
    for label, state in (
        ("name", State(name=names[0])),
        ("id", State(name=None, topic_id=ids[1])),
        ("both", State(name=names[2], topic_id=ids[2])),
        ("neither", State(name=None)),
        ("unknown name", State(name=session.name("none"))),
        ("unknown id", State(name=None, topic_id=STRANGE_ID)),
        ("empty name", State(name="")),
        ("invalid name", State(name="bad topic!")),
    ):
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        yield label, session.ask(request, 6)
    session.wait_until_gone(names[0])
    for name in names:
        yield f"metadata {name[-1]}", _metadata(session, name)
    twice = DeleteTopicsRequest(
        topics=[State(name=names[2]), State(name=names[2])], timeout_ms=TIMEOUT_MS
    )
    yield "twice", session.ask(twice, 6)
    yield "nothing", session.ask(DeleteTopicsRequest(timeout_ms=TIMEOUT_MS), 6)


@probe("3")
def topics_made_again(session: Session) -> Observations:
    """Recreate a topic, which has another id and no records."""
    name = session.topic()
    first = session.topic_id(name)
    session.produce(name, batch(b"x"))
    session.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5)
    session.wait_until_gone(name)
    session.topic()
    yield "another id", session.topic_id(name) != first
    yield "empty", session.end_offsets(name, 1)
    yield "the old id", fetch(session, first, version=13)


def _grow(
    session: Session,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    version: int = 3,
    validate_only: bool = False,
) -> CreatePartitionsResponse:
    asked = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [
            CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(brokers))
            for brokers in assignments
        ],
    )
    request = CreatePartitionsRequest(
        topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )
    return session.ask(request, version)


@probe("3")
def create_partitions(session: Session) -> Observations:
    """Create partitions in every version. New ones are empty, old ones stay the same."""
    name = session.topic()
    session.produce(name, batch(b"x"))
    for version in range(4):
        yield f"version {version}", _grow(session, name, version + 2, version=version)
        session.wait_for_leaders(name, version + 2)
        yield f"metadata {version}", _metadata(session, name)
    yield "ends", session.end_offsets(name, 5)


@probe("3")
def create_partitions_that_cannot_be(session: Session) -> Observations:
    """Create fewer or as many partitions, of unknown topics, and with invalid assignments."""
    name = session.topic(partitions=3)
    for label, topic, count, assignments in (
        ("fewer", name, 2, None),
        ("as many", name, 3, None),
        ("none", name, 0, None),
        ("negative", name, -1, None),
        ("unknown topic", session.name("none"), 5, None),
        ("invalid name", "bad topic!", 5, None),
        ("too few assignments", name, 5, [[1]]),
        ("too many assignments", name, 4, [[1], [1]]),
        ("no assignments", name, 4, []),
        ("empty assignment", name, 4, [[]]),
        ("unknown broker", name, 4, [[9]]),
        ("twice the same broker", name, 4, [[1, 1]]),
    ):
        yield label, _grow(session, topic, count, assignments)
    yield "looked at only", _grow(session, name, 5, validate_only=True)
    yield "right assignment", _grow(session, name, 4, [[1]])
    session.wait_for_leaders(name, 4)
    yield "metadata", _metadata(session, name)


@probe("3")
def create_partitions_twice(session: Session) -> Observations:
    """Create partitions of the same topic twice in one request."""
    name = session.topic()
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[asked, asked], timeout_ms=TIMEOUT_MS)
    yield "twice", session.ask(request, 3)
    yield "nothing", session.ask(CreatePartitionsRequest(timeout_ms=TIMEOUT_MS), 3)


def _delete_records(
    session: Session, name: str, *where: tuple[int, int], version: int = 2
) -> DeleteRecordsResponse:
    topic = DeleteRecordsRequest.DeleteRecordsTopic(
        name=name,
        partitions=[
            DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
            for index, offset in where
        ],
    )
    return session.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version)


@probe("3")
def delete_records(session: Session) -> Observations:
    """Delete records in every version: up to an offset, backwards, to the end."""
    for version in range(3):
        name = session.topic(f"v{version}")
        session.produce(name, batch(b"0", b"1", b"2"), batch(b"3", b"4"))
        for number, offset in enumerate((0, 1, 3, 2, 0, 4, -1)):
            answer = _delete_records(session, name, (0, offset), version=version)
            yield f"{number}: offset {offset}, version {version}", answer
        yield f"fetched {version}", fetch(session, name, partition(0, 5))


@probe("3")
def delete_records_twice(session: Session) -> Observations:
    """Name a partition and a topic twice in one request."""
    topic = session.topic(partitions=2)
    session.produce(topic, batch(b"0"), batch(b"1"), batch(b"2"))
    cls = DeleteRecordsRequest
    asked = [cls.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (1, 2)]
    for label, groups in (("partition", [asked]), ("topic", [asked[:1], asked[1:]])):
        topics = [cls.DeleteRecordsTopic(name=topic, partitions=group) for group in groups]
        yield label, session.ask(cls(topics=topics, timeout_ms=10_000), 2)


@probe("3")
def delete_records_that_are_not_there(session: Session) -> Observations:
    """Delete records after the end, at negative offsets, and of unknown partitions."""
    name = session.topic()
    session.produce(name, batch(b"0", b"1", b"2"))
    for offset in (4, -2, 2**62):
        yield f"offset {offset}", _delete_records(session, name, (0, offset))
    yield "partition", _delete_records(session, name, (3, 1))
    yield "topic", _delete_records(session, session.name("none"), (0, 1))
    yield "invalid name", _delete_records(session, "bad topic!", (0, 1))
    yield "all", _delete_records(session, name, (0, 3))
    yield "produced", session.produce(name, batch(b"x"))


@probe("3")
def delete_records_of_internal_topics(session: Session) -> Observations:
    """Delete records of ``__consumer_offsets``, which is refused."""
    session.group()
    yield "answer", _delete_records(session, "__consumer_offsets", (0, 0))


@probe("3")
def partition_reassignments(session: Session) -> Observations:
    """List reassignments of all topics, of one, and of an unknown one. There are none."""
    name = session.topic(partitions=2)
    Asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for label, topics in (
        ("all", None),
        ("one", [Asked(name=name, partition_indexes=[0, 1])]),
        ("unknown partition", [Asked(name=name, partition_indexes=[9])]),
        ("unknown topic", [Asked(name=session.name("none"), partition_indexes=[0])]),
        ("none", []),
    ):
        request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        yield label, session.ask(request, 0)
