"""Share groups: heartbeats, sessions, acknowledgements, states and starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kohort.protocol import messages as m
from kohort.records import NewRecord, encode_batch, split_batches
from tests.conformance.consumers import new_topic
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.broker_settings import NODE
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.probes.settings import BROKER, DELETE, GROUP, SET, change, describe
from tests.conformance.session import T0, Session, wait_for

Acks = Mapping[int, Sequence[tuple[int, int, list[int]]]]
SHARE = 2


def queue(session: Session, label: str) -> str:
    """Return a new group that assigns at once, and reads from the beginning."""
    group = session.group(label)
    done = change(
        session,
        group,
        (SET, "share.assignment.interval.ms", "0"),
        (SET, "share.auto.offset.reset", "earliest"),
        kind=GROUP,
    )
    assert done.responses[0].error_code == 0, done
    return group


def heartbeat(session: Session, group: str, **fields: object) -> m.ShareGroupHeartbeatResponse:
    """Send a heartbeat of member "m" with these fields."""
    given = {"group_id": group, "member_id": "m", "member_epoch": 0, **fields}
    return session.ask(m.ShareGroupHeartbeatRequest(**given), 1)  # type: ignore[arg-type]


def settle(session: Session, group: str, topic: str, member: str = "m") -> int:
    """Let a member join and wait for partitions. Return its epoch."""
    seen = [heartbeat(session, group, member_id=member, subscribed_topic_names=[topic])]

    def has_partitions() -> bool:
        assignment = seen[-1].assignment
        if assignment is not None and assignment.topic_partitions:
            return True
        epoch = seen[-1].member_epoch
        seen.append(heartbeat(session, group, member_id=member, member_epoch=epoch))
        return False

    wait_for(has_partitions, f"{group} has partitions")
    return seen[-1].member_epoch


def _fields(session: Session, topic: str) -> Iterator[tuple[str, dict[str, object]]]:
    for label, value in ("empty", ""), ("blank", " "):
        yield f"group id {label}", {"group_id": value}
        yield f"member id {label}", {"member_id": value}
        yield f"rack {label}", {"rack_id": value}
    yield "member id of 36", {"member_id": "m" * 36}
    yield "member id of 37", {"member_id": "m" * 37}
    yield "rack", {"rack_id": "r"}
    yield "no names", {"subscribed_topic_names": None}
    yield "names empty", {"subscribed_topic_names": []}
    yield "names unknown", {"subscribed_topic_names": [session.name("none")]}
    yield "names twice", {"subscribed_topic_names": [topic, topic]}
    for epoch in (-2, -1, 1):
        yield f"epoch {epoch}", {"member_epoch": epoch}


@probe("9.1")
def share_heartbeat_fields(session: Session) -> Observations:
    """Join a new group by ShareGroupHeartbeat with each field good and bad."""
    topic = new_topic(session, "t", 1)
    for number, (label, fields) in enumerate(_fields(session, topic)):
        group = session.group(f"g{number}")
        yield label, heartbeat(session, group, **{"subscribed_topic_names": [topic], **fields})


@probe("9.1", "9.2")
def a_life_of_a_share_group(session: Session) -> Observations:
    """Join, be described, send wrong epochs, meet other protocols, leave, and be deleted."""
    topic = new_topic(session, "t", 2)
    group = queue(session, "g")
    epoch = settle(session, group, topic)
    yield "epoch", epoch
    yield "heartbeat", heartbeat(session, group, member_epoch=epoch)
    yield "full", heartbeat(session, group, member_epoch=epoch, subscribed_topic_names=[topic])
    yield "previous", heartbeat(session, group, member_epoch=epoch - 1)
    yield "greater", heartbeat(session, group, member_epoch=epoch + 5)
    yield "unknown", heartbeat(session, group, member_id="x", member_epoch=epoch)
    yield "unknown leaves", heartbeat(session, group, member_id="x", member_epoch=-1)
    yield "again", heartbeat(session, group, subscribed_topic_names=[topic])
    described = m.ShareGroupDescribeRequest(
        group_ids=[group, session.name("none"), ""], include_authorized_operations=True
    )
    yield "described", session.ask(described, 1)
    listed = session.ask(m.ListGroupsRequest(types_filter=["share"]), 5).groups
    yield "listed", [each for each in listed if each.group_id == group]
    yield "deleted", session.ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    consumer = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    yield "consumer heartbeat", session.ask(consumer, 1)
    yield "consumer described", session.ask(m.ConsumerGroupDescribeRequest(group_ids=[group]), 0)
    join = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    yield "join", session.ask(join, 5).error_code
    yield "left", heartbeat(session, group, member_epoch=-1)
    yield "left twice", heartbeat(session, group, member_epoch=-1)
    yield "described empty", session.ask(m.ShareGroupDescribeRequest(group_ids=[group]), 1)
    yield "deleted empty", session.ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    yield "described dead", session.ask(m.ShareGroupDescribeRequest(group_ids=[group]), 1)


def _fetch(
    session: Session, group: str, topic_id: bytes, epoch: int, version: int = 2, **fields: object
) -> m.ShareFetchResponse:
    cls = m.ShareFetchRequest
    acks = fields.pop("acks", {})
    assert isinstance(acks, dict)
    given = {
        "group_id": group,
        "member_id": "m",
        "share_session_epoch": epoch,
        "max_wait_ms": 300,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        **fields,
    }
    partitions = [
        cls.FetchPartition(
            partition_index=index,
            acknowledgement_batches=[
                cls.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=types
                )
                for first, last, types in acks.get(index, ())
            ],
        )
        for index in (0,)
    ]
    topics = [cls.FetchTopic(topic_id=topic_id, partitions=partitions)]
    return session.ask(cls(topics=topics, **given), version)  # type: ignore[arg-type]


def _acknowledge(
    session: Session,
    group: str,
    topic_id: bytes,
    epoch: int,
    *acks: tuple[int, int, list[int]],
    version: int = 2,
    **fields: object,
) -> m.ShareAcknowledgeResponse:
    cls = m.ShareAcknowledgeRequest
    partition = cls.AcknowledgePartition(
        partition_index=0,
        acknowledgement_batches=[
            cls.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ],
    )
    given = {"group_id": group, "member_id": "m", "share_session_epoch": epoch, **fields}
    topics = [cls.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])]
    return session.ask(cls(topics=topics, **given), version)  # type: ignore[arg-type]


@probe("9.3")
def share_fetches_and_acknowledgements(session: Session) -> Observations:
    """Open a share session, acquire, acknowledge well and badly, renew, and close it."""
    topic = new_topic(session, "t", 1)
    topic_id = session.topic_id(topic)
    records = [NewRecord(T0, b"k", b"v%d" % number) for number in range(10)]
    session.produce(topic, encode_batch(records))
    group = queue(session, "g")
    settle(session, group, topic)
    for label, fields in (
        ("no group", {"group_id": None}),
        ("no member", {"member_id": ""}),
        ("long member", {"member_id": "m" * 37}),
        ("acks that open", {"acks": {0: [(0, 0, [1])]}}),
        ("renewal with sizes", {"is_renew_ack": True}),
    ):
        yield f"fetch: {label}", _fetch(session, group, topic_id, 0, **fields)
    yield "fetch without a session", _fetch(session, group, topic_id, 4)
    yield "ack without a session", _acknowledge(session, group, topic_id, 1, (0, 0, [1]))
    yield "ack that opens", _acknowledge(session, group, topic_id, 0, (0, 0, [1]))
    yield "close without a session", _acknowledge(session, group, topic_id, -1)
    opened: list[m.ShareFetchResponse] = []

    def has_records() -> bool:
        # The state may still be loading, which ends a fetch without the partition.
        opened.append(_fetch(session, group, topic_id, 0))
        return bool(opened[-1].responses)

    wait_for(has_records, "the share-partition is loaded")
    yield "opened", opened[-1]
    yield "old epoch", _fetch(session, group, topic_id, 0 + 9)
    epoch = 1
    for label, acks in (
        ("unknown type", [(0, 0, [7])]),
        ("too few types", [(0, 2, [1, 1])]),
        ("no types", [(0, 2, [])]),
        ("backwards", [(2, 0, [1])]),
        ("descending", [(5, 5, [1]), (3, 3, [1])]),
        ("twice", [(5, 5, [1]), (5, 5, [1])]),
        ("beyond", [(5, 50, [1])]),
        ("far", [(50, 50, [1])]),
        ("good", [(0, 1, [1]), (2, 3, [2, 3]), (4, 4, [0])]),
        ("again", [(0, 1, [1])]),
        ("over", [(3, 3, [1])]),
        ("renewal without the flag", [(6, 6, [4])]),
    ):
        yield f"ack: {label}", _acknowledge(session, group, topic_id, epoch, *acks)
        epoch += 1
    yield "renewed", _acknowledge(session, group, topic_id, epoch, (6, 6, [4]), is_renew_ack=True)
    yield "by version 1", _acknowledge(session, group, topic_id, epoch + 1, (6, 6, [1]), version=1)
    yield "released again", _fetch(session, group, topic_id, epoch + 2, 1)
    strict = _fetch(session, group, topic_id, epoch + 3, acks={0: [(2, 2, [2]), (5, 5, [2])]})
    yield "acks in a fetch", strict
    yield "closed", _fetch(session, group, topic_id, -1, acks={0: [(7, 7, [1])]})
    yield "a new session", _fetch(session, group, topic_id, 0, max_records=3, share_acquire_mode=1)


@probe("9.4")
def states_of_share_partitions(session: Session) -> Observations:
    """Initialize, read, write, summarize and delete a state at the share coordinator."""
    topic = new_topic(session, "t", 1)
    topic_id = session.topic_id(topic)
    group = queue(session, "g")
    settle(session, group, topic)
    other = session.name("by hand")

    def read(epoch: int) -> m.ReadShareGroupStateResponse:
        cls = m.ReadShareGroupStateRequest
        partition = cls.PartitionData(partition=0, leader_epoch=epoch)
        topics = [cls.ReadStateData(topic_id=topic_id, partitions=[partition])]
        return session.ask(cls(group_id=other, topics=topics), 0)

    def write(
        epoch: int, leader: int, start: int, *batches: tuple[int, int, int, int], version: int = 1
    ) -> m.WriteShareGroupStateResponse:
        cls = m.WriteShareGroupStateRequest
        partition = cls.PartitionData(
            partition=0,
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            state_batches=[
                cls.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ],
        )
        topics = [cls.WriteStateData(topic_id=topic_id, partitions=[partition])]
        return session.ask(cls(group_id=other, topics=topics), version)

    def initialize(epoch: int, start: int) -> m.InitializeShareGroupStateResponse:
        cls = m.InitializeShareGroupStateRequest
        partition = cls.PartitionData(partition=0, state_epoch=epoch, start_offset=start)
        topics = [cls.InitializeStateData(topic_id=topic_id, partitions=[partition])]
        return session.ask(cls(group_id=other, topics=topics), 0)

    def summary(version: int) -> m.ReadShareGroupStateSummaryResponse:
        cls = m.ReadShareGroupStateSummaryRequest
        partition = cls.PartitionData(partition=0, leader_epoch=-1)
        topics = [cls.ReadStateSummaryData(topic_id=topic_id, partitions=[partition])]
        return session.ask(cls(group_id=other, topics=topics), version)

    def delete() -> m.DeleteShareGroupStateResponse:
        cls = m.DeleteShareGroupStateRequest
        partition = cls.PartitionData(partition=0)
        topics = [cls.DeleteStateData(topic_id=topic_id, partitions=[partition])]
        return session.ask(cls(group_id=other, topics=topics), 0)

    yield "summary of nothing", summary(1)
    yield "initialized", initialize(3, 2)
    yield "older state", initialize(2, 2)
    yield "read", read(1)
    yield "written", write(3, 1, 4, (4, 9, 0, 1), (6, 6, 2, 1))
    yield "older leader", write(3, 0, 4)
    yield "older state epoch", write(2, 1, 4)
    yield "by version 0", write(3, 1, 5, (5, 5, 4, 2), version=0)
    yield "read again", read(1)
    yield "read by an older leader", read(0)
    yield "summary", summary(1)
    yield "summary of version 0", summary(0)
    yield "deleted", delete()
    yield "deleted twice", delete()


@probe("9.5")
def starts_of_share_groups(session: Session) -> Observations:
    """Describe, set and delete the starts of share groups with members and without."""
    topic = new_topic(session, "t", 2)
    session.produce(topic, encode_batch([NewRecord(T0, b"k", b"v") for _ in range(5)]))
    group = queue(session, "g")
    epoch = settle(session, group, topic)
    alter, delete = m.AlterShareGroupOffsetsRequest, m.DeleteShareGroupOffsetsRequest
    described = m.DescribeShareGroupOffsetsRequest
    describe = described(
        groups=[
            described.DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None)
            for each in (group, session.name("none"))
        ]
    )
    starts = alter(
        group_id=group,
        topics=[
            alter.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    alter.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=3
                    )
                    for index in (0, 7)
                ],
            )
        ],
    )
    names = [delete.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    yield "described", session.ask(describe, 1)
    yield "not set", session.ask(starts, 0)
    yield "not deleted", session.ask(delete(group_id=group, topics=names), 0)
    heartbeat(session, group, member_epoch=-1)
    yield "epoch", epoch
    yield "set", session.ask(starts, 0)
    yield "described with a start", session.ask(describe, 1)
    yield "described by version 0", session.ask(describe, 0)
    yield "deleted", session.ask(delete(group_id=group, topics=names), 0)
    yield "described without", session.ask(describe, 1)
    yield "unknown", session.ask(delete(group_id=session.name("none"), topics=names), 0)


@probe("9.6")
def dead_letters_of_share_groups(session: Session) -> Observations:
    """Reject records and use up their deliveries, with and without a topic that takes letters."""
    takes = {"errors.deadletterqueue.group.enable": "true"}
    source, plain = new_topic(session, "t", 1), session.topic("plain")
    letters = session.topic("letters", 2, takes)
    topic_id = session.topic_id(source)
    records = [NewRecord(T0, b"k", b"v%d" % number, [("h", b"x")]) for number in range(9)]
    session.produce(source, encode_batch(records))
    group = queue(session, "g")

    def configure(**values: str) -> m.IncrementalAlterConfigsResponse:
        names = {
            "topic": "errors.deadletterqueue.topic.name",
            "copy": "errors.deadletterqueue.copy.record.enable",
            "limit": "share.delivery.count.limit",
        }
        changes = [(SET, names[name], value) for name, value in values.items()]
        return change(session, group, *changes, kind=GROUP)

    def written() -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        found = [
            (index, record.key, record.value, list(record.headers))
            for index in range(2)
            for answer in [fetch(session, letters, partition(index))]
            for batch in split_batches(bytes(answer.responses[0].partitions[0].records or b""))
            for record in batch.records()
        ]
        return sorted(found, key=lambda each: dict(each[3])["__dlq.errors.offset"] or b"")

    def set_prefix(*changes: tuple[int, str, str | None]) -> None:
        change(session, "", *changes, kind=BROKER)
        wanted = changes[0][2] or "dlq."

        def is_set() -> bool:
            return describe(session, NODE, [prefix], BROKER).results[0].configs[0].value == wanted

        wait_for(is_set, f"the prefix is {wanted}")

    prefix = "errors.deadletterqueue.topic.name.prefix"
    yield "internal", configure(topic="__letters")
    yield "no boolean", configure(copy="maybe")
    yield "configured", configure(topic=letters, limit="2")
    settle(session, group, source)
    wait_for(lambda: bool(_fetch(session, group, topic_id, 0).responses), "records are acquired")
    yield "lost by the name", _acknowledge(session, group, topic_id, 1, (0, 0, [3]))
    set_prefix((SET, prefix, session.name("")))
    try:
        configure(topic=plain)
        yield "lost by the topic", _acknowledge(session, group, topic_id, 2, (1, 1, [3]))
        configure(topic=letters)
        yield "rejected", _acknowledge(session, group, topic_id, 3, (2, 3, [3]), (4, 4, [1]))
        wait_for(lambda: len(written()) == 2, "both letters are written")
        yield "letters", written()
        configure(copy="true")
        yield "released", _acknowledge(session, group, topic_id, 4, (5, 6, [2]), (7, 7, [3]))
        wait_for(lambda: len(written()) == 3, "the copy is written")
        yield "delivered again", _fetch(session, group, topic_id, 5)
        yield "used up", _acknowledge(session, group, topic_id, 6, (5, 6, [2]), (8, 8, [1]))
        wait_for(lambda: len(written()) == 5, "all letters are written")
        yield "all letters", written()
        yield "archived", _fetch(session, group, topic_id, 7)
        yield "no letters of the first", session.end_offsets(plain, 1)
    finally:
        set_prefix((DELETE, prefix, None))
