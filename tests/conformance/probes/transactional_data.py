"""Transactions in partitions: stable offsets, aborted records, markers and producers."""

from __future__ import annotations

from functools import partial

from kohort.broker._hashes import coordinator_partition
from kohort.broker.transactions import TRANSACTION_PARTITIONS
from kohort.protocol import decode
from kohort.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    FetchRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionLogKey,
    TransactionLogValue,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kohort.records import split_batches
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch_request, partition
from tests.conformance.probes.list_offsets import delete_records, list_offsets
from tests.conformance.session import T0, Session, batch
from tests.conformance.transacting import (
    COMMITTED,
    WAYS,
    describe,
    end,
    ends,
    fetched,
    new_topic,
    producer,
    settle,
)
from tests.conformance.wire import FAR_MS
from tests.support.transactor import Transactor


@probe("6.9b", "2.15a")
def transactions_from_begin_to_end(session: Session) -> Observations:
    """Read all and committed records before, during and after a transaction."""
    for way, old in WAYS.items():
        for committed in (True, False):
            label = f"{way} {committed}"
            topic = new_topic(session, f"t{committed}{way}")
            one = producer(session, f"x{committed}{way}", old=old)
            yield f"{label}: empty", describe(session, one.name)
            session.produce(topic, batch(b"before"))
            one.begin(topic, b"a", b"b")
            session.produce(topic, batch(b"beside"))
            one.begin(topic, b"c")
            for step in ("open", "ended"):
                if step == "ended":
                    yield f"{label}: end", one.end(committed=committed)
                    settle(session, one)
                yield f"{label}: {step}: described", describe(session, one.name)
                yield f"{label}: {step}: ends", ends(session, topic)
                for isolation in (0, 1):
                    for offset in (0, 1, 2, 5):
                        yield (
                            f"{label}: {step}: {isolation} from {offset}",
                            fetched(session, topic, offset, isolation=isolation),
                        )


@probe("6.9b", "2.11f")
def committed_records_in_every_version(session: Session) -> Observations:
    """Read stable offset and aborted transactions in every version of Fetch and ListOffsets."""
    topic = new_topic(session)
    one = producer(session)
    one.begin(topic, b"aborted")
    end(session, one, committed=False)
    one.begin(topic, b"open")
    for version in range(4, 19):
        for isolation in (0, 1):
            answer = fetched(session, topic, isolation=isolation, version=version)
            yield f"fetch {version} {isolation}", answer
    for version in range(2, 12):
        for timestamp in (-1, -2, T0, T0 + 1):
            listed = list_offsets(session, topic, timestamp, version, isolation=COMMITTED)
            yield f"list {version} {timestamp}", listed
    for version in (7, 8, 9, 11):
        for timestamp in (-3, -4, -5, -6):
            if timestamp == -6 and version < 11:
                continue
            for isolation in (0, 1):
                listed = list_offsets(session, topic, timestamp, version, isolation=isolation)
                yield f"list {version} {timestamp} {isolation}", listed


@probe("6.9b")
def aborted_transactions_are_listed(session: Session) -> Observations:
    """List aborted transactions of interleaved producers that overlap with the fetch."""
    topic = new_topic(session)
    a, b, c = (producer(session, name) for name in "abc")
    a.begin(topic, b"0")
    b.begin(topic, b"1")
    end(session, a, committed=False)
    c.begin(topic, b"3")
    a.begin(topic, b"4")
    end(session, b, committed=True)
    end(session, c, committed=False)
    b.begin(topic, b"7")
    end(session, a, committed=False)
    end(session, b, committed=False)
    a.begin(topic, b"open")
    for offset in range(12):
        yield f"from {offset}", fetched(session, topic, offset)
        small = fetch_request(
            [(topic, [partition(0, offset, 1)])], isolation_level=COMMITTED, session_epoch=-1
        )
        yield f"one batch from {offset}", session.ask(small, 12)
    delete_records(session, topic, 5)
    yield "deleted", fetched(session, topic, 5)
    yield "ends", ends(session, topic)
    delete_records(session, topic, 11)
    yield "all deleted", fetched(session, topic, 11)


