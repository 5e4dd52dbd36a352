"""Produce: offsets, times, codecs, limits and refusals."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import cramjam

from kohort.protocol.messages import (
    ProduceRequest,
    ProduceResponse,
)
from kohort.records import Compression, NewRecord, crc32c, encode_batch
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch
from tests.conformance.probes.list_offsets import delete_records
from tests.conformance.session import T0, Session, batch, produce_request
from tests.conformance.wire import NEVER_S

STRANGE_ID = bytes(range(16))


def produce(
    session: Session,
    topic: str,
    records: bytes | None,
    version: int = 9,
    *,
    partition: int = 0,
    acks: int = -1,
) -> ProduceResponse:
    return session.ask(produce_request(topic, records, partition, acks), version)


@probe("3")
def produce_in_every_version(session: Session) -> Observations:
    """Produce by name, and by id in version 13. Offsets continue."""
    topic = session.topic()
    topic_id = session.topic_id(topic)
    for version in range(3, 14):
        request = produce_request(topic, batch(b"a", b"b"))
        if version == 13:
            request = produce_request("", batch(b"a", b"b"), topic_id=topic_id)
        yield f"version {version}", session.ask(request, version)
    yield "stored", fetch(session, topic)


@probe("3")
def acks(session: Session) -> Observations:
    """Produce with acks -1, 1 and invalid values."""
    topic = session.topic()
    for version in (3, 9, 12):
        for value in (-1, 1, 2, -2, 100):
            answer = produce(session, topic, batch(b"a"), version, acks=value)
            yield f"acks {value}, version {version}", answer
    yield "stored", session.end_offsets(topic, 1)


@probe("3")
def produce_to_unknown_partitions(session: Session) -> Observations:
    """Produce to unknown partitions: error 3 by name, 100 by id. An invalid name has its error."""
    topic = session.topic()
    topic_id = session.topic_id(topic)
    for version in (3, 7, 8, 12):
        yield f"topic {version}", produce(session, "no-such-topic", batch(b"a"), version)
        yield f"partition {version}", produce(session, topic, batch(b"a"), version, partition=4)
        yield f"negative {version}", produce(session, topic, batch(b"a"), version, partition=-1)
        yield f"invalid {version}", produce(session, "bad topic!", batch(b"a"), version)
    for label, called, index in (
        ("id", STRANGE_ID, 0),
        ("no id", bytes(16), 0),
        ("partition", topic_id, 4),
    ):
        request = produce_request("", batch(b"a"), index, topic_id=called)
        yield f"{label} 13", session.ask(request, 13)


@probe("3")
def produce_to_several_partitions(session: Session) -> Observations:
    """Produce to valid and invalid partitions in one request. Each has a separate response."""
    topics = [session.topic("b", 2), session.name("none"), session.topic("a")]
    data = ProduceRequest.PartitionProduceData
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[data(index=index, records=batch(b"x")) for index in (1, 0, 5)],
            )
            for name in topics
        ],
    )
    answer = session.ask(request, 9)
    yield (
        "answers",
        {
            topic.name: sorted(
                [found.index, found.error_code, found.base_offset]
                for found in topic.partition_responses
            )
            for topic in answer.responses
        },
    )
    yield "nothing", session.ask(ProduceRequest(acks=-1, timeout_ms=1000), 9)


@probe("3")
def internal_topics_are_not_produced_to(session: Session) -> Observations:
    """Produce to ``__consumer_offsets``."""
    session.group()
    yield "answer", produce(session, "__consumer_offsets", batch(b"a"))


@probe("2.13b")
def times_of_the_producer_and_of_the_broker(session: Session) -> Observations:
    """Produce with CreateTime and LogAppendTime. The response has the latter."""
    for kind in ("CreateTime", "LogAppendTime"):
        topic = session.topic(kind, configs={"message.timestamp.type": kind})
        for version in (3, 9):
            records = batch(b"a", b"b", timestamps=(T0 + 7, T0 + 3))
            yield f"{kind} {version}", produce(session, topic, records, version)
        for label, at in (("none", -1), ("zero", 0), ("old", 1000), ("later", T0 + 3_600_000)):
            yield f"{kind} {label}", produce(session, topic, batch(b"t", timestamps=(at,)))
        yield f"{kind} stored", fetch(session, topic)


@probe("2.13b")
def bounds_of_the_producers_times(session: Session) -> Observations:
    """Produce times too far from the broker's: error 32, record by record."""
    for setting in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        topic = session.topic(setting.split(".")[2], configs={setting: "86400000"})
        for label, times in (
            ("old", (T0, T0 + 1)),
            ("future", (T0 * 2,)),
            ("none", (-1,)),
        ):
            records = batch(*[b"x"] * len(times), timestamps=times)
            for version in (7, 9):
                yield f"{setting} {label} {version}", produce(session, topic, records, version)


