"""Transactions of another client, on both clusters: aborted records are never read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from kohort import TopicPartition
from kohort.consumer.diagnosis._facts import OpenTransactionFacts
from kohort.consumer.engine import _open_transactions
from tests.interop.brokers import QUIET, TIMEOUT_S, Broker
from tests.interop.reading import consumer, idle, read
from tests.interop.waiting import wait_until

Unique = Callable[[str], str]
PARTITIONS, TRANSACTIONS = 3, 60


class Transactions:
    """Transactional producer on one partition, or on ``spread`` of them from this one on."""

    def __init__(
        self, broker: Broker, partition: TopicPartition, name: str, spread: int = 1
    ) -> None:
        options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
        self._producer = Producer(options | QUIET)
        self._producer.init_transactions(TIMEOUT_S)
        self._partition = partition
        self._spread = spread

    def begin(self, *values: bytes) -> None:
        """Write the values in a new transaction, and leave it open."""
        topic, partition = self._partition
        self._producer.begin_transaction()
        for number, value in enumerate(values):
            self._producer.produce(topic, value, partition=partition + number % self._spread)
        assert self._producer.flush(TIMEOUT_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)


@pytest.fixture
def partition(broker: Broker, unique: Unique) -> TopicPartition:
    return TopicPartition(broker.create_topic(unique("transactions")), 0)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_only_what_is_committed_is_read(
    broker: Broker, partition: TopicPartition, unique: Unique, isolation: str
) -> None:
    one = Transactions(broker, partition, unique("one"))
    other = Transactions(broker, partition, unique("other"))
    one.begin(b"a0", b"a1")
    one.abort()
    one.begin(b"c3", b"c4")
    other.begin(b"a5")  # inside the transaction of the first producer
    one.commit()
    other.abort()
    broker.write(partition.topic, b"last")

    expected = [b"a0", b"a1", b"c3", b"c4", b"a5", b"last"]
    if isolation == "read_committed":
        expected = [b"c3", b"c4", b"last"]
    with consumer(broker.bootstrap_servers, isolation_level=isolation) as reader:
        reader.assign([partition])
        # Kafka responds to an EndTxn before its markers are in the log.
        wait_until(lambda: reader.end_offsets([partition]) == {partition: 9})
        records = read(reader, len(expected))
        assert [r.value for r in records] == expected
        assert [r.offset for r in records if r.value == b"c4"] == [4]
        reader.seek(partition, 0)
        rows = []

        def poll() -> None:
            rows.extend(reader.poll_arrow(500, max_records=2).to_pylist())

        wait_until(lambda: len(rows) >= len(expected), poll)
    assert [(row["offset"], row["value"]) for row in rows] == [(r.offset, r.value) for r in records]


@pytest.mark.parametrize("how", ["records", "arrow"])
def test_all_but_the_aborted_third_transactions_is_read(
    broker: Broker, unique: Unique, how: str
) -> None:
    topic = broker.create_topic(unique("thirds"), PARTITIONS)
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    values = [
        [b"%d of %d" % (place, number) for place in range(1 + number % 11)]
        for number in range(TRANSACTIONS)
    ]
    for number, each in enumerate(values):
        for place, value in enumerate(each):
            if number % 3 != 2:
                expected[place % PARTITIONS].append(value)

    def produce() -> None:
        producer = Transactions(broker, TopicPartition(topic, 0), unique("thirds"), PARTITIONS)
        for number, each in enumerate(values):
            producer.begin(*each)
            (producer.abort if number % 3 == 2 else producer.commit)()

    found: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    options = {"isolation_level": "read_committed", "group_id": unique("thirds")}
    with (
        ThreadPoolExecutor() as threads,
        consumer(broker.bootstrap_servers, topic, **options) as reader,
    ):

        def poll() -> None:
            if how == "records":
                for tp, records in reader.poll(timeout_ms=100, max_records=20).items():
                    found[tp.partition] += [record.value for record in records]
            else:
                for row in reader.poll_arrow(timeout_ms=100, max_records=20).to_pylist():
                    found[row["partition"]].append(row["value"])

        wait_until(lambda: len(reader.assignment()) == PARTITIONS, poll)
        producing = threads.submit(produce)
        wait_until(lambda: producing.done() and found == expected, poll, explain=lambda: found)
        producing.result()
        ends = reader.end_offsets(reader.assignment())
        wait_until(lambda: {tp: reader.position(tp) for tp in ends} == ends, poll)
    assert found == expected


def test_an_open_transaction_is_waited_for(
    broker: Broker, partition: TopicPartition, unique: Unique
) -> None:
    broker.write(partition.topic, b"before")
    producer = Transactions(broker, partition, unique("open"))
    producer.begin(b"open")
    broker.write(partition.topic, b"after")
    options = {"isolation_level": "read_committed", "group_id": unique("open")}
    with consumer(broker.bootstrap_servers, **options) as reader:
        reader.assign([partition])
        assert [r.value for r in read(reader, 1)] == [b"before"]
        assert reader.poll(timeout_ms=200) == {}
        assert reader.end_offsets([partition]) == {partition: 1}
        producer.commit()
        assert [r.value for r in read(reader, 2)] == [b"open", b"after"]
        assert reader.end_offsets([partition]) == {partition: 4}


def test_producer_of_an_open_transaction_is_named(
    broker: Broker, partition: TopicPartition, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_open_transactions, "CHECK_SECONDS", 0.1)
    broker.write(partition.topic, b"before")
    producer = Transactions(broker, partition, unique("open"))
    producer.begin(b"open")
    broker.write(partition.topic, b"after")
    options = {"isolation_level": "read_committed", "group_id": unique("open")}
    with consumer(broker.bootstrap_servers, **options) as reader:
        reader.assign([partition])
        assert [r.value for r in read(reader, 1)] == [b"before"]

        def transaction() -> OpenTransactionFacts | None:
            name = f"{partition.topic}-{partition.partition}"
            return reader.explain().as_dict()["partitions"][name]["open_transaction"]

        wait_until(lambda: transaction() is not None, lambda: reader.poll(timeout_ms=100))
        found = transaction()
        assert found is not None
        assert (found["first_offset"], found["epoch"]) == (1, 0)
        assert found["producer_id"] >= 0
        assert f"2 offsets wait for producer {found['producer_id']} " in found["text"]
        assert "its latest record is of 20" in found["text"]
        producer.commit()
        assert [r.value for r in read(reader, 2)] == [b"open", b"after"]
        assert transaction() is None


def test_positions_and_commits_pass_over_what_is_not_shown(
    broker: Broker, partition: TopicPartition, unique: Unique
) -> None:
    producer = Transactions(broker, partition, unique("tail"))
    producer.begin(b"shown")
    producer.commit()
    producer.begin(*[b"aborted"] * 5)
    producer.abort()
    options = {"isolation_level": "read_committed", "group_id": unique("tail")}
    with consumer(broker.bootstrap_servers, partition.topic, **options) as reader:
        assert [r.value for r in read(reader, 1)] == [b"shown"]
        wait_until(lambda: reader.position(partition) == 8, idle(reader))
        reader.commit()
        assert reader.committed(partition) == 8
    with consumer(broker.bootstrap_servers, partition.topic, **options) as reader:
        broker.write(partition.topic, b"next")
        assert [(r.offset, r.value) for r in read(reader, 1)] == [(8, b"next")]