@probe("6.9b")
def deleting_what_is_open(session: Session) -> Observations:
    """Delete records up to and beyond the stable offset while a transaction is open."""
    topic = new_topic(session)
    one = producer(session)
    session.produce(topic, batch(b"before"))
    one.begin(topic, b"a", b"b")
    session.produce(topic, batch(b"after"))
    yield "start", delete_records(session, topic, 2)
    yield "ends", ends(session, topic)
    yield "fetched", fetched(session, topic, 2)
    yield "first", list_offsets(session, topic, -2, isolation=COMMITTED)
    yield "end", end(session, one, committed=False)
    yield "fetched afterwards", fetched(session, topic, 2)
    yield "ends afterwards", ends(session, topic)


@probe("6.9b", slow=True)
def the_end_wakes_readers_of_committed_records(session: Session) -> Observations:
    """Wait in a fetch of committed records. The end of the transaction wakes it, not records."""
    for version in (11, 17):
        topic = new_topic(session, f"t{version}")
        one = producer(session, f"x{version}")
        named: str | bytes = topic if version < 13 else session.topic_id(topic)
        reader = session.connect()
        asked = fetch_request(
            [(named, [partition()])],
            max_wait_ms=FAR_MS,
            isolation_level=COMMITTED,
            session_epoch=-1,
        )
        reader.send(asked, version)
        one.begin(topic, b"x")
        yield f"{version} waits", reader.is_parked()
        one.end(committed=True)
        yield f"{version} woken", reader.receive()


@probe("6.9b", "6.6d")
def sessions_tell_what_is_stable(session: Session) -> Observations:
    """Move the stable offset in a session. The incremental response has the partition then."""
    topic = new_topic(session)
    one = producer(session)
    opened = session.ask(
        fetch_request([(topic, [partition()])], isolation_level=COMMITTED, session_epoch=0), 12
    )
    yield "opened", opened

    def again(epoch: int) -> object:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=COMMITTED,
            session_id=opened.session_id,
            session_epoch=epoch,
        )
        return session.ask(request, 12)

    yield "nothing", again(1)
    one.begin(topic, b"x")
    yield "open", again(2)
    yield "still open", again(3)
    end(session, one, committed=True)
    yield "committed", again(4)
    yield "as before", again(5)


@probe("2.15a")
def markers_as_they_are_stored(session: Session) -> Observations:
    """Read markers byte for byte: attributes, sequence, key and value of both kinds."""
    topic = new_topic(session)
    for way, old in WAYS.items():
        one = producer(session, way, old=old)
        for committed in (True, False):
            one.begin(topic, b"x")
            end(session, one, committed=committed)
    answer = fetched(session, topic)
    yield "stored", answer
    for found in split_batches(answer.responses[0].partitions[0].records or b""):
        if found.header.is_control:
            (record,) = found.records()
            yield f"marker {found.header.base_offset}", [record.key, record.value]


@probe("6.9b")
def transactions_of_several_partitions(session: Session) -> Observations:
    """End a transaction of several partitions. Each gets a marker, even one without records."""
    topic = new_topic(session, partitions=3)
    one = producer(session, old=True)
    one.begin(topic, b"x")
    one.begin(topic, b"y", partition=1)
    one.add((topic, 2))
    yield "described", describe(session, one.name)
    yield "end", one.end(committed=True)
    settle(session, one)
    yield "ends", session.end_offsets(topic, 3)
    request = fetch_request([(topic, [partition(index) for index in range(3)])])
    yield "stored", session.ask(request, 12)


@probe("6.9b")
def what_is_not_in_the_transaction(session: Session) -> Observations:
    """Produce in each version to a partition that was not added before."""
    topic = new_topic(session)
    for version in range(3, 13):
        one = producer(session, f"v{version}")
        yield f"version {version}", one.write(topic, b"x", version=version)
        yield f"version {version} again", one.write(topic, b"y", version=version)
        yield f"version {version} described", describe(session, one.name)
        end(session, one, committed=False)
    yield "stored", fetched(session, topic)


@probe("6.9b")
def what_is_written_in_a_strange_way(session: Session) -> Observations:
    """Produce without a transactional id, with an unknown one, and with another producer's."""
    topic = new_topic(session)
    for version in (9, 11, 12):
        one = producer(session, f"v{version}", old=True)
        one.add((topic, 0))
        yield f"{version} no name", one.write(topic, b"x", version=version, named=False)
        named, one.name = one.name, session.name("nobody")
        yield f"{version} stranger", one.write(topic, b"x", version=version)
        one.name = ""
        yield f"{version} empty name", one.write(topic, b"x", version=version)
        one.name = named
        yield (
            f"{version} name, and no transaction",
            one.write(topic, b"x", version=version, transactional=False),
        )
        yield f"{version} then in one", one.write(topic, b"y", version=version)
        yield (
            f"{version} out of it",
            one.write(topic, b"z", version=version, transactional=False),
        )
        yield f"{version} gap", one.write(topic, b"y", sequence=17, version=version)
        yield f"{version} duplicate", one.write(topic, b"y", sequence=1, version=version)
        one.epoch += 1
        yield f"{version} later epoch", one.write(topic, b"y", sequence=0, version=version)
        one.epoch -= 1
        yield f"{version} end", end(session, one, committed=True)
    yield "stored", fetched(session, topic)


