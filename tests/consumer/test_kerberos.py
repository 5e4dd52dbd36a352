"""Logins by GSSAPI with tickets of a real KDC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.errors import SecurityError
from tests.consumer.kit import aread, read
from tests.support.kerberos import USER, Kdc
from tests.support.secure_kafka import SecureKafka
from tests.support.topics import create_topic

pytestmark = [pytest.mark.kerberos, pytest.mark.real_kafka]


@pytest.fixture(scope="module")
def allowed(kerberos_kafka: SecureKafka) -> SecureKafka:
    """The broker, where the user of the KDC may read all."""
    for resource in ("--topic", "--group"):
        kerberos_kafka.acl(
            "--add",
            *("--allow-principal", f"User:{USER}", "--operation", "All", resource, "*"),
        )
    return kerberos_kafka


@pytest.fixture
def tickets(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    """The KDC, with a ticket of the user in the cache of this process."""
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    kdc.kinit()
    return kdc


def options(kafka: SecureKafka, **more: Any) -> dict[str, Any]:
    """The options of a consumer that logs in by GSSAPI."""
    return {
        "bootstrap_servers": kafka.bootstrap_servers_of("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "auto_offset_reset": "earliest",
        **more,
    }


def fill(kafka: SecureKafka, topic: str) -> None:
    """Create the topic with ten records."""
    from confluent_kafka import Producer

    create_topic(kafka.bootstrap_servers, topic, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(20) == 0


def test_sync_consumer_logs_in_with_a_ticket(
    allowed: SecureKafka, tickets: Kdc, unique: Callable[[str], str]
) -> None:
    topic = unique("kerberos")
    fill(allowed, topic)
    with KafkaConsumer(topic, group_id=unique("g"), **options(allowed)) as consumer:
        assert len(read(consumer, 10)) == 10
        consumer.commit()


def test_consumer_logs_in_with_a_keytab(
    allowed: SecureKafka,
    tickets: Kdc,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:empty")
    topic = unique("kerberos")
    fill(allowed, topic)
    given = options(
        allowed,
        sasl_kerberos_keytab=str(tickets.user_keytab),
        sasl_kerberos_principal=USER,
        sasl_kerberos_domain_name="localhost",
    )
    given["bootstrap_servers"] = given["bootstrap_servers"].replace("localhost", "127.0.0.1")
    with KafkaConsumer(topic, group_id=unique("g"), **given) as consumer:
        assert len(read(consumer, 10)) == 10


@pytest.mark.anyio
async def test_async_consumer_logs_in_with_a_ticket(
    allowed: SecureKafka, tickets: Kdc, unique: Callable[[str], str]
) -> None:
    topic = unique("kerberos")
    await anyio.to_thread.run_sync(fill, allowed, topic)
    async with AsyncKafkaConsumer(topic, group_id=unique("g"), **options(allowed)) as consumer:
        assert len(await aread(consumer, 10)) == 10


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"sasl_kerberos_service_name": "other"}, "getting a Kerberos ticket for other@localhost"),
        ({"sasl_kerberos_keytab": "/nowhere"}, "Get a ticket with kinit, or set sasl_kerberos"),
    ],
)
def test_consumer_raises_when_there_is_no_ticket(
    allowed: SecureKafka, tickets: Kdc, more: dict[str, Any], text: str
) -> None:
    with KafkaConsumer("t", **options(allowed, **more)) as consumer:
        with pytest.raises(SecurityError, match=text):
            consumer.poll(timeout_ms=10_000)
