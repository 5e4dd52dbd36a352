"""Secured clusters for tests of consumers that log in, and the options of these consumers."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import anyio

from kohort.config import ConsumerConfig
from kohort.protocol.messages import CreateDelegationTokenRequest
from kohort.transport import ClusterClient
from tests.support.secure_kafka import SecureKafka
from tests.support.topics import create_topic
from tests.transport.running import start_client

USER, PASSWORD = "admin", "admin-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class Secured(NamedTuple):
    """A cluster with logins, the addresses of its listeners, and a function that fills a topic."""

    bootstrap_servers_of: Callable[[str], str]
    cafile: str
    fill: Callable[[str, int], None]


def on_kafka(kafka: SecureKafka) -> Secured:
    """Return a secured Apache Kafka. The first fill of a topic creates it with two partitions."""

    def fill(topic: str, count: int) -> None:
        from confluent_kafka import Producer

        if topic not in created:
            created.add(topic)
            create_topic(kafka.bootstrap_servers, topic, 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=number % 2)
        assert producer.flush(20) == 0

    created: set[str] = set()
    return Secured(kafka.bootstrap_servers_of, str(kafka.certificates.ca), fill)


def options(secured: Secured, protocol: str, mechanism: str, **more: Any) -> dict[str, Any]:
    """Return the options of a consumer that logs in."""
    found: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap_servers_of(protocol),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "auto_offset_reset": "earliest",
    }
    if protocol == "SASL_SSL":
        found["ssl_cafile"] = secured.cafile
    if mechanism == "OAUTHBEARER":
        found["sasl_oauthbearer_unsecured"] = True
        found["sasl_oauthbearer_unsecured_claims"] = {"sub": USER}
    else:
        found |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return found | more


async def delegation_token(given: dict[str, Any]) -> tuple[str, bytes]:
    """Create a delegation token for the user of these options. Return its id and its HMAC."""
    config = ConsumerConfig.from_kwargs(**given)
    client = ClusterClient(config.client, security=config.security)
    async with anyio.create_task_group() as tasks:
        await start_client(tasks, client)
        answer = await client.request(CreateDelegationTokenRequest(max_lifetime_ms=600_000))
        await client.aclose()
        tasks.cancel_scope.cancel()
    assert answer.error_code == 0
    return answer.token_id, bytes(answer.hmac)


def with_delegation_token(token_id: str, hmac: bytes) -> dict[str, Any]:
    """Return the options of SCRAM for a delegation token."""
    return {
        "sasl_delegation_token": True,
        "sasl_plain_username": token_id,
        "sasl_plain_password": base64.b64encode(hmac).decode(),
    }
