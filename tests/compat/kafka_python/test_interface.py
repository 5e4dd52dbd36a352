"""The class looks like kafka-python's: methods, metrics, and its place in ``kafka``."""

from __future__ import annotations

import inspect
from typing import Any

import kafka
import kafka.consumer.group
import pytest

import kohort.compat.kafka_python as package
from kohort.testing import Cluster
from tests.compat.kafka_python.conftest import MakeConsumer
from tests.compat.kafka_python.kit import poll_until
from tests.compat.kit import methods_of, parameters, public_names
from tests.interop.brokers import Broker

PEER = kafka.consumer.group.KafkaConsumer


def test_methods_have_the_parameters_of_kafka_python() -> None:
    methods = methods_of(PEER)
    assert len(methods) > 30
    for name in methods:
        ours = getattr(package.KafkaConsumer, name)
        assert inspect.isfunction(ours), name
        assert parameters(ours) == parameters(getattr(PEER, name)), name
    assert public_names(package.KafkaConsumer) == public_names(PEER)


def test_install_replaces_the_class_until_uninstall() -> None:
    try:
        package.install()
        assert kafka.KafkaConsumer is package.KafkaConsumer
        assert kafka.consumer.KafkaConsumer is package.KafkaConsumer
        assert kafka.consumer.group.KafkaConsumer is package.KafkaConsumer
    finally:
        package.uninstall()
    assert kafka.KafkaConsumer is kafka.consumer.group.KafkaConsumer is PEER


def test_metrics_have_the_names_of_kafka_python(cluster: Cluster) -> None:
    cluster.create_topic("metrics", 1)
    cluster.produce("metrics", [b"a", b"b"])
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "metrics",
        "auto_offset_reset": "earliest",
        "metric_group_prefix": "xx",
    }
    found: list[Any] = []
    for consumer_class in (PEER, package.KafkaConsumer):
        # No subscription: kafka-python 3.0.12 can wait for ever after a join without metadata.
        with consumer_class(**options, enable_auto_commit=False) as consumer:
            consumer.assign([kafka.TopicPartition("metrics", 0)])
            poll_until(consumer, 2)
            found.append(consumer.metrics())
    theirs, ours = found
    for group in ("xx-coordinator-metrics", "xx-fetch-manager-metrics", "xx-metrics"):
        assert set(ours[group]) == set(theirs[group])
    assert ours["kafka-metrics-count"]["count"] == sum(len(group) for group in ours.values())


def test_metrics_count_records_and_can_be_left_out(
    compat: Any, broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value")
    consumer = make(topic)
    poll_until(consumer, 1)
    figures = consumer.metrics()["consumer-fetch-manager-metrics"]
    assert figures["records-consumed-rate"] > 0
    assert figures["fetch-size-avg"] > 0
    raw = {name.name: metric.value() for name, metric in consumer.metrics(raw=True).items()}
    assert raw["assigned-partitions"] == 2.0
    assert make(topic, metrics_enabled=False).metrics() is None


@pytest.mark.parametrize("name", package.__all__)
def test_public_names_have_docstrings(name: str) -> None:
    assert inspect.getdoc(getattr(package, name))
