"""The class looks like aiokafka's, and takes its place in ``aiokafka``."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import Any
from unittest import mock

import aiokafka
import aiokafka.consumer.consumer
import pytest

import kohort.compat.aiokafka as package
from tests.compat.aiokafka.conftest import MakeConsumer
from tests.compat.kit import methods_of, parameters, public_names
from tests.interop.brokers import Broker

pytestmark = pytest.mark.anyio

PEER = aiokafka.consumer.consumer.AIOKafkaConsumer


def test_methods_have_the_parameters_of_aiokafka() -> None:
    methods = methods_of(PEER)
    assert len(methods) > 30
    for name in methods:
        ours, theirs = getattr(package.AIOKafkaConsumer, name), getattr(PEER, name)
        assert inspect.isfunction(ours), name
        assert parameters(ours) == parameters(theirs), name
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name
    assert public_names(package.AIOKafkaConsumer) == public_names(PEER)


def test_install_replaces_the_class_until_uninstall() -> None:
    try:
        package.install()
        assert aiokafka.AIOKafkaConsumer is package.AIOKafkaConsumer
        assert aiokafka.consumer.AIOKafkaConsumer is package.AIOKafkaConsumer
        assert aiokafka.consumer.consumer.AIOKafkaConsumer is package.AIOKafkaConsumer
    finally:
        package.uninstall()
    assert aiokafka.AIOKafkaConsumer is aiokafka.consumer.consumer.AIOKafkaConsumer is PEER


def test_other_names_are_those_of_aiokafka() -> None:
    assert package.AIOKafkaProducer is aiokafka.AIOKafkaProducer
    assert package.TopicPartition is aiokafka.TopicPartition
    assert package.ConsumerStoppedError is aiokafka.errors.ConsumerStoppedError


def test_missing_name_says_what_to_install(alone: Any) -> None:
    with pytest.raises(AttributeError, match="Install aiokafka"):
        _ = alone.AIOKafkaProducer


@pytest.mark.parametrize("name", package.__all__)
def test_public_names_have_docstrings(name: str) -> None:
    assert inspect.getdoc(getattr(package, name))


async def test_subclass_may_set_attributes_before_init(broker: Broker, topic: str) -> None:
    class Consumer(package.AIOKafkaConsumer):
        def __init__(self, **kwargs: Any) -> None:
            self.config = kwargs
            self._group_id = "another"
            super().__init__(**kwargs)

    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="given")
    assert consumer.config["group_id"] == consumer._group_id == "given"
    mocks = dict.fromkeys(("start", "stop", "getone", "getmany", "unsubscribe"), mock.DEFAULT)
    with mock.patch.multiple(Consumer, **mocks):
        await consumer.stop()
        consumer.unsubscribe()
    await consumer.stop()


async def test_listed_private_attributes_have_values(
    make: MakeConsumer, compat: Any, topic: str, group: str
) -> None:
    consumer = make(topic, group_id=group, session_timeout_ms=6000)
    assert (consumer._closed, consumer._fetcher, consumer._coordinator) == (False, None, None)
    assert (consumer._group_id, consumer._group_instance_id) == (group, None)
    assert consumer._auto_offset_reset == "earliest"
    assert consumer._enable_auto_commit is True
    assert consumer._client._topics == {topic}
    assert consumer._client._ssl_context is None
    assert consumer._client._client_id.startswith("aiokafka-")
    consumer._client._otel_cluster_id = "set by an instrumentation"
    await consumer.start()
    assert consumer._coordinator.member_id
    assert consumer._coordinator.generation > 0
    assert consumer._coordinator._session_timeout_ms == 6000
    assert consumer._subscription.topics == consumer._subscription.subscription.topics == {topic}
    assert await consumer._client.force_metadata_update()
    assert topic in consumer._client.cluster.topics()
    assert consumer._client.cluster.partitions_for_topic(topic) == {0, 1}
    await consumer.stop()
    assert consumer._closed is True


async def test_unclosed_consumer_warns_once(broker: Broker, compat: Any) -> None:
    consumer = compat.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    await consumer.start()
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer") as warned:
        del consumer
        await asyncio.sleep(0)
        gc.collect()
    assert [each["message"] for each in reported] == ["Unclosed AIOKafkaConsumer"]
    assert len(warned) == 1
    reported.clear()
