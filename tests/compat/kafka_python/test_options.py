"""All keywords of kafka-python are accepted, and its checks are made."""

from __future__ import annotations

from typing import Any

import kafka
import pytest
from kafka.consumer.group import KafkaConsumer as PeerConsumer

import kohort.compat.kafka_python as package
from kohort.compat.kafka_python._options import _OWN_DEFAULTS
from tests.compat.kafka_python.conftest import MakeConsumer
from tests.interop.brokers import Broker
from tests.support.net import free_ports

WITH_CLASSES = {
    "client_id",
    "default_offset_commit_callback",
    "kafka_client",
    "partition_assignment_strategy",
    "selector",
}
"""Keywords whose default is a class, a function or a version there."""


def test_defaults_are_those_of_kafka_python() -> None:
    assert package.KafkaConsumer.DEFAULT_CONFIG == PeerConsumer.DEFAULT_CONFIG
    assert list(_OWN_DEFAULTS) == list(PeerConsumer.DEFAULT_CONFIG)
    for name in set(_OWN_DEFAULTS) - WITH_CLASSES:
        assert _OWN_DEFAULTS[name] == PeerConsumer.DEFAULT_CONFIG[name], name
    names = [each.name for each in PeerConsumer.DEFAULT_CONFIG["partition_assignment_strategy"]]
    assert list(_OWN_DEFAULTS["partition_assignment_strategy"]) == names


def test_every_keyword_is_accepted_with_its_default(compat: Any) -> None:
    given = {**compat.KafkaConsumer.DEFAULT_CONFIG, "api_version": (4, 0)}
    with compat.KafkaConsumer("topic", **given) as consumer:
        assert consumer.config == {**given, "receive_message_max_bytes": 100_000_000}
        assert consumer.subscription() == {"topic"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_poll_timeout_ms": 1}, "Unrecognized configs"),
        ({"fetch_max_wait_ms": 50000, "request_timeout_ms": 40000}, "request_timeout_ms"),
        ({"request_timeout_ms": 600000}, "connections_max_idle_ms"),
        ({"group_instance_id": "a"}, "group_instance_id requires group_id"),
        ({"isolation_level": "dirty"}, "Unrecognized isolation_level"),
        ({"group_id": "g", "heartbeat_interval_ms": 45000}, "Heartbeat interval"),
        ({"kafka_client": object}, "does not support kafka_client"),
        ({"proxy_url": "socks4://proxy"}, "proxy_url"),
        ({"max_poll_records": 0}, "max_poll_records"),
    ],
)
def test_wrong_keywords_are_configuration_errors(
    compat: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(compat.errors.KafkaConfigurationError, match=text):
        compat.KafkaConsumer(api_version=(4, 0), **options)


def test_keywords_without_a_meaning_are_accepted(compat: Any) -> None:
    with compat.KafkaConsumer(
        api_version=(4, 0),
        client_id=None,
        client_rack="",
        auto_offset_reset="smallest",
        consumer_timeout_ms=-1,
        metric_reporters=[object],
        metrics_num_samples=5,
        sasl_mechanism="PLAIN",
        sasl_plain_username="unused",
        ssl_cafile="/no/such/file",
    ) as consumer:
        assert consumer.config["client_id"] is None
        assert consumer.config["auto_offset_reset"] == "earliest"


@pytest.mark.parametrize(
    ("given", "known"),
    [((4, 0), (4, 0)), ("2.6", (2, 6)), ((0, 10), (0, 10, 0)), ((9, 9), (4, 3))],
)
def test_given_api_version_is_the_nearest_known_one(given: Any, known: tuple[int, ...]) -> None:
    with package.KafkaConsumer(api_version=given) as consumer:
        assert consumer.config["api_version"] == known
        assert consumer.config["session_timeout_ms"] == (30000 if known < (3, 0) else 45000)


def test_constructor_contacts_the_cluster_for_its_version(
    compat: Any, broker: Broker, make: MakeConsumer
) -> None:
    consumer = make()
    assert consumer.bootstrap_connected()
    assert consumer._client.cluster.brokers()
    if compat is package:
        with PeerConsumer(bootstrap_servers=broker.bootstrap_servers) as peer:
            assert consumer.config["api_version"] == peer.config["api_version"]


def test_constructor_raises_when_no_broker_answers(compat: Any) -> None:
    with pytest.raises(compat.errors.KafkaTimeoutError, match="Unable to bootstrap"):
        compat.KafkaConsumer(
            bootstrap_servers=f"localhost:{free_ports(1)[0]}", bootstrap_timeout_ms=200
        )


def test_other_names_are_those_of_kafka_python() -> None:
    assert package.KafkaProducer is kafka.KafkaProducer
    with pytest.raises(AttributeError):
        _ = package.NoSuchName


def test_other_names_need_kafka_python(alone: Any) -> None:
    with pytest.raises(AttributeError, match="Install kafka-python"):
        _ = alone.KafkaProducer
