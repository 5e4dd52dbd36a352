"""Further rounds of compaction, and responses about the rest of a log."""

from __future__ import annotations

import time
from collections.abc import Callable

from kohort.protocol.messages import (
    FetchResponse,
    InitProducerIdRequest,
)
from kohort.records import NewRecord, encode_batch, split_batches
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.compaction import set_config
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.probes.list_offsets import delete_records, list_offsets, offset_for_epoch
from tests.conformance.session import READY_S, T0, Session, produce_request
from tests.conformance.transacting import WAYS, end, fetched, producer
from tests.support.transactor import Transactor

SETTINGS = {
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "1",  # each batch begins a segment, because their times are further apart
    "delete.retention.ms": "3600000",
}
STEP_MS = 100


class _Writer:
    """Writer of batches of keys, each a while after the one before.

    The topic is not compacted before :meth:`compacted` is called, so that one round does it.
    """

    def __init__(self, session: Session, name: str = "t", **configs: str) -> None:
        self.session = session
        self.topic = session.topic(name, configs={**SETTINGS, **configs})
        self.now = T0

    def encoded(self, *keys: str, **header: object) -> bytes:
        """Encode a batch of keys. A key that ends with "-" is a tombstone's."""
        self.now += STEP_MS
        records = [
            NewRecord(self.now + n, key.rstrip("-").encode(), None if key[-1] == "-" else b"v")
            for n, key in enumerate(keys)
        ]
        return encode_batch(records, **header)  # type: ignore[arg-type]  # each of its own type

    def write(self, *keys: str, **header: object) -> None:
        self.session.produce(self.topic, self.encoded(*keys, **header))

    def write_in_transaction(self, one: Transactor, *keys: str) -> None:
        """Open a transaction or continue it, and write a batch."""
        if one.old:
            one.add((self.topic, 0))
        first = one.sequences.get((self.topic, 0), 0)
        data = self.encoded(
            *keys,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            base_sequence=first,
            transactional=True,
        )
        request = produce_request(self.topic, data)
        request.transactional_id = one.name
        answer = self.session.ask(request, 11 if one.old else 12)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        one.sequences[self.topic, 0] = first + len(keys)

    def compacted(self, gone: int) -> object:
        """Return the log once the record at offset ``gone`` is gone, which is the
        last one to go.
        """
        set_config(self.session, self.topic, "cleanup.policy", "compact")
        if self.session.target.compact is not None:
            self.session.target.compact(self.topic)
        _until(lambda: gone not in _offsets(_everything(self.session, self.topic)))
        return _everything(self.session, self.topic)


def _everything(session: Session, topic: str, offset: int = 0) -> FetchResponse.PartitionData:
    """Return all from the offset on. A fetch ends with a segment, and segments are not compared."""
    records = b""
    while True:
        answer = fetch(session, topic, partition(0, offset)).responses[0].partitions[0]
        batches = list(split_batches(answer.records or b""))
        if not batches:
            answer.records = records
            return answer
        records += b"".join(batch.raw for batch in batches)
        offset = batches[-1].header.next_offset


def _offsets(data: FetchResponse.PartitionData) -> list[int]:
    batches = split_batches(data.records or b"")
    return [record.offset for batch in batches for record in batch.records()]


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while not holds():
        assert time.monotonic() < deadline, "it was not cleaned in time"
        time.sleep(0.02)


@probe("2.14a", slow=True)
def compacted_batches(session: Session) -> Observations:
    """Compact records at the beginning, inside and at the end of batches, and whole batches."""
    writer = _Writer(session)
    for keys in ("abc", "adb", "ee", "ef", "g", "gd", "hg", "x"):
        writer.write(*keys)
    yield "left", writer.compacted(11)
    for offset in (0, 3, 6, 8, 13, 14):
        yield f"from {offset}", fetch(session, writer.topic, partition(0, offset, 1))
    for timestamp in (-1, -2, -3, T0, T0 + 2 * STEP_MS, T0 + 5 * STEP_MS, T0 + 10**6):
        yield f"offset {timestamp}", list_offsets(session, writer.topic, timestamp)
    yield "epoch", offset_for_epoch(session, writer.topic, 0)


@probe("2.14a", slow=True)
def tombstones_go(session: Session) -> Observations:
    """Compact tombstones whose time is over. The last batch that was compacted stays, empty."""
    writer = _Writer(session, **{"delete.retention.ms": "0"})
    for keys in (["a", "b"], ["a-", "d"], ["d", "e"], ["x"]):
        writer.write(*keys)
    writer.compacted(3)
    writer.write("y")
    yield "left", writer.compacted(2)


@probe("2.14a", slow=True)
def a_producers_last_batch_is_left(session: Session) -> Observations:
    """Compact all records of a producer's last batch, which stays for the producer's sequences."""
    writer = _Writer(session)
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    given = session.ask(asked, 4)
    own = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    writer.write("a", "b", base_sequence=0, **own)
    last = writer.encoded("a", "c", base_sequence=2, **own)
    session.produce(writer.topic, last)
    for keys in (["a", "c"], ["b", "c"], ["x"]):
        writer.write(*keys)
    yield "left", writer.compacted(5)
    yield "again", session.ask(produce_request(writer.topic, last), 9)
    gap = writer.encoded("z", base_sequence=5, **own)
    yield "gap", session.ask(produce_request(writer.topic, gap), 9)
    follows = writer.encoded("z", base_sequence=4, **own)
    yield "next", session.ask(produce_request(writer.topic, follows), 9)


@probe("2.14a", "2.15a", slow=True)
def compacted_transactions(session: Session) -> Observations:
    """Compact transactions. Aborted records go first, markers later than all records of theirs."""
    for way, old in WAYS.items():
        writer = _Writer(session, way)
        writer.now = int(time.time() * 1000) + 60_000  # later than the markers
        one, two = (producer(session, f"{way}{name}", old=old) for name in ("one", "two"))
        writer.write("a")
        for member, keys, committed in (
            (one, ("a", "b"), False),
            (one, ("c", "d"), True),
            (two, ("c",), True),
        ):
            writer.write_in_transaction(member, *keys)
            end(session, member, committed=committed)
        for more, gone in (([["d", "e"], ["e"], ["x"]], 10), ([["e"], ["y"]], 11)):
            for batch in more:
                writer.write(*batch)
            yield f"{way}: {gone} gone", writer.compacted(gone)
            answer = fetched(session, writer.topic)
            yield (
                f"{way}: aborted when {gone} is gone",
                answer.responses[0].partitions[0].aborted_transactions,
            )


@probe("6.6g", "2.11d")
def epochs_after_records_were_deleted(session: Session) -> Observations:
    """Read the epochs of a log after deleted records, and fetch with the last fetched epoch."""
    topic = session.topic()
    for number in range(4):
        session.produce(topic, encode_batch([NewRecord(T0 + number, None, b"v")]))
    for start in (2, 4):
        assert delete_records(session, topic, start) == start
        for epoch in (-1, 0, 1):
            yield f"{start}: end of {epoch}", offset_for_epoch(session, topic, epoch)
            for offset in (0, 2, 4, 5):
                asked = partition(0, offset, current_leader_epoch=0, last_fetched_epoch=epoch)
                yield f"{start}: {epoch} from {offset}", fetch(session, topic, asked)
        for timestamp in (-1, -2):
            yield f"{start}: {timestamp}", list_offsets(session, topic, timestamp)