@probe("2.13b")
def codecs_of_topics(session: Session) -> Observations:
    """Produce to topics with compression.type, which store all batches in that codec."""
    for kind in ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"):
        topic = session.topic(kind, configs={"compression.type": kind})
        for codec in (Compression.NONE, Compression.GZIP, Compression.ZSTD):
            sent = batch(b"a" * 100, b"b" * 100, compression=codec)
            yield f"{kind} {codec.name}", produce(session, topic, sent)
        yield f"{kind} stored", fetch(session, topic)


@probe("2.13b")
def codecs_and_times_of_topics(session: Session) -> Observations:
    """Produce to topics with a codec and the broker's time."""
    configs = {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}
    topic = session.topic(configs=configs)
    sent = batch(b"a" * 100, b"b" * 100, compression=Compression.GZIP)
    yield "produced", produce(session, topic, sent)
    yield "stored", fetch(session, topic)


@probe("2.13c")
def zstd_in_old_versions(session: Session) -> Observations:
    """Produce zstd batches: from version 7 on, before it error 76."""
    topic = session.topic()
    sent = batch(b"a", compression=Compression.ZSTD)
    for version in (3, 6, 7, 9):
        yield f"version {version}", produce(session, topic, sent, version)


@probe("2.13c")
def zstd_for_old_fetchers(session: Session) -> Observations:
    """Fetch zstd batches below version 10, which does not return them."""
    topic = session.topic()
    session.produce(topic, batch(b"a", compression=Compression.ZSTD))
    for version in (4, 9, 10, 11):
        yield f"version {version}", fetch(session, topic, version=version)


@probe("2.13d")
def batches_that_are_too_large(session: Session) -> Observations:
    """Produce batches larger than the topic's max.message.bytes: error 10."""
    topic = session.topic(configs={"max.message.bytes": "1000"})
    for size in (100, 929, 930, 931, 5000):
        for version in (7, 9):
            yield f"{size} {version}", produce(session, topic, batch(b"v" * size), version)
    sent = batch(b"v" * 100_000, compression=Compression.GZIP)
    yield "compressed", produce(session, topic, sent)
    yield "stored", session.end_offsets(topic, 1)


