"""Dead letters and their replay on Apache Kafka, also while the broker restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kohort import ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.cli import main
from kohort.processing import DeadLetters, process
from tests.interop.brokers import Broker
from tests.interop.waiting import wait_until
from tests.support.kafka_server import KafkaServer

pytestmark = pytest.mark.real_kafka

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
PARTITIONS = 2
RECORDS = 60
Record = ConsumerRecord[Any, Any]


def read_all(broker: Broker, topic: str, partitions: int) -> list[ConsumerRecord[bytes, bytes]]:
    """Return the records of a topic, partition by partition."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[ConsumerRecord[bytes, bytes]] = []
    with KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=1000).values():
                found += records
    return sorted(found, key=lambda record: (record.partition, record.offset))


def read_by_java(kafka: KafkaServer, topic: str, records: int) -> list[str]:
    """Return headers, key and value of the records as Kafka's console consumer prints them."""
    options = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--from-beginning"]
    for shown in ("headers", "key"):
        options += ["--formatter-property", f"print.{shown}=true"]
    done = kafka.tool(CONSOLE_CONSUMER, *options, "--max-messages", str(records), timeout_s=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def bury(
    broker: Broker, topic: str, letters: str, during: Callable[[], object] = lambda: None
) -> None:
    """Process all records, where odd numbers fail, and call ``during`` amid them."""
    handled: set[int] = set()

    def handler(record: Record) -> None:
        number = record.value or 0
        handled.add(number)
        if len(handled) == RECORDS // 2:
            threading.Thread(target=during, daemon=True).start()
        if len(handled) == RECORDS:
            consumer.wakeup()
        if number % 2:
            raise ValueError(f"odd: {number}")

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=f"{topic}.group",
        auto_offset_reset="earliest",
        value_deserializer=int,
    )

    process(consumer, handler, order="key", failed=DeadLetters(letters, create=True))


@pytest.mark.parametrize("restarts", [False, True])
def test_each_failed_record_has_one_letter_and_is_replayed(
    kafka: KafkaServer, apache: Broker, unique: Callable[[str], str], restarts: bool
) -> None:
    topic = apache.create_topic(unique("orders"), PARTITIONS)
    letters = unique("letters")
    for number in range(RECORDS):
        apache.write(
            topic,
            b"%d" % number,
            key=b"k%d" % (number % 5),
            partition=number % PARTITIONS,
            headers=[("own", b"x")],
            timestamp=1_700_000_000_000 + number,
        )
    bury(apache, topic, letters, kafka.restart if restarts else lambda: None)
    odd = [number for number in range(RECORDS) if number % 2]
    found = read_all(apache, letters, 1)
    assert sorted(int(letter.value or b"") for letter in found) == odd
    for letter in found:
        number, given = int(letter.value or b""), dict(letter.headers)
        assert letter.key == b"k%d" % (number % 5)
        assert letter.timestamp == 1_700_000_000_000 + number
        assert letter.headers[0] == ("own", b"x")
        assert given["__dlq.errors.topic"] == topic.encode()
        assert given["__dlq.errors.partition"] == b"%d" % (number % PARTITIONS)
        assert given["__dlq.errors.offset"] == b"%d" % (number // PARTITIONS)
        assert given["__dlq.errors.group"] == f"{topic}.group".encode()
    lines = [
        "\t".join(
            (
                ",".join(f"{name}:{(text or b'').decode()}" for name, text in letter.headers),
                (letter.key or b"").decode(),
                (letter.value or b"").decode(),
            )
        )
        for letter in found
    ]
    assert read_by_java(kafka, letters, len(found)) == lines
    arguments = ["dead-letters", letters, "--replay"]
    arguments += ["--bootstrap-servers", apache.bootstrap_servers, "--group", unique("replay")]
    assert main(arguments) == 0
    replayed = [record for record in read_all(apache, topic, PARTITIONS) if record.offset >= 30]
    assert sorted(int(record.value or b"") for record in replayed) == odd
    assert {record.headers for record in replayed} == {(("own", b"x"),)}
    assert {record.partition for record in replayed} == {1}


def test_headers_are_those_of_a_broker_for_a_share_group(
    kafka: KafkaServer, apache: Broker, unique: Callable[[str], str]
) -> None:
    """A share group rejects all records of a topic, and kohort fails for the same (KIP-1191)."""
    topic = apache.create_topic(unique("orders"), 3)
    broker_letters, kohort_letters = unique("dlq.broker"), unique("dlq.kohort")
    config = {"errors.deadletterqueue.group.enable": "true"}
    for letters in (broker_letters, kohort_letters):
        apache.create_topic(letters, 2, config=config)
    for number in range(6):
        apache.write(topic, b"%d" % number, key=b"k", partition=number % 3)
    group = unique("share")
    apache.configure_group(
        group,
        {
            "errors.deadletterqueue.topic.name": broker_letters,
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.auto.offset.reset": "earliest",
        },
    )
    options = ["--bootstrap-server", apache.bootstrap_servers, "--topic", topic, "--group", group]
    kafka.tool(CONSOLE_SHARE_CONSUMER, *options, "--reject", "--max-messages", "6", timeout_s=240)
    seen: set[tuple[int, int]] = set()

    def handler(record: Record) -> None:
        seen.add((record.partition, record.offset))
        if len(seen) == 6:
            consumer.wakeup()
        raise ValueError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=apache.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
    )
    process(consumer, handler, failed=DeadLetters(kohort_letters))
    wait_until(lambda: len(read_all(apache, broker_letters, 2)) == 6)
    theirs = {letter.value: letter for letter in read_all(apache, broker_letters, 2)}
    ours = {letter.value: letter for letter in read_all(apache, kohort_letters, 2)}
    assert len(theirs) == 6 and theirs.keys() == ours.keys()
    differing = {"__dlq.errors.group", "__dlq.errors.message"}
    for value, their in theirs.items():
        our = ours[value]
        assert (our.key, our.partition) == (their.key, their.partition)
        assert [name for name, _ in our.headers[:6]] == [name for name, _ in their.headers]
        for name, content in their.headers:
            assert name in differing or dict(our.headers)[name] == content
        assert dict(their.headers)["__dlq.errors.group"] == group.encode()
        assert dict(our.headers)["__dlq.errors.group"] == topic.encode()
