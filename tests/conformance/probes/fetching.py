"""Fetch: records, waiting, size limits, and errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kohort.protocol import encode_request
from kohort.protocol.messages import DeleteTopicsRequest, FetchRequest, FetchResponse
from kohort.records import Compression
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.list_offsets import delete_records
from tests.conformance.session import Session, batch, produce_request
from tests.conformance.wire import FAR_MS

STRANGE_ID = bytes(range(16))
MAX = 1 << 20


def partition(
    index: int = 0, offset: int = 0, max_bytes: int = MAX, **other: Any
) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **other
    )


def fetch_request(
    topics: Sequence[tuple[str | bytes, Sequence[FetchRequest.FetchPartition]]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MAX,
    **other: Any,
) -> FetchRequest:
    """Return a fetch request. ``topics`` has names (or ids from version 13) and
    partitions to read.
    """
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.FetchTopic(topic=topic, partitions=list(partitions))
            if isinstance(topic, str)
            else FetchRequest.FetchTopic(topic_id=topic, partitions=list(partitions))
            for topic, partitions in topics
        ],
        **other,
    )


def fetch(
    session: Session,
    topic: str | bytes,
    *partitions: FetchRequest.FetchPartition,
    version: int = 12,
    **other: int,
) -> FetchResponse:
    request = fetch_request([(topic, partitions or (partition(),))], **other)
    return session.ask(request, version)


def _filled(session: Session) -> str:
    """Create a topic with offsets 0 to 9 in three batches. Offsets 0 and 1 are deleted."""
    topic = session.topic()
    session.produce(
        topic,
        batch(b"0", b"1", b"2"),
        batch(b"3", b"4", b"5", b"6"),
        batch(b"7", b"8", b"9"),
    )
    assert delete_records(session, topic, 2) == 2
    return topic


@probe("2.11a")
def fetch_in_every_version(session: Session) -> Observations:
    """Fetch the same records by name, and by id from version 13 on."""
    topic = _filled(session)
    topic_id = session.topic_id(topic)
    for version in range(4, 19):
        named: str | bytes = topic if version < 13 else topic_id
        yield f"version {version}", fetch(session, named, partition(0, 2), version=version)


@probe("2.11a")
def offsets_out_of_range(session: Session) -> Observations:
    """Fetch out of range and at the end: error 1 or none, and empty records, which are not null."""
    topic = _filled(session)
    topic_id = session.topic_id(topic)
    for version in (4, 5, 7, 11, 12, 17):
        named: str | bytes = topic if version < 13 else topic_id
        for offset in (0, 1, 10, 11, 10**12, -1, -5):
            yield (
                f"offset {offset}, version {version}",
                fetch(session, named, partition(0, offset), version=version),
            )


@probe("2.11h")
def batches_are_returned_whole(session: Session) -> Observations:
    """Fetch from the middle of a batch, which is returned from its beginning."""
    topic = _filled(session)
    for offset in (2, 3, 4, 6, 7, 9):
        yield f"offset {offset}", fetch(session, topic, partition(0, offset))


@probe("2.11b", slow=True)
def fetches_wait_at_the_end(session: Session) -> Observations:
    """Fetch at the end of the log, which takes max_wait_ms at least."""
    topic = _filled(session)
    for wait in (0, 300, 600):
        begin = time.monotonic()
        answer = fetch(session, topic, partition(0, 10), max_wait_ms=wait)
        took = time.monotonic() - begin
        yield f"after {wait}", answer
        yield f"waited {wait}", took >= wait / 1000 - 0.01


@probe("2.11b", slow=True)
def fetches_wait_for_min_bytes(session: Session) -> Observations:
    """Fetch less than min_bytes, which waits and then returns what is available."""
    topic = _filled(session)
    begin = time.monotonic()
    yield "answer", fetch(session, topic, partition(0, 2), max_wait_ms=400, min_bytes=100_000)
    yield "waited", time.monotonic() - begin >= 0.39


@probe("2.11b")
def fetches_that_do_not_wait(session: Session) -> Observations:
    """Fetch with min_bytes 0, with enough data, and with errors. All return before max_wait_ms."""
    topic = _filled(session)
    for label, where, min_bytes in (
        ("nothing asked for", partition(0, 10), 0),
        ("data", partition(0, 2), 1),
        ("enough data", partition(0, 2), 100),
        ("out of range", partition(0, 99), 1),
        ("unknown partition", partition(5, 0), 1),
        ("wrong epoch", partition(0, 10, current_leader_epoch=5), 1),
    ):
        yield label, fetch(session, topic, where, max_wait_ms=FAR_MS, min_bytes=min_bytes)


@probe("2.11b")
def nothing_to_fetch_does_not_wait(session: Session) -> Observations:
    """Fetch without partitions, and with an unknown topic among others, which waits for those."""
    topic = _filled(session)
    yield "no topics", session.ask(fetch_request([], max_wait_ms=FAR_MS), 11)
    request = fetch_request(
        [(topic, [partition(0, 10)]), ("no-such-topic", [partition()])], max_wait_ms=400
    )
    begin = time.monotonic()
    yield "unknown", session.ask(request, 11)
    yield "waited", time.monotonic() - begin >= 0.39


@probe("6.6a")
def producing_wakes_a_fetch(session: Session) -> Observations:
    """Produce while a fetch waits. It returns when there is enough on any of its partitions."""
    topic = session.topic(partitions=3)
    for index, acks in ((0, -1), (1, 1), (2, 0)):
        waiting = session.connect()
        where = [partition(other, int(other < index)) for other in range(3)]
        waiting.send(fetch_request([(topic, where)], max_wait_ms=FAR_MS), 12)
        yield f"waits {index}", waiting.is_parked()
        produced = session.connect()
        produced.send_bytes(
            b"".join(
                encode_request(produce_request(topic, batch(b"x"), index, acks), 9, 1, "probe")
            )
        )
        yield f"woken {index}", waiting.receive()


@probe("6.6a")
def a_fetch_waits_for_enough(session: Session) -> Observations:
    """Append several times until all together reach min_bytes."""
    topic = session.topic()
    waiting = session.connect()
    request = fetch_request([(topic, [partition()])], max_wait_ms=FAR_MS, min_bytes=150)
    waiting.send(request, 12)
    session.produce(topic, batch(b"a"))
    yield "not yet", waiting.is_parked()
    session.produce(topic, batch(b"b"), batch(b"c"))
    yield "enough", waiting.receive()


@probe("2.11c")
def epochs_of_fetches(session: Session) -> Observations:
    """Send an epoch that the leader does not know: error 75 in each version that has the field."""
    topic = _filled(session)
    topic_id = session.topic_id(topic)
    for version in (9, 11, 12, 13, 16, 18):
        named: str | bytes = topic if version < 13 else topic_id
        for epoch in (-1, 0, 1, 9):
            yield (
                f"epoch {epoch}, version {version}",
                fetch(session, named, partition(0, 3, current_leader_epoch=epoch), version=version),
            )


@probe("2.11c")
def epochs_and_offsets_both_wrong(session: Session) -> Observations:
    """Send a wrong epoch and a wrong offset together."""
    topic = _filled(session)
    for offset in (0, 99):
        yield (
            f"offset {offset}",
            fetch(session, topic, partition(0, offset, current_leader_epoch=5)),
        )


@probe("2.11d")
def fetched_epochs(session: Session) -> Observations:
    """Send the epoch of the last record fetched (version 12), matching or not."""
    topic = _filled(session)
    for epoch in (-1, 0, 1, 5):
        for offset in (3, 10, 11):
            yield (
                f"epoch {epoch}, offset {offset}",
                fetch(session, topic, partition(0, offset, last_fetched_epoch=epoch)),
            )


@probe("2.11e")
def fetches_of_unknown_partitions(session: Session) -> Observations:
    """Fetch unknown partitions: error 3 by name, 100 by id."""
    topic = _filled(session)
    topic_id = session.topic_id(topic)
    for version in (4, 7, 12):
        yield f"topic {version}", fetch(session, "no-such-topic", version=version)
        yield f"partition {version}", fetch(session, topic, partition(4), version=version)
        yield f"name {version}", fetch(session, "bad topic!", version=version)
    for version in (13, 15, 18):
        yield f"id {version}", fetch(session, STRANGE_ID, version=version)
        yield f"no id {version}", fetch(session, bytes(16), version=version)
        yield f"partition {version}", fetch(session, topic_id, partition(4), version=version)


@probe("2.11e")
def fetches_of_known_and_unknown(session: Session) -> Observations:
    """Fetch known and unknown partitions. One response has all, in the order of the request."""
    topics = [session.topic("b", 2), session.name("none"), session.topic("a")]
    for name in (topics[0], topics[2]):
        session.produce(name, batch(b"x"))
    request = fetch_request(
        [
            (topics[0], [partition(1), partition(0), partition(7)]),
            (topics[1], [partition(0)]),
            (topics[2], [partition(0)]),
        ]
    )
    yield "answer", session.ask(request, 11)


@probe("2.11f")
def aborted_transactions_of_none(session: Session) -> Observations:
    """Fetch without transactions: null for read_uncommitted, an empty list for read_committed."""
    topic = _filled(session)
    topic_id = session.topic_id(topic)
    for version in (4, 11, 12, 18):
        named: str | bytes = topic if version < 13 else topic_id
        for isolation in (0, 1):
            for label, where in (
                ("data", partition(0, 3)),
                ("end", partition(0, 10)),
                ("out of range", partition(0, 99)),
                ("unknown", partition(3, 0)),
            ):
                yield (
                    f"{label}, {isolation}, version {version}",
                    fetch(session, named, where, version=version, isolation_level=isolation),
                )


def _sized(session: Session, *sizes: int) -> str:
    """Create a partition with batches of one record of these sizes."""
    topic = session.topic()
    session.produce(topic, *(batch(b"v" * size) for size in sizes))
    return topic


@probe("2.11g", "6.6b")
def sizes_of_fetches(session: Session) -> Observations:
    """Limit max_bytes of the partition. The first batch is returned whatever its size."""
    topic = _sized(session, 500, 500, 500)
    size = 61 + 500 + 9  # of one batch: header, value, and the rest of the record
    for limit in (0, 1, 100, size - 1, size, size + 1, size + 100, 2 * size, 3 * size, 10 * size):
        yield f"partition {limit}", fetch(session, topic, partition(0, 0, limit))
        yield f"whole {limit}", fetch(session, topic, partition(0, 0), max_bytes=limit)
    yield "both", fetch(session, topic, partition(0, 0, 2 * size), max_bytes=size)
    yield "negative", fetch(session, topic, partition(0, 0, -1))


@probe("2.11g", "6.6b")
def sizes_of_fetches_over_partitions(session: Session) -> Observations:
    """Limit max_bytes of the response, which the partitions share in their order."""
    topic = session.topic(partitions=4)
    for index in (0, 1, 3):
        session.produce(topic, batch(b"v" * 300), batch(b"w" * 300), partition=index)
    for limit in (1, 400, 800, 1200, 1600, 10_000):
        for order in ((0, 1, 2, 3), (2, 3, 1, 0)):
            partitions = [partition(index, 0, 500) for index in order]
            yield f"{limit} {order}", fetch(session, topic, *partitions, max_bytes=limit)


@probe("2.11g")
def many_batches_come_at_once(session: Session) -> Observations:
    """Fetch many batches, which share a response however they were written."""
    topic = _sized(session, *[7_000] * 30)
    answer = fetch(session, topic, partition(0, 0))
    records = answer.responses[0].partitions[0].records
    yield "bytes", len(records or b"")
    yield "from the middle", fetch(session, topic, partition(0, 25))


@probe("2.11g")
def a_batch_larger_than_max_bytes_of_the_second_partition(session: Session) -> Observations:
    """Limit max_bytes below the second partition's first batch. Only the first one
    may exceed it.
    """
    topic = session.topic(partitions=2)
    session.produce(topic, batch(b"v" * 1000), partition=0)
    session.produce(topic, batch(b"v" * 1000), partition=1)
    for limits in ((10, 10), (5000, 10), (10, 5000), (0, 0)):
        partitions = [partition(index, 0, limit) for index, limit in enumerate(limits)]
        yield f"{limits}", fetch(session, topic, *partitions)


@probe("2.11a")
def fetches_with_a_rack(session: Session) -> Observations:
    """Send the client's rack where there is no other replica to prefer."""
    topic = _filled(session)
    request = fetch_request([(topic, [partition(0, 3)])])
    request.rack_id = "a"
    for version in (11, 12):
        yield f"version {version}", session.ask(request, version)


