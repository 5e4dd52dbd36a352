"""failed=DeadLetters(...) with KafkaConsumer: letters from threads, over TLS and a login, too."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kohort import ConsumerRecord, KafkaConsumer
from kohort.errors import ConfigurationError, ErrorCode
from kohort.processing import DeadLetter, DeadLetters, process
from kohort.testing import Cluster, Security

Record = ConsumerRecord[Any, Any]

DLQ = "dlq.billing"


def make(cluster: Cluster, **options: Any) -> KafkaConsumer[Any, Any]:
    return KafkaConsumer(
        "orders",
        **{
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            **options,
        },
    )


class Failing:
    """A handler that fails for even numbers, and stops its consumer at the value "end"."""

    def __init__(self, consumer: KafkaConsumer[Any, Any]) -> None:
        self._consumer = consumer

    def __call__(self, record: Record) -> None:
        if record.value == "end":
            self._consumer.wakeup()
        elif int(record.value or 0) % 2 == 0:
            raise ValueError(record.value)


def text(data: bytes | None) -> str:
    return (data or b"").decode()


def test_each_failed_record_has_one_letter_with_its_bytes() -> None:
    with Cluster(topics={"orders": 1, DLQ: 1}) as cluster:
        cluster.produce("orders", [(f"k{n % 5}", f"{n}") for n in range(40)])
        cluster.produce("orders", [(None, "end")])
        cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
        cluster.disconnect("Produce", after=True)
        consumer = make(cluster, value_deserializer=text)
        process(consumer, Failing(consumer), failed=DeadLetters(DLQ))
        found = cluster.records(DLQ)
        assert [int(letter.value or b"") for letter in found] == list(range(0, 40, 2))
        assert [letter.key for letter in found] == [b"k%d" % (n % 5) for n in range(0, 40, 2)]
        assert sum(at.offset for at in cluster.committed("g").values()) == 41


def test_letters_use_tls_and_the_login_of_the_consumer() -> None:
    security = Security(["SASL_SSL"], mechanisms=["SCRAM-SHA-256"], users={"ann": "secret"})
    with Cluster(topics={"orders": 1, DLQ: 1}, security=security) as cluster:
        cluster.produce("orders", ["2", "end"])
        consumer = make(
            cluster,
            value_deserializer=text,
            security_protocol="SASL_SSL",
            ssl_cafile=cluster.ssl_cafile,
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="ann",
            sasl_plain_password="secret",
        )
        process(consumer, Failing(consumer), failed=DeadLetters(DLQ))
        assert [letter.value for letter in cluster.records(DLQ)] == [b"2"]
        seen = [call for call in cluster.requests if call.api == "Produce"]
        assert len(seen) == 1


def test_a_missing_topic_is_an_error_at_the_start() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        consumer = make(cluster, value_deserializer=text)
        with pytest.raises(ConfigurationError, match=r"'absent' of DeadLetters does not exist"):
            process(consumer, Failing(consumer), failed=DeadLetters("absent"))


def test_a_record_that_does_not_deserialize_has_a_letter() -> None:
    with Cluster(topics={"orders": 1, DLQ: 1}) as cluster:
        cluster.produce("orders", ["1", "two", "3"])
        handled: list[Any] = []

        def handler(record: Record) -> None:
            handled.append(record.value)
            if record.value == 3:
                consumer.wakeup()

        consumer = make(cluster, value_deserializer=int)
        process(consumer, handler, failed=DeadLetters(DLQ))
        assert handled == [1, 3]
        assert [letter.value for letter in cluster.records(DLQ)] == [b"two"]


def test_a_producer_of_the_program_gets_the_letters() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["2", "end"])
        sent: list[tuple[DeadLetter, str]] = []

        def send(letter: DeadLetter) -> None:
            sent.append((letter, threading.current_thread().name))

        consumer = make(cluster, value_deserializer=text)
        process(consumer, Failing(consumer), failed=DeadLetters("elsewhere", send=send))
        [(letter, thread)] = sent
        assert letter.value == b"2"
        assert thread.startswith("kohort-process")


def test_a_coroutine_function_as_send_is_refused() -> None:
    async def send(letter: DeadLetter) -> None:
        pass

    with Cluster(topics={"orders": 1}) as cluster, pytest.raises(ConfigurationError):
        consumer = make(cluster)
        process(consumer, print, failed=DeadLetters("elsewhere", send=send))
