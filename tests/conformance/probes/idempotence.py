"""Idempotent producers: ids, sequences, duplicates and epochs."""

from __future__ import annotations

from kohort.protocol.messages import InitProducerIdRequest, ProduceResponse
from kohort.records import Compression
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch
from tests.conformance.probes.list_offsets import delete_records
from tests.conformance.probes.producing import produce
from tests.conformance.session import Session, batch


class Producer:
    """Producer id and epoch, with batches of any sequence."""

    def __init__(self, session: Session, topic: str, partition: int = 0) -> None:
        self._session, self._topic, self._partition = session, topic, partition
        answer = session.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
        )
        assert answer.error_code == 0
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def send(self, sequence: int, count: int = 1, version: int = 9) -> ProduceResponse:
        values = [b"%d" % (sequence + index) for index in range(count)]
        sent = batch(
            *values, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence
        )
        return produce(self._session, self._topic, sent, version, partition=self._partition)


@probe("6.8a")
def producer_ids(session: Session) -> Observations:
    """Send InitProducerId in every version. Each response has another id."""
    for version in range(6):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        yield f"version {version}", session.ask(request, version)


@probe("6.8a")
def producer_ids_with_an_epoch(session: Session) -> Observations:
    """Send id and epoch of a producer without transactions."""
    for version in (3, 4, 5):
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=60_000,
            producer_id=77,
            producer_epoch=3,
        )
        answer = session.ask(request, version)
        yield f"version {version}", [answer.error_code, answer.producer_epoch]


@probe("6.8a")
def producer_ids_that_are_half_told(session: Session) -> Observations:
    """Send an id without an epoch, or an epoch without an id."""
    for version in (3, 4, 5):
        for producer_id, epoch in ((5, -1), (-1, 5), (-1, -1), (0, 0), (-2, -1)):
            request = InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            answer = session.ask(request, version)
            yield (
                f"version {version} {producer_id} {epoch}",
                [answer.error_code, answer.producer_epoch],
            )


@probe("6.8a")
def empty_transactional_ids(session: Session) -> Observations:
    """Send an empty transactional id, which is refused."""
    for version in range(6):
        request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
        yield f"version {version}", session.ask(request, version)


@probe("6.8b")
def sequences_in_order(session: Session) -> Observations:
    """Append batches in order, which are stored unchanged."""
    topic = session.topic()
    producer = Producer(session, topic)
    for sequence, count in ((0, 1), (1, 3), (4, 2)):
        yield f"sequence {sequence}", producer.send(sequence, count)
    yield "stored", fetch(session, topic)


@probe("6.8c")
def duplicates(session: Session) -> Observations:
    """Send one of the last five batches again. The response has its first offset."""
    topic = session.topic()
    producer = Producer(session, topic)
    for sequence in range(7):
        producer.send(sequence)
    for sequence in (6, 5, 4, 3, 2):
        yield f"sequence {sequence}", producer.send(sequence)
    yield "version 3", producer.send(6, version=3)
    yield "stored", session.end_offsets(topic, 1)


@probe("6.8c")
def old_duplicates(session: Session) -> Observations:
    """Send a batch from before the last five."""
    topic = session.topic()
    producer = Producer(session, topic)
    for sequence in range(8):
        producer.send(sequence)
    for sequence in (0, 1, 2):
        for version in (3, 9):
            yield f"sequence {sequence} {version}", producer.send(sequence, version=version)
    yield "stored", session.end_offsets(topic, 1)


@probe("6.8c")
def duplicates_of_another_size(session: Session) -> Observations:
    """Send the same first sequence with another number of records."""
    topic = session.topic()
    producer = Producer(session, topic)
    producer.send(0, 3)
    for sequence, count in ((0, 2), (0, 4), (1, 2), (2, 3)):
        yield f"{sequence}+{count}", producer.send(sequence, count)
    yield "stored", session.end_offsets(topic, 1)


@probe("6.8c")
def duplicates_where_the_broker_gives_the_time(session: Session) -> Observations:
    """Send a duplicate with LogAppendTime. The response has the time of the first batch."""
    topic = session.topic(configs={"message.timestamp.type": "LogAppendTime"})
    producer = Producer(session, topic)
    first = producer.send(0)
    yield "first", first
    yield "again", producer.send(0)