@probe("2.11a")
def fetches_of_another_cluster(session: Session) -> Observations:
    """Send a cluster id that is not this cluster's."""
    topic = _filled(session)
    request = fetch_request([(topic, [partition(0, 3)])])
    request.cluster_id = "somewhere-else"
    yield "version 12", session.ask(request, 12)


@probe("2.11f")
def unknown_isolation_levels_of_fetches(session: Session) -> Observations:
    """Send an isolation level that is neither read_uncommitted nor read_committed."""
    topic = _filled(session)
    topic_id = session.topic_id(topic)
    for version in (4, 6, 7, 12, 13, 18):
        named: str | bytes = topic if version < 13 else topic_id
        for isolation in (2, -1):
            answer = fetch(
                session,
                named,
                partition(0, 3),
                version=version,
                isolation_level=isolation,
                session_epoch=-1,
            )
            yield f"version {version} {isolation}", answer


@probe("2.11e", "6.6f")
def fetches_of_a_deleted_topic(session: Session) -> Observations:
    """Fetch from a topic while it is deleted and after that."""
    topic = session.topic()
    topic_id = session.topic_id(topic)
    session.produce(topic, batch(b"x"))
    waiting = session.connect()
    waiting.send(fetch_request([(topic_id, [partition(0, 1)])], max_wait_ms=FAR_MS), 13)
    yield "waits", waiting.is_parked()
    session.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    session.wait_until_gone(topic)
    yield "by id", fetch(session, topic_id, version=13)
    yield "by name", fetch(session, topic, version=12)


