"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from kohort.protocol.messages import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kohort.records import Compression
from tests.conformance.probe import Observations, probe
from tests.conformance.session import T0, Session, batch

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100)


def list_offsets(
    session: Session,
    topic: str,
    timestamp: int,
    version: int = 11,
    *,
    partition: int = 0,
    epoch: int = -1,
    isolation: int = 0,
) -> ListOffsetsResponse:
    asked = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])],
        timeout_ms=10_000 if version >= 10 else 0,
    )
    return session.ask(request, version)


def delete_records(session: Session, topic: str, offset: int, partition: int = 0) -> int:
    """Delete records and return the log's start."""
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    named = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])
    answer = session.ask(DeleteRecordsRequest(topics=[named], timeout_ms=10_000), 2)
    return answer.topics[0].partitions[0].low_watermark


def _filled(session: Session) -> str:
    """Create ten records in three batches, with times in no order. The first two are deleted."""
    topic = session.topic()
    session.produce(
        topic,
        batch(b"0", b"1", b"2"),
        batch(b"3", b"4", b"5", b"6", timestamps=(T0 + 50, T0 + 90, T0 + 70, T0 + 60)),
        batch(b"7", b"8", b"9", timestamps=(T0 + 10, T0 + 90, T0 + 20)),
    )
    assert delete_records(session, topic, 2) == 2
    return topic


@probe("2.10a")
def special_timestamps(session: Session) -> Observations:
    """Send the timestamps of end, start, largest timestamp and tiers, in every version."""
    topic = _filled(session)
    for version in range(1, 12):
        for timestamp in SPECIAL:
            answer = list_offsets(session, topic, timestamp, version)
            yield f"{timestamp}, version {version}", answer


@probe("2.10a")
def special_timestamps_of_an_empty_partition(session: Session) -> Observations:
    """Send the special timestamps for a partition that never had records."""
    topic = session.topic()
    for timestamp in (*SPECIAL, 0, T0):
        yield f"{timestamp}", list_offsets(session, topic, timestamp)


@probe("2.10a")
def special_timestamps_after_everything_was_deleted(session: Session) -> Observations:
    """Send the special timestamps where the log's start is its end."""
    topic = _filled(session)
    yield "start", delete_records(session, topic, 10)
    for timestamp in (*SPECIAL, 0, T0):
        yield f"{timestamp}", list_offsets(session, topic, timestamp)


@probe("2.10b")
def offsets_by_time(session: Session) -> Observations:
    """Look up the first record at a time or later. There may be none."""
    topic = _filled(session)
    for delta in (-(10**9), -1, 0, 1, 2, 3, 10, 20, 50, 55, 60, 61, 70, 71, 90, 91, 10**12):
        yield f"+{delta}", list_offsets(session, topic, T0 + delta)
    for version in (1, 3, 4, 5, 6):
        yield f"version {version}", list_offsets(session, topic, T0 + 55, version)


@probe("2.10b")
def offsets_by_time_in_compressed_batches(session: Session) -> Observations:
    """Look up a record inside a compressed batch."""
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY):
        topic = session.topic(codec.name)
        session.produce(
            topic,
            batch(b"0", b"1", b"2", compression=codec),
            batch(b"3", b"4", b"5", timestamps=(T0 + 9, T0 + 7, T0 + 8), compression=codec),
        )
        for delta in (0, 1, 2, 3, 8, 9, 10):
            yield f"{codec.name} +{delta}", list_offsets(session, topic, T0 + delta)
        yield f"{codec.name} largest", list_offsets(session, topic, -3)


@probe("2.10b")
def offsets_by_time_of_appending(session: Session) -> Observations:
    """Look up times with LogAppendTime. The broker's clock counts, not the producer's times."""
    topic = session.topic(configs={"message.timestamp.type": "LogAppendTime"})
    session.produce(topic, batch(b"0", b"1"), batch(b"2"))
    for timestamp in (0, T0, T0 + 1, T0 * 2, -1, -2):
        yield f"{timestamp}", list_offsets(session, topic, timestamp)
    # If both requests have the same millisecond, the first record has the largest time.
    yield "largest", list_offsets(session, topic, -3).topics[0].partitions[0].timestamp


@probe("2.10c")
def epochs_of_list_offsets(session: Session) -> Observations:
    """Send an epoch that the leader does not know: error 75. The epoch -1 is not compared."""
    topic = _filled(session)
    for version in (4, 6, 11):
        for epoch in (-1, 0, 1, 9):
            for timestamp in (-1, -2, -3, T0):
                if timestamp == -3 and version < 7:
                    continue
                answer = list_offsets(session, topic, timestamp, version, epoch=epoch)
                yield f"epoch {epoch}, {timestamp}, version {version}", answer


