"""The ``repr()`` of both consumers, in every state that a debugger may show."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.testing import Cluster

CONSUMERS = pytest.mark.parametrize("cls", [KafkaConsumer, AsyncKafkaConsumer])


@CONSUMERS
def test_repr_shows_group_topics_and_state(cls: type[Any]) -> None:
    name = cls.__name__
    assert repr(cls("orders", group_id="billing")) == (
        f"<{name} group='billing' topics=['orders'] not started>"
    )
    assert repr(cls()) == f"<{name} topics=[] not started>"


@CONSUMERS
def test_repr_shows_pattern_or_partitions(cls: type[Any]) -> None:
    consumer = cls()
    consumer.subscribe(pattern="orders-.*")
    assert "pattern='orders-.*'" in repr(consumer)
    consumer = cls()
    consumer.assign([TopicPartition("orders", 1), TopicPartition("orders", 0)])
    assert "partitions=['orders-0', 'orders-1']" in repr(consumer)


@CONSUMERS
def test_repr_is_short_when_there_are_many_topics(cls: type[Any]) -> None:
    assert len(repr(cls(*(f"topic-{index}" for index in range(1_000))))) < 200


@CONSUMERS
def test_repr_shows_no_secret(cls: type[Any]) -> None:
    consumer = cls(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_plain_username="user",
        sasl_plain_password="hunter2",
    )
    assert "hunter2" not in repr(consumer)


@CONSUMERS
def test_repr_works_when_the_consumer_is_half_made(cls: Any) -> None:
    assert repr(cls.__new__(cls)) == f"<{cls.__name__} without options>"
    consumer = cls("orders")
    del consumer._driver
    assert repr(consumer) == f"<{cls.__name__} without options>"


def test_repr_names_the_class_of_a_subclass() -> None:
    class Mine(KafkaConsumer[bytes, bytes]):
        pass

    assert repr(Mine()) == "<Mine topics=[] not started>"


def test_repr_shows_running_and_closed() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers)
        consumer.poll()
        assert repr(consumer) == "<KafkaConsumer topics=['orders'] running>"
        consumer.close()
        assert repr(consumer) == "<KafkaConsumer topics=['orders'] closed>"


@pytest.mark.anyio
async def test_repr_shows_running_and_stopped() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with AsyncKafkaConsumer("orders", bootstrap_servers=servers) as consumer:
            assert repr(consumer) == "<AsyncKafkaConsumer topics=['orders'] running>"
        assert repr(consumer) == "<AsyncKafkaConsumer topics=['orders'] closed>"


@CONSUMERS
def test_repr_takes_no_lock(cls: type[Any]) -> None:
    consumer = cls("orders")
    shown: list[str] = []
    with consumer._driver.engine.subscription.lock:
        thread = threading.Thread(target=lambda: shown.append(repr(consumer)), daemon=True)
        thread.start()
        thread.join(60)
    assert shown == [f"<{cls.__name__} topics=['orders'] not started>"]


def test_repr_shows_another_process_after_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = KafkaConsumer("orders")
    consumer._driver.life.pid = os.getpid()
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert repr(consumer) == "<KafkaConsumer topics=['orders'] of another process>"
    monkeypatch.undo()
    consumer._driver.life.pid = None
