"""Logins by GSSAPI with tickets of a real KDC."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer
from kohort.errors import (
    CredentialsUnavailableError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    SecurityError,
)
from kohort.security.sasl._gssapi import GssapiExchange
from tests.consumer.kit import aread, read
from tests.security.traces import traces
from tests.support.awaited import EACH_API
from tests.support.kerberos import PASSWORD, REALM, USER, Kdc
from tests.support.leaks import leaked
from tests.support.net import free_ports
from tests.support.secure_kafka import SecureKafka
from tests.support.topics import create_topic

pytestmark = [pytest.mark.kerberos, pytest.mark.real_kafka]


@pytest.fixture(scope="module")
def allowed(kerberos_kafka: SecureKafka) -> SecureKafka:
    """The broker. The user of the KDC may read everything."""
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
    """Return the options of a consumer that logs in by GSSAPI."""
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


@pytest.mark.anyio
@EACH_API
async def test_consumer_logs_in_with_a_ticket(
    allowed: SecureKafka, tickets: Kdc, unique: Callable[[str], str], consumer_class: Any
) -> None:
    topic = unique("kerberos")
    await anyio.to_thread.run_sync(fill, allowed, topic)
    async with consumer_class(topic, group_id=unique("g"), **options(allowed)) as consumer:
        assert len(await aread(consumer, 10)) == 10
        await consumer.commit()


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


def keys_of(kdc: Kdc) -> list[bytes]:
    """Return the keys of the user's keytab."""
    listed = subprocess.run(
        ["klist", "-k", "-K", str(kdc.user_keytab)], capture_output=True, text=True, check=True
    )
    return [bytes.fromhex(each) for each in re.findall(r"\(0x([0-9a-f]+)\)", listed.stdout)]


@pytest.mark.parametrize("good", [True, False], ids=["taken", "refused"])
def test_login_by_a_keytab_leaves_no_key_and_no_ticket(
    allowed: SecureKafka,
    tickets: Kdc,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    good: bool,
) -> None:
    sent: list[bytes] = []
    first, following = GssapiExchange.first, GssapiExchange.next

    def note_first(self: GssapiExchange) -> bytes:
        sent.append(first(self))
        return sent[-1]

    async def note_next(self: GssapiExchange, challenge: bytes) -> bytes | None:
        answer = await following(self, challenge)
        sent.extend([challenge, answer or b""])
        return answer

    monkeypatch.setattr(GssapiExchange, "first", note_first)
    monkeypatch.setattr(GssapiExchange, "next", note_next)
    caplog.set_level(1)
    topic = unique("kerberos")
    fill(allowed, topic)
    more: dict[str, Any] = {
        "sasl_kerberos_keytab": str(tickets.user_keytab),
        "sasl_kerberos_principal": USER,
    }
    if not good:
        more["sasl_kerberos_name"] = f"{USER}@{REALM}"  # a principal without a key on the broker
    make = partial(KafkaConsumer, topic, **options(allowed, **more))
    shown = traces(caplog, make, raises=None if good else SaslAuthenticationFailedError)
    # A report may truncate a message, so the test searches for parts of the key.
    parts = [each[at : at + 24] for each in sent for at in range(0, len(each) - 23, 100)]
    keys = keys_of(tickets)
    assert len(parts) > 5 and len(keys) == 2
    secrets = [*parts, *keys, PASSWORD.encode()]
    for secret in secrets:
        assert not leaked(secret, shown)
    for secret in secrets:
        assert leaked(secret, f"{shown} {secret!r}")


def test_kdc_that_is_down_is_named_at_the_deadline(
    allowed: SecureKafka, tickets: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    dead = re.sub(r"kdc = 127\.0\.0\.1:\d+", f"kdc = 127.0.0.1:{port}", tickets.config.read_text())
    (tmp_path / "krb5.conf").write_text(dead)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:none")
    given = options(
        allowed,
        bootstrap_timeout_ms=1_500,
        sasl_kerberos_keytab=str(tickets.user_keytab),
        sasl_kerberos_principal=USER,
    )
    with KafkaConsumer("t", **given) as consumer:
        with pytest.raises(CredentialsUnavailableError, match="Cannot contact any KDC") as raised:
            consumer.poll(timeout_ms=10_000)
        assert "Cannot contact any KDC" in str(consumer.explain())
    assert isinstance(raised.value, KafkaTimeoutError)
    assert "getting a Kerberos ticket for kafka@localhost failed" in str(raised.value)


def test_explain_names_the_kerberos_principal(allowed: SecureKafka, tickets: Kdc) -> None:
    with KafkaConsumer(**options(allowed)) as consumer:
        consumer.topics()
        assert f"as {USER}@{REALM}" in str(consumer.explain())