@probe("6.9b", "6.8b")
def sequences_over_transactions(session: Session) -> Observations:
    """Continue sequences after a transaction in the same epoch, and begin at 0 in a new one."""
    topic = new_topic(session)
    for way, old in WAYS.items():
        one = producer(session, way, old=old)
        one.begin(topic, b"a", b"b")
        end(session, one, committed=True)
        if old:
            one.add((topic, 0))
        for sequence in (5, 1, 3, 2, 0):
            yield f"{way} {sequence}", one.write(topic, b"c", sequence=sequence)
        end(session, one, committed=True)
    one = producer(session, "first", old=True)
    one.add((topic, 0))
    yield "a first one, not from 0", one.write(topic, b"c", sequence=9)
    end(session, one, committed=True)
    yield "stored", fetched(session, topic)


def _describe_producers(session: Session, topic: str, *indexes: int) -> DescribeProducersResponse:
    cls = DescribeProducersRequest
    named = cls.TopicRequest(name=topic, partition_indexes=list(indexes))
    return session.ask(cls(topics=[named]), 0)


@probe("6.9b")
def producers_of_partitions(session: Session) -> Observations:
    """Describe producers: none, idempotent, open, ended, and of unknown partitions."""
    topic = new_topic(session, partitions=2)
    yield "none", _describe_producers(session, topic, 0, 1, 7, -1)
    yield "unknown", _describe_producers(session, "no-such-topic", 0)
    yield "invalid", _describe_producers(session, "bad topic!", 0)
    yield "no partitions", _describe_producers(session, topic)
    yield "nothing", session.ask(DescribeProducersRequest(topics=[]), 0)
    for way, old in WAYS.items():
        topic = new_topic(session, way)
        one = producer(session, way, old=old)
        session.produce(topic, batch(b"before"))
        one.begin(topic, b"a", b"b")
        yield f"{way} open", _describe_producers(session, topic, 0)
        end(session, one, committed=True)
        yield f"{way} ended", _describe_producers(session, topic, 0)
        one.begin(topic, b"c")
        yield f"{way} next", _describe_producers(session, topic, 0)
        end(session, one, committed=False)


@probe("6.9b")
def transactions_are_described(session: Session) -> Observations:
    """Describe transactions: known, unknown, empty, twice, none."""
    one, nobody = producer(session), session.transactional_id("nobody")
    yield "known", describe(session, one.name)
    yield "unknown", describe(session, nobody)
    yield "empty", describe(session, "")
    yield "twice", describe(session, one.name, nobody, one.name)
    yield "none", describe(session)


def _list(session: Session, version: int = 2, **fields: object) -> ListTransactionsResponse:
    request = ListTransactionsRequest()
    for name, value in fields.items():
        setattr(request, name, value)
    return session.ask(request, version)


@probe("6.9b")
def transactions_are_listed(session: Session) -> Observations:
    """List transactions by producer id, state, duration and pattern, in every version."""
    topic = new_topic(session)
    new, is_open, ended = (producer(session, name) for name in ("new", "open", "ended"))
    is_open.begin(topic, b"x")
    ended.begin(topic, b"y")
    end(session, ended, committed=True)
    ids = [one.producer_id for one in (new, is_open, ended)]
    for version in range(3):
        yield f"ids {version}", _list(session, version, producer_id_filters=ids)
        yield f"one id {version}", _list(session, version, producer_id_filters=ids[1:2])
        yield f"unknown id {version}", _list(session, version, producer_id_filters=[-7])
        for state in ("Ongoing", "Empty", "CompleteCommit", "PrepareAbort", "Dead"):
            yield (
                f"{state} {version}",
                _list(session, version, producer_id_filters=ids, state_filters=[state]),
            )
        for states in (["Nonsense"], ["Nonsense", "Empty"], ["ongoing"], [""], ["Ongoing", "No"]):
            yield (
                f"{states} {version}",
                _list(session, version, producer_id_filters=ids, state_filters=states),
            )
    for version in (1, 2):
        for duration in (-1, 0, 3_600_000, -5):
            answer = _list(session, version, producer_id_filters=ids, duration_filter=duration)
            yield f"duration {duration} {version}", answer
    for label, pattern in (
        ("all", ".*"),
        ("name", new.name.replace(".", "[.]")),
        ("part", "transactions"),
        ("end", ".*[.]open"),
        ("several", ".*[.](open|new)"),
        ("empty", ""),
        ("null", None),
        ("broken", "(["),
        ("java only", r".*\p{javaLowerCase}"),
        ("repeated", "a**"),
    ):
        yield (
            f"pattern {label}",
            _list(session, producer_id_filters=ids, transactional_id_pattern=pattern),
        )
    yield "only the name", _list(session, transactional_id_pattern=f".*{new.name[-20:]}")


