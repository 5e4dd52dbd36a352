"""process() with share consumers on Apache Kafka: long handlers, poison, and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort import ShareConsumer, ShareRecord
from kohort.processing import Retry, process
from tests.interop.brokers import Broker
from tests.interop.test_dead_letters import read_all
from tests.interop.waiting import wait_until
from tests.processing.killing import SHARE_WORKER, Workers, run_kills

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(600)]

LOCK_S = 15
"""Seconds of a lock: the least that brokers allow."""
LIMIT = 2
"""Deliveries of a record: the least that brokers allow."""
STOPS = [3, pytest.param(20, marks=pytest.mark.long)]


def test_long_handler_is_called_once_and_poison_ends_in_a_letter(
    apache: Broker, unique: Callable[[str], str]
) -> None:
    topic = apache.create_topic(unique("jobs"))
    letters = apache.create_topic(
        unique("dlq.jobs"), config={"errors.deadletterqueue.group.enable": "true"}
    )
    apache.configure_group(
        topic,
        {
            "errors.deadletterqueue.topic.name": letters,
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(1000 * LOCK_S),
            "share.delivery.count.limit": str(LIMIT),
        },
    )
    for value in (b"long", b"poison", b"short"):
        apache.write(topic, value, key=b"k")
    calls: Counter[tuple[bytes | None, int]] = Counter()

    def handler(record: ShareRecord[Any, Any]) -> None:
        calls[record.value, record.delivery_count] += 1
        if record.value == b"poison":
            raise ValueError
        if record.value == b"long":
            threading.Event().wait(3 * LOCK_S)  # the work
            consumer.wakeup()

    options: dict[str, Any] = {"bootstrap_servers": apache.bootstrap_servers, "group_id": topic}
    consumer = ShareConsumer(topic, **options)
    process(consumer, handler, retry=Retry(1), concurrency=10)
    assert calls == {
        (b"long", 1): 1,
        (b"short", 1): 1,
        **{(b"poison", delivery + 1): 1 for delivery in range(LIMIT)},
    }
    wait_until(lambda: len(read_all(apache, letters, 1)) == 1)
    (letter,) = read_all(apache, letters, 1)
    assert (letter.key, letter.value) == (b"k", b"poison")
    assert dict(letter.headers) == {
        "__dlq.errors.topic": topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": topic.encode(),
        "__dlq.errors.delivery.count": b"%d" % LIMIT,
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    with ShareConsumer(topic, **options) as last:
        assert last.poll(timeout_ms=5_000) == {}


@pytest.mark.parametrize("stops", STOPS)
def test_sigterm_repeats_nothing_and_leaves_in_time(
    apache: Broker, unique: Callable[[str], str], tmp_path: Path, stops: int
) -> None:
    """A process ends within its drain and one second, which check_exit() asserts."""
    topic = apache.create_topic(unique("jobs"), 2)
    workers = Workers(tmp_path, apache.bootstrap_servers, topic, program=SHARE_WORKER)

    def produce() -> int:
        for number in range(80):
            apache.write(topic, b"%d" % number, partition=number % 2)
        return 80

    kills = run_kills(workers, signal.SIGTERM, stops, produce, dict)
    assert set(kills.begun.values()) == {1}
