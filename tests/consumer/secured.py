"""Secured clusters for tests of consumers that log in, and the options of these consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.secure_kafka import SecureKafka
from tests.support.topics import create_topic

USER, PASSWORD = "admin", "admin-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class Secured(NamedTuple):
    """A cluster with logins, the addresses of its listeners, and how to fill it."""

    bootstrap_servers_of: Callable[[str], str]
    cafile: str
    fill: Callable[[str, int], None]


def on_kafka(kafka: SecureKafka) -> Secured:
    """Return a secured Apache Kafka. Topics get two partitions when they are filled first."""

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
    """The options of a consumer that logs in."""
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