@probe("6.8d")
def gaps(session: Session) -> Observations:
    """Send a sequence that is not the next one: error 45."""
    topic = session.topic()
    producer = Producer(session, topic)
    producer.send(0)
    for sequence in (2, 5, 2**31 - 1):
        for version in (3, 9):
            yield f"sequence {sequence} {version}", producer.send(sequence, version=version)
    yield "next", producer.send(1)
    yield "stored", session.end_offsets(topic, 1)


@probe("6.8d")
def first_sequences(session: Session) -> Observations:
    """Begin at any sequence, with a producer that the partition has not seen."""
    topic = session.topic()
    for sequence in (0, 1, 1000):
        yield f"sequence {sequence}", Producer(session, topic).send(sequence)
    yield "negative", Producer(session, topic).send(-5)
    yield "none", Producer(session, topic).send(-1)


@probe("6.8d")
def sequences_go_round(session: Session) -> Observations:
    """Continue with sequence 0 after 2,147,483,647."""
    topic = session.topic()
    producer = Producer(session, topic)
    yield "before", producer.send(2**31 - 3, 2)
    yield "over the edge", producer.send(2**31 - 1, 1)
    yield "around", producer.send(0, 2)
    yield "next", producer.send(2)
    producer = Producer(session, topic)
    yield "last", producer.send(2**31 - 2, 1)
    sent = batch(
        b"a", b"b", b"c", producer_id=producer.id, producer_epoch=0, base_sequence=2**31 - 1
    )
    yield "across", produce(session, topic, sent)
    yield "after that", producer.send(2)


@probe("6.8e")
def epochs_of_producers(session: Session) -> Observations:
    """Begin a higher epoch at sequence 0, and send a lower one, which is refused."""
    topic = session.topic()
    producer = Producer(session, topic)
    producer.send(0)
    producer.send(1)
    producer.epoch = 1
    yield "new epoch, not from 0", producer.send(2)
    yield "new epoch", producer.send(0)
    producer.epoch = 0
    for version in (3, 9):
        yield f"old epoch {version}", producer.send(2, version=version)
    yield "old epoch, duplicate", producer.send(1)
    producer.epoch = 5
    yield "far ahead", producer.send(0)
    yield "stored", fetch(session, topic)


@probe("6.8e")
def epochs_below_zero(session: Session) -> Observations:
    """Send a producer id with an epoch of -1."""
    topic = session.topic()
    producer = Producer(session, topic)
    producer.epoch = -1
    yield "answer", producer.send(0)


@probe("6.8b")
def partitions_have_sequences_of_their_own(session: Session) -> Observations:
    """Write with one producer to two partitions, and with two producers to one."""
    topic = session.topic(partitions=2)
    producer = Producer(session, topic)
    yield "partition 0", producer.send(0)
    producer._partition = 1
    yield "partition 1", producer.send(0)
    other = Producer(session, topic)
    yield "other", other.send(0)
    yield "stored", fetch(session, topic)


@probe("6.8b")
def compressed_and_idempotent(session: Session) -> Observations:
    """Send compressed batches. Their sequences are in the header, and a topic's
    codec keeps them.
    """
    for kind in ("producer", "zstd"):
        topic = session.topic(kind, configs={"compression.type": kind})
        producer = Producer(session, topic)
        sent = batch(
            b"a" * 50,
            b"b" * 50,
            compression=Compression.GZIP,
            producer_id=producer.id,
            producer_epoch=0,
            base_sequence=0,
        )
        yield f"{kind} first", produce(session, topic, sent)
        yield f"{kind} again", produce(session, topic, sent)
        yield f"{kind} stored", fetch(session, topic)


@probe("6.8b")
def deleted_records_and_sequences(session: Session) -> Observations:
    """Continue a producer's sequences after its records were deleted."""
    topic = session.topic()
    producer = Producer(session, topic)
    producer.send(0, 3)
    delete_records(session, topic, 3)
    yield "duplicate", producer.send(0, 3)
    yield "next", producer.send(3)
