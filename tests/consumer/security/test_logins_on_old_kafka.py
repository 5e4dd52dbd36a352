"""Secured listeners of Apache Kafka 3.9, which has other class names for OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.errors import SaslAuthenticationFailedError, SecurityError
from tests.consumer.kit import aread, read
from tests.consumer.secured import MECHANISMS, PROTOCOLS, USER, Secured, on_kafka, options
from tests.support.awaited import EACH_API
from tests.support.jars import old_jars
from tests.support.kerberos import USER as KERBEROS_USER
from tests.support.kerberos import Kdc
from tests.support.plugin import SERVERS
from tests.support.secure_kafka import SecureKafka

pytestmark = [
    pytest.mark.long,  # needs former versions of Kafka
    pytest.mark.real_kafka,
    pytest.mark.old_kafka,
]

VERSION = "3.9.2"
COUNT = 10
WAYS = ("SSL", "MTLS", "OAUTH", *(f"{way} {kind}" for way in PROTOCOLS for kind in MECHANISMS))
"""Listeners of SecureKafka, with the mechanism where there are several."""
ALL_RIGHTS = f"User:ANONYMOUS;User:{USER};User:client;User:{KERBEROS_USER}"


def start(
    folder: pytest.TempPathFactory, config: pytest.Config, kdc: Kdc | None = None
) -> Iterator[SecureKafka]:
    """Start a broker of the old version."""
    properties = {"super.users": ALL_RIGHTS, "offsets.topic.num.partitions": "1"}
    server = SecureKafka(
        old_jars(VERSION), folder.mktemp("old-kafka"), properties, version=VERSION, kdc=kdc
    )
    config.stash[SERVERS].append(server)
    server.start()
    yield server
    config.stash[SERVERS].remove(server)
    server.kill()


@pytest.fixture(scope="module")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SecureKafka]:
    yield from start(tmp_path_factory, pytestconfig)


@pytest.fixture(scope="module")
def secured(kafka: SecureKafka) -> Secured:
    found = on_kafka(kafka)
    found.fill("t", COUNT)
    return found


def options_of(kafka: SecureKafka, secured: Secured, way: str) -> dict[str, Any]:
    """Return the options of a consumer for one of WAYS."""
    listener, _, mechanism = way.partition(" ")
    if mechanism:
        return options(secured, listener, mechanism)
    found: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap_servers_of(listener),
        "security_protocol": "SSL",
        "ssl_cafile": secured.cafile,
        "auto_offset_reset": "earliest",
    }
    if listener == "MTLS":
        found["ssl_certfile"] = str(kafka.certificates.path("client.both"))
    if listener == "OAUTH":
        found |= {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: kafka.signing_key.token(USER),
        }
    return found


def read_in_a_group(group: str, given: dict[str, Any], topic: str = "t") -> None:
    with KafkaConsumer(topic, group_id=group, **given) as consumer:
        assert len(read(consumer, COUNT)) == COUNT
        consumer.commit()


def test_every_listener_and_mechanism_lets_a_group_read(
    kafka: SecureKafka, secured: Secured, unique: Callable[[str], str]
) -> None:
    for way in WAYS:
        read_in_a_group(unique("g"), options_of(kafka, secured, way))


def test_wrong_logins_are_told_apart(kafka: SecureKafka, secured: Secured) -> None:
    wrong = "another-secret"
    for mechanism in MECHANISMS[:3]:
        given = options(secured, "SASL_PLAINTEXT", mechanism, sasl_plain_password=wrong)
        with KafkaConsumer("t", **given) as consumer:
            with pytest.raises(SaslAuthenticationFailedError, match=f"the {mechanism} login of"):
                consumer.poll(timeout_ms=10_000)
    given = options_of(kafka, secured, "OAUTH")
    given["sasl_oauth_token_provider"] = lambda: kafka.signing_key.token(USER, aud="another")
    with KafkaConsumer("t", **given) as consumer:
        with pytest.raises(SecurityError, match="aud=another"):
            consumer.poll(timeout_ms=10_000)


@pytest.mark.long
@pytest.mark.anyio
@EACH_API
@pytest.mark.parametrize("way", WAYS)
async def test_group_reads_when_it_logs_in(
    kafka: SecureKafka,
    secured: Secured,
    unique: Callable[[str], str],
    consumer_class: Any,
    way: str,
) -> None:
    given = options_of(kafka, secured, way)
    async with consumer_class("t", group_id=unique("g"), **given) as consumer:
        assert len(await aread(consumer, COUNT)) == COUNT
        await consumer.commit()


@pytest.fixture(scope="module")
def kerberos(
    kdc: Kdc, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SecureKafka]:
    yield from start(tmp_path_factory, pytestconfig, kdc)


@pytest.mark.long
@pytest.mark.kerberos
@pytest.mark.anyio
async def test_groups_read_when_they_log_in_with_tickets(
    kerberos: SecureKafka,
    kdc: Kdc,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    kdc.kinit()
    topic = unique("t")
    await anyio.to_thread.run_sync(on_kafka(kerberos).fill, topic, COUNT)
    given: dict[str, Any] = {
        "bootstrap_servers": kerberos.bootstrap_servers_of("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "auto_offset_reset": "earliest",
    }
    await anyio.to_thread.run_sync(read_in_a_group, unique("g"), given, topic)
    async with AsyncKafkaConsumer(topic, group_id=unique("g"), **given) as consumer:
        assert len(await aread(consumer, COUNT)) == COUNT
