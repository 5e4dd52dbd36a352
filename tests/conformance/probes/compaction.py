"""Effects of compaction and retention on a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kohort.protocol.messages import IncrementalAlterConfigsRequest
from kohort.records import Compression, NewRecord, encode_batch, split_batches
from tests.conformance.clusters import RETENTION_CHECK_MS
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch
from tests.conformance.probes.idempotence import Producer
from tests.conformance.probes.list_offsets import list_offsets
from tests.conformance.session import READY_S, T0, Session
from tests.conformance.transacting import end, fetched, producer

LATER = T0 + (1 << 41)
"""Time long after everything else. A batch of that time begins a new segment."""
TOPIC = 2
KeyValue = tuple[bytes, bytes | None]


def _batch(
    *pairs: KeyValue, at: int = T0, compression: Compression = Compression.NONE, **header: Any
) -> bytes:
    records = [NewRecord(at + index, *pair) for index, pair in enumerate(pairs)]
    return encode_batch(records, compression=compression, **header)


def _new_topic(session: Session, label: str = "t") -> str:
    """Create a topic that is not compacted yet, so that one round compacts all."""
    return session.topic(label, 1, {"segment.ms": "1", "min.cleanable.dirty.ratio": "0"})


def _offsets(session: Session, topic: str) -> list[int]:
    """Return the offsets of existing records, up to the end of the first segment at least."""
    records = fetch(session, topic, session_epoch=-1).responses[0].partitions[0].records or b""
    return [record.offset for found in split_batches(records) for record in found.records()]


def set_config(session: Session, topic: str, name: str, value: str) -> None:
    cls = IncrementalAlterConfigsRequest
    config = cls.AlterableConfig(name=name, config_operation=0, value=value)
    asked = cls.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
    answer = session.ask(cls(resources=[asked]), 1)
    assert answer.responses[0].error_code == 0, answer


def _compact(session: Session, topic: str, gone: int) -> None:
    """Return after one round, when there is no record at the offset ``gone``.

    The batch that this function writes last is in a segment that is not compacted.
    """
    session.produce(topic, _batch((b"last", b""), at=LATER))
    set_config(session, topic, "cleanup.policy", "compact")
    if session.target.compact is not None:
        session.target.compact(topic)
    deadline = time.monotonic() + READY_S
    while gone in _offsets(session, topic):
        assert time.monotonic() < deadline, f"{topic} is not compacted"
        time.sleep(0.02)


def _all(session: Session, topic: str) -> Observations:
    """Yield everything that is left. Kafka ends a fetch at the end of a segment."""
    offset = list_offsets(session, topic, -2).topics[0].partitions[0].offset
    last = session.end_offsets(topic, 1)[0]
    left = b""
    aborted: dict[int, object] = {}
    while offset < last:
        answer = fetched(session, topic, offset).responses[0].partitions[0]
        aborted |= {one.first_offset: one for one in answer.aborted_transactions or ()}
        records = bytes(answer.records or b"")
        left += records
        offset = max(found.header.next_offset for found in split_batches(records))
    yield "batches", {"records": left}
    yield "aborted", list(aborted.values())


def _filled(session: Session, batches: Sequence[bytes], gone: int, label: str = "t") -> str:
    topic = _new_topic(session, label)
    session.produce(topic, *batches)
    _compact(session, topic, gone)
    return topic


@probe("2.14a", slow=True)
def compaction_keeps_the_last_of_each_key(session: Session) -> Observations:
    """Keep the last record of each key. Batches keep their offsets, compressed ones, too."""
    for codec in (Compression.NONE, Compression.GZIP):
        batches = [
            _batch((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), compression=codec),
            _batch((b"a", b"4"), (b"d", b"5"), compression=codec),
            _batch((b"e", b"6"), (b"d", b"7"), (b"e", b"8"), compression=codec),
            _batch((b"f", b"9"), (b"f", b"10"), (b"f", b"11"), compression=codec),
            _batch((b"f", b"12"), compression=codec),
        ]
        topic = _filled(session, batches, 0, codec.name)
        for label, seen in _all(session, topic):
            yield f"{codec.name} {label}", seen


@probe("2.14a", slow=True)
def compaction_and_tombstones(session: Session) -> Observations:
    """Delete records by null. The null stays for a time, which its batch has as a timestamp."""
    batches = [
        _batch((b"a", b"1"), (b"b", b"2")),
        _batch((b"a", None)),
        _batch((b"c", b"3"), (b"b", None), (b"d", b"4")),
        _batch((b"c", b"5")),
    ]
    yield from _all(session, _filled(session, batches, 0))


@probe("2.14a", slow=True)
def compaction_and_idempotent_producers(session: Session) -> Observations:
    """Keep the last batch of a producer for its sequence when all its records are gone."""
    topic = _new_topic(session)
    one = Producer(session, topic)
    for sequence in range(3):
        header: dict[str, Any] = {
            "producer_id": one.id,
            "producer_epoch": one.epoch,
            "base_sequence": sequence,
        }
        session.produce(topic, _batch((b"a", b"%d" % sequence), **header))
    session.produce(topic, _batch((b"a", b"other")))
    _compact(session, topic, 0)
    yield from _all(session, topic)


@probe("2.14a", slow=True)
def compaction_and_transactions(session: Session) -> Observations:
    """Compact away aborted records. Markers stay for a time."""
    topic = _new_topic(session)
    one = producer(session)
    for number, committed in enumerate((True, False, True)):
        one.write(topic, b"%d" % number, b"again", key=b"a")
        one.write(topic, b"%d" % number, key=b"only %d" % number)
        end(session, one, committed=committed)
    _compact(session, topic, 0)
    yield from _all(session, topic)


@probe("2.14b", slow=True)
def retention_deletes_from_the_beginning(session: Session) -> Observations:
    """Delete by age and by size some of the log and all of it. Deleted offsets are out of range."""
    for label, name, value, newest, start in (
        ("older", "retention.ms", "3600000", LATER, 3),
        ("all are old", "retention.ms", "3600000", T0 + 9000, 4),
        ("larger", "retention.bytes", "100", T0 + 9000, 2),
        ("all are too much", "retention.bytes", "0", T0 + 9000, 4),
    ):
        topic = _new_topic(session, label.replace(" ", "-"))
        for number in range(3):
            session.produce(topic, _batch((b"k", b"x" * 20), at=T0 + 1000 * number))
        session.produce(topic, _batch((b"last", b"y" * 20), at=newest))
        set_config(session, topic, name, value)
        deadline = time.monotonic() + READY_S
        while list_offsets(session, topic, -2).topics[0].partitions[0].offset < start:
            assert time.monotonic() < deadline, f"{topic} keeps everything"
            time.sleep(0.02)
        time.sleep(3 * RETENTION_CHECK_MS / 1000)  # time for further checks of retention
        for timestamp in (-2, -1, T0):
            yield f"{label} {timestamp}", list_offsets(session, topic, timestamp)
        yield f"{label} from 0", fetched(session, topic)
        for what, seen in _all(session, topic):
            yield f"{label} {what}", seen