def _mark(
    session: Session,
    one: Transactor,
    topic: str,
    *indexes: int,
    version: int = 1,
    committed: bool = False,
    coordinator_epoch: int = 0,
    way: int = 0,
) -> WriteTxnMarkersResponse:
    cls = WriteTxnMarkersRequest
    marker = cls.WritableTxnMarker(
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        transaction_result=committed,
        topics=[cls.WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=way,
    )
    return session.ask(cls(markers=[marker]), version)


@probe("6.9b")
def markers_of_administrators(session: Session) -> Observations:
    """End open transactions with WriteTxnMarkers, for unknown partitions, old epochs, and twice."""
    for version, way in ((1, 0), (2, 0), (2, 1), (2, 2)):
        topic = new_topic(session, f"t{version}{way}", partitions=2)
        one = producer(session, f"x{version}{way}", old=True)
        mark = partial(_mark, session, one, version=version, way=way)
        one.init()
        one.begin(topic, b"x")
        yield f"{version}/{way} unknown", mark(topic, 7)
        yield f"{version}/{way} unknown topic", mark("no-such-topic", 0)
        one.epoch -= 1
        yield f"{version}/{way} epoch before", mark(topic, 0)
        one.epoch += 1
        yield f"{version}/{way} open", ends(session, topic)
        yield f"{version}/{way} ended", mark(topic, 0, 1)
        yield f"{version}/{way} afterwards", ends(session, topic)
        yield f"{version}/{way} twice", mark(topic, 0)
        yield f"{version}/{way} committed", mark(topic, 0, committed=True)
        one.epoch += 1
        yield f"{version}/{way} epoch to come", mark(topic, 0)
        yield f"{version}/{way} none", session.ask(WriteTxnMarkersRequest(markers=[]), version)
        yield f"{version}/{way} stored", fetched(session, topic)
        yield f"{version}/{way} producers", _describe_producers(session, topic, 0, 1)


@probe("6.9b")
def markers_of_coordinators_that_are_over(session: Session) -> Observations:
    """Write a marker with an older coordinator epoch than the marker before."""
    topic = new_topic(session)
    one = producer(session, old=True)
    for number, epoch in enumerate((5, 3, 5, 6, -1)):
        one.begin(topic, b"x")
        yield f"{number} epoch {epoch}", _mark(session, one, topic, 0, coordinator_epoch=epoch)
        yield f"{number} ends", ends(session, topic)


@probe("6.9b")
def what_the_coordinator_stores(session: Session) -> Observations:
    """Read the records of ``__transaction_state`` for one transactional id, for both versions."""
    topic = new_topic(session, partitions=2)
    for way, old in WAYS.items():
        one = producer(session, way, old=old)
        one.begin(topic, b"x")
        one.begin(topic, b"y", partition=1)
        end(session, one, committed=True)
        one.begin(topic, b"x")
        end(session, one, committed=False)
        one.init()
        index = coordinator_partition(one.name, TRANSACTION_PARTITIONS)
        where = partition(index)
        request = fetch_request([("__transaction_state", [where])], session_epoch=-1)
        records = session.ask(request, 12).responses[0].partitions[0].records or b""
        number = 0
        for found in split_batches(records):
            for record in found.records():
                assert record.key is not None
                key = decode(TransactionLogKey, 0, record.key[2:])
                if key.transactional_id == one.name:
                    assert record.value is not None
                    version = record.value[1]
                    value = decode(TransactionLogValue, version, record.value[2:])
                    number += 1
                    yield f"{way} {number} version {version}", value