def _patched(sent: bytes, at: int, fmt: str, value: int, *, crc: bool = True) -> bytes:
    """Return a batch with one changed field in its header, with a correct checksum if requested."""
    data = bytearray(sent)
    struct.pack_into(fmt, data, at, value)
    if crc:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def _old_messages(sent: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield messages of the formats before Kafka 0.11."""
    for magic in (0, 1):
        body = bytes([magic, 0]) + bytes(8 * magic) + struct.pack(">ii5s", -1, 5, b"hello")
        one = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
        yield f"format {magic}", one
        yield f"two of format {magic}", one + one
        yield f"format {magic} with a wrong checksum", one[:-1] + b"x"
        yield f"format {magic} cut short", one[:-3]
        yield f"format {magic} with a size of 5", _patched(one, 8, ">i", 5, crc=False)
        yield f"format {magic} before a batch", one + sent
        yield f"format {magic} behind a batch", sent + one


@probe("2.13e")
def corrupt_batches(session: Session) -> Observations:
    """Produce wrong checksums, lengths and magics."""
    topic = session.topic()
    sent = batch(b"hello", b"world")
    flipped = bytearray(sent)
    flipped[-2] ^= 0xFF
    for label, data in (
        ("checksum", bytes(flipped)),
        ("wrong checksum", _patched(sent, 17, ">I", 1, crc=False)),
        ("length too small", _patched(sent, 8, ">i", 10, crc=False)),
        ("length too large", _patched(sent, 8, ">i", len(sent), crc=False)),
        ("magic 3", _patched(sent, 16, ">b", 3, crc=False)),
        ("cut short", sent[:-3]),
        ("half a header", sent[:30]),
        ("a byte behind it", sent + b"\0"),
        ("two batches", sent + sent),
        ("nothing", b""),
        *_old_messages(sent),
    ):
        for version in (7, 9):
            connection = session.connect()
            connection.send(produce_request(topic, data), version)
            yield f"{label} {version}", connection.outcome_of_response()
    yield "stored", session.end_offsets(topic, 1)


@probe("2.13e", slow=True)
def null_for_records(session: Session) -> Observations:
    """Produce null as the records of a partition, which never gets a response."""
    connection = session.connect()
    connection.send(produce_request(session.topic(), None), 9)
    yield "never", connection.is_parked(NEVER_S)


@probe("2.13e")
def batches_that_lie(session: Session) -> Observations:
    """Produce counts, deltas and flags that a producer must not send."""
    topic = session.topic()
    sent = batch(b"hello", b"world")
    for label, data in (
        ("more records", _patched(sent, 57, ">i", 3)),
        ("fewer records", _patched(sent, 57, ">i", 1)),
        ("no records", _patched(sent, 57, ">i", 0)),
        ("negative count", _patched(sent, 57, ">i", -1)),
        ("last delta", _patched(sent, 23, ">i", 5)),
        ("base offset", _patched(sent, 0, ">q", 99, crc=False)),
        ("leader epoch", _patched(sent, 12, ">i", 99, crc=False)),
        ("control", _patched(sent, 21, ">h", 0x20)),
        ("transactional", _patched(sent, 21, ">h", 0x10)),
        ("unknown codec", _patched(sent, 21, ">h", 7)),
        ("unknown flag", _patched(sent, 21, ">h", 0x80)),
        ("broker's time", _patched(sent, 21, ">h", 0x08)),
        ("delete horizon", _patched(sent, 21, ">h", 0x40)),
        ("deltas with a gap", batch(b"a", b"b", offset_deltas=[0, 2])),
        ("deltas from 1", batch(b"a", b"b", offset_deltas=[1, 2])),
        ("max timestamp", batch(b"a", b"b", max_timestamp=T0 + 99)),
        ("epoch alone", batch(b"a", producer_epoch=3)),
        ("sequence alone", batch(b"a", base_sequence=0)),
    ):
        connection = session.connect()
        connection.send(produce_request(topic, data), 9)
        yield label, connection.outcome_of_response()
    yield "stored", fetch(session, topic)


@probe("2.13e")
def records_that_cannot_be_read(session: Session) -> Observations:
    """Produce malformed records under a correct checksum."""
    topic = session.topic()
    body = bytearray(batch(b"hello", b"world"))
    body[61] = 0x7F  # the length of the first record
    yield "record length", produce(session, topic, _patched(bytes(body), 23, ">i", 1))
    compressed = bytearray(batch(b"hello", b"world", compression=Compression.GZIP))
    compressed[70:74] = b"\0\1\2\3"
    yield "compressed", produce(session, topic, _patched(bytes(compressed), 23, ">i", 1))
    yield "stored", session.end_offsets(topic, 1)


@probe("2.13e")
def compacted_topics_want_keys(session: Session) -> Observations:
    """Produce records without a key to a compacted topic: error 87 with their indexes."""
    topic = session.topic(configs={"cleanup.policy": "compact"})
    keyed = NewRecord(T0, b"k", b"v")
    unkeyed = NewRecord(T0, None, b"v")
    for label, records in (
        ("all", [keyed, keyed]),
        ("some", [keyed, unkeyed, keyed, unkeyed]),
        ("none", [unkeyed]),
        ("tombstone", [NewRecord(T0, b"k", None)]),
    ):
        for version in (7, 8, 9):
            answer = produce(session, topic, encode_batch(records), version)
            yield f"{label} {version}", answer


@probe("2.13a")
def records_of_all_shapes(session: Session) -> Observations:
    """Produce null and empty keys and values, headers, null headers and repeated ones."""
    topic = session.topic()
    records = [
        NewRecord(T0, None, None),
        NewRecord(T0, b"", b""),
        NewRecord(T0 + 1, b"k", b"v", [("h", b"1"), ("h", None), ("", b"")]),
        NewRecord(T0 - 5, b"k", b"v" * 300, [("é", b"\xff")]),
    ]
    yield "produced", produce(session, topic, encode_batch(records))
    yield "stored", fetch(session, topic)


@probe("2.13a")
def snappy_in_both_framings(session: Session) -> Observations:
    """Produce snappy as Java frames it, and as one raw block. Both are stored unchanged."""
    topic = session.topic()
    plain = batch(b"a" * 100, b"b" * 100)
    framed = batch(b"a" * 100, b"b" * 100, compression=Compression.SNAPPY)
    raw = framed[:61] + bytes(cramjam.snappy.compress_raw(plain[61:]))
    raw = _patched(raw, 8, ">i", len(raw) - 12)
    for label, sent in (("framed", framed), ("raw", raw)):
        yield label, produce(session, topic, sent)
    records = fetch(session, topic).responses[0].partitions[0].records
    yield "raw block unchanged", bytes(records or b"").endswith(raw[21:])
    yield "stored", fetch(session, topic)


@probe("2.13a")
def sequences_without_a_producer(session: Session) -> Observations:
    """Produce base sequence 0 with producer id -1, as some clients write it."""
    topic = session.topic()
    sent = batch(b"a", base_sequence=0)
    yield "produced", produce(session, topic, sent, 7)
    yield "again", produce(session, topic, sent, 7)
    yield "stored", fetch(session, topic)


@probe("2.13a")
def the_logs_start_in_answers(session: Session) -> Observations:
    """Read the log's start from the response, from version 5 on."""
    topic = session.topic()
    session.produce(topic, batch(b"a", b"b"))
    delete_records(session, topic, 1)
    for version in (4, 5, 9):
        yield f"version {version}", produce(session, topic, batch(b"c"), version)