@probe("2.10d")
def offsets_of_unknown_partitions(session: Session) -> Observations:
    """Look up unknown topics and partitions, and one of them twice."""
    topic = session.topic()
    for version in (1, 4, 11):
        yield f"topic {version}", list_offsets(session, "no-such-topic", -1, version)
        yield f"partition {version}", list_offsets(session, topic, -1, version, partition=3)
        yield f"invalid {version}", list_offsets(session, "bad topic!", -1, version)
        yield f"negative {version}", list_offsets(session, topic, -1, version, partition=-1)
    asked = ListOffsetsRequest.ListOffsetsPartition(timestamp=-1)
    named = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked, asked])
    yield "twice", session.ask(ListOffsetsRequest(replica_id=-1, topics=[named]), 6)
    yield "nothing", session.ask(ListOffsetsRequest(replica_id=-1), 6)


@probe("2.10d")
def offsets_of_a_topic_twice(session: Session) -> Observations:
    """Look up a topic twice, with the same partition and with another one."""
    topic, other = session.topic(partitions=2), session.topic("other")
    cls = ListOffsetsRequest
    for label, asked in (
        ("same", [(topic, 0), (topic, 0)]),
        ("different", [(topic, 0), (topic, 1)]),
        ("apart", [(topic, 0), (other, 0), (topic, 0), (topic, 1)]),
    ):
        topics = [
            cls.ListOffsetsTopic(
                name=name,
                partitions=[cls.ListOffsetsPartition(partition_index=index, timestamp=-1)],
            )
            for name, index in asked
        ]
        yield label, session.ask(cls(replica_id=-1, topics=topics), 6)


@probe("2.10a")
def unknown_isolation_levels_of_list_offsets(session: Session) -> Observations:
    """Send an isolation level that is neither read_uncommitted nor read_committed."""
    topic = session.topic()
    for version in (2, 5, 11):
        for isolation in (2, -1, 127):
            answer = list_offsets(session, topic, -1, version, isolation=isolation)
            yield f"version {version} {isolation}", answer


@probe("2.10d")
def offsets_of_several_topics(session: Session) -> Observations:
    """Look up known and unknown topics together."""
    topics = [session.topic("b"), session.name("none"), session.topic("a")]
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name, partitions=[ListOffsetsRequest.ListOffsetsPartition(timestamp=-1)]
            )
            for name in topics
        ],
    )
    yield "answer", session.ask(request, 6)


@probe("2.10a")
def isolation_without_transactions(session: Session) -> Observations:
    """Look up the end with read_committed without transactions. It is the same."""
    topic = _filled(session)
    for timestamp in (-1, -2, T0 + 55, 2 * T0):
        yield f"{timestamp}", list_offsets(session, topic, timestamp, isolation=1)


def offset_for_epoch(
    session: Session, topic: str, epoch: int, current: int = -1, version: int = 4, index: int = 0
) -> OffsetForLeaderEpochResponse:
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=epoch
    )
    named = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])
    return session.ask(
        OffsetForLeaderEpochRequest(replica_id=-1 if version >= 3 else -2, topics=[named]), version
    )


@probe("6.6g")
def ends_of_epochs(session: Session) -> Observations:
    """Read the ends of known, later and negative epochs, in each version."""
    topic = _filled(session)
    for version in (2, 3, 4):
        for epoch in (0, 1, 5, -1, -2):
            answer = offset_for_epoch(session, topic, epoch, version=version)
            yield f"epoch {epoch}, version {version}", answer


@probe("6.6g")
def ends_of_epochs_of_an_empty_partition(session: Session) -> Observations:
    """Read the end of an epoch without records, which is the end of the log."""
    topic = session.topic()
    for epoch in (0, 1, -1):
        yield f"epoch {epoch}", offset_for_epoch(session, topic, epoch)


@probe("6.6g")
def ends_of_epochs_with_a_current_one(session: Session) -> Observations:
    """Send the client's current epoch, which is compared as in other APIs."""
    topic = _filled(session)
    for current in (-1, 0, 1, 7):
        yield f"current {current}", offset_for_epoch(session, topic, 0, current)


@probe("6.6g")
def ends_of_epochs_of_unknown_partitions(session: Session) -> Observations:
    """Read ends for unknown topics and partitions: error 3."""
    topic = session.topic()
    for version in (2, 4):
        answer = offset_for_epoch(session, "no-such-topic", 0, version=version)
        yield f"topic {version}", answer
        yield f"partition {version}", offset_for_epoch(session, topic, 0, version=version, index=5)