@probe("2.11e")
def fetches_that_wait_when_the_topic_is_deleted(session: Session) -> Observations:
    """Delete a topic while fetches wait. They end long before max_wait_ms, ten minutes."""
    for version in (12, 13):
        topic = session.topic(f"version-{version}")
        name = session.topic_id(topic) if version == 13 else topic
        session.produce(topic, batch(b"x"))
        waiting = session.connect()
        request = fetch_request([(name, [partition(0, 1)])], max_wait_ms=FAR_MS)
        waiting.send(request, version)
        yield f"version {version} waits", waiting.is_parked()
        session.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
        yield f"version {version}", waiting.receive()


@probe("2.13a")
def compressed_batches_are_fetched_as_they_are(session: Session) -> Observations:
    """Fetch batches of each codec, which return byte for byte unless the topic sets a codec."""
    for codec in Compression:
        topic = session.topic(codec.name)
        sent = batch(b"a" * 100, b"b" * 100, compression=codec)
        session.produce(topic, sent, sent)
        answer = fetch(session, topic)
        records = bytes(answer.responses[0].partitions[0].records or b"")
        yield codec.name, answer
        yield (
            f"{codec.name}: unchanged",
            records[16:] == sent[16:] + records[len(sent) :][:16] + sent[16:],
        )


@probe("2.11h")
def the_time_of_appending_in_fetches(session: Session) -> Observations:
    """Fetch batches with LogAppendTime, compressed or not."""
    topic = session.topic(configs={"message.timestamp.type": "LogAppendTime"})
    session.produce(topic, batch(b"0", b"1"), batch(b"2", b"3", compression=Compression.GZIP))
    yield "fetched", fetch(session, topic)
